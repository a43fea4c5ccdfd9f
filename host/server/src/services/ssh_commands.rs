//! The host service `ssh`: commands of backends on other machines.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dstack_backend_types::services::{SshHop, SshReply, SshRequest, frame, unframe};
use dstack_backend_types::{BackendError, ErrorKind};
use dstack_plugins::{Caller, ExternalService, ServiceAnswer};
use dstack_remote::{Exec, ExecHop, HostKeyRule, HostKeys, RemoteError, Secret, exec};

const USUAL_OUTPUT: u64 = 4 << 20;
const MAX_OUTPUT: usize = 16 << 20;
/// More than to the host's own machines: login nodes of clusters are slow.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// The service over in-process SSH.
pub(crate) struct SshCommands {
    host_keys: Arc<dyn HostKeys>,
}

impl std::fmt::Debug for SshCommands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SshCommands")
    }
}

impl SshCommands {
    pub(crate) fn new(host_keys: Arc<dyn HostKeys>) -> Self {
        Self { host_keys }
    }

    fn hop(&self, caller: &Caller, hop: SshHop) -> ExecHop {
        let host_key = match (hop.host_key, hop.known_as) {
            (Some(line), _) => HostKeyRule::Only(line),
            (None, Some(name)) => {
                let project = caller.project.as_deref().unwrap_or_default();
                // An `@` would name a machine of the host, whose key is forgotten with it.
                let name = format!("{}/{project}/{name}", caller.backend).replace('@', "%40");
                HostKeyRule::Recorded(name, Arc::clone(&self.host_keys))
            }
            (None, None) => HostKeyRule::Any,
        };
        let secret = |it: dstack_backend_types::Secret<String>| Secret::new(it.into_inner());
        ExecHop {
            host: hop.host,
            port: hop.port.unwrap_or(22),
            username: hop.user,
            private_key: hop.private_key.map(secret),
            password: hop.password.map(secret),
            host_key,
        }
    }

    async fn run(
        &self,
        caller: &Caller,
        request: SshRequest,
        stdin: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        let max_output = request.max_output_bytes.unwrap_or(USUAL_OUTPUT);
        let jumps = request.jumps.into_iter();
        let what = Exec {
            jumps: jumps.map(|jump| self.hop(caller, jump)).collect(),
            target: self.hop(caller, request.target),
            command: request.command,
            input: Bytes::copy_from_slice(stdin),
            max_output: usize::try_from(max_output).map_or(MAX_OUTPUT, |it| it.min(MAX_OUTPUT)),
            connect_limit: CONNECT_LIMIT,
        };
        let place = format!("{}:{}", what.target.host, what.target.port);
        let ended = match request.timeout_ms {
            None => exec(what).await,
            Some(ms) => tokio::time::timeout(Duration::from_millis(ms), exec(what))
                .await
                .map_err(|_| {
                    let message = format!("the command at {place} did not end within {ms} ms");
                    BackendError::new(ErrorKind::Timeout, message)
                })?,
        };
        let output = ended.map_err(|error| reason(&error))?;
        tracing::debug!(backend = caller.backend, call = caller.call, at = place, status = ?output.status, "ssh command");
        let head = SshReply {
            status: output.status,
            signal: output.signal,
            stdout_bytes: u64::try_from(output.stdout.len()).unwrap_or(u64::MAX),
            is_truncated: output.is_truncated,
            host_key: output.host_key,
        };
        let mut body = output.stdout;
        body.extend_from_slice(&output.stderr);
        frame(&head, &body).map_err(|e| BackendError::internal(e.to_string()))
    }
}

fn reason(error: &RemoteError) -> BackendError {
    let kind = match error {
        RemoteError::KeyRefused { .. } | RemoteError::HostKeyChanged { .. } => ErrorKind::Auth,
        RemoteError::Invalid(_) => ErrorKind::Invalid,
        RemoteError::TimedOut { .. } => ErrorKind::Timeout,
        _ => ErrorKind::Transport,
    };
    BackendError::new(kind, error.to_string())
}

impl ExternalService for SshCommands {
    fn answer<'a>(&'a self, caller: &'a Caller, request: &'a [u8]) -> ServiceAnswer<'a> {
        Box::pin(async move {
            let (request, stdin): (SshRequest, _) =
                unframe(request).map_err(|e| BackendError::invalid(e.to_string()))?;
            self.run(caller, request, stdin).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dstack_backend_types::ErrorKind;
    use dstack_backend_types::services::SshHop;
    use dstack_plugins::Caller;
    use dstack_remote::{HostKeyRule, MemoryHostKeys, RemoteError};

    use super::{SshCommands, reason};

    fn rule(host_key: Option<&str>, known_as: Option<&str>) -> String {
        let commands = SshCommands::new(Arc::new(MemoryHostKeys::default()));
        let caller = Caller {
            backend: "slurm".to_owned(),
            project: Some("p1".to_owned()),
            call: 1,
        };
        let hop = SshHop {
            host: "login".to_owned(),
            host_key: host_key.map(str::to_owned),
            known_as: known_as.map(str::to_owned),
            ..SshHop::default()
        };
        let hop = commands.hop(&caller, hop);
        assert_eq!(hop.port, 22, "unless said");
        match hop.host_key {
            HostKeyRule::Any => "any".to_owned(),
            HostKeyRule::Only(line) => format!("only {line}"),
            HostKeyRule::Recorded(name, _) => format!("recorded {name}"),
        }
    }

    #[test]
    fn a_backend_chooses_whose_host_key_it_trusts_within_its_project() {
        assert_eq!(rule(None, None), "any");
        assert_eq!(rule(Some("ssh-ed25519 A"), Some("x")), "only ssh-ed25519 A");
        // Nothing that a backend says is the name of a machine of the host.
        assert_eq!(
            rule(None, Some("me@10.0.0.1")),
            "recorded slurm/p1/me%4010.0.0.1"
        );
    }

    #[test]
    fn who_is_not_let_in_has_wrong_credentials() {
        let refused = RemoteError::KeyRefused {
            at: "login:22".to_owned(),
            user: "me".to_owned(),
        };
        let error = reason(&refused);
        assert_eq!(error.kind, ErrorKind::Auth);
        assert!(error.message.contains("login:22"), "{error}");
        let invalid = RemoteError::Invalid("no key".to_owned());
        assert_eq!(reason(&invalid).kind, ErrorKind::Invalid);
    }
}
