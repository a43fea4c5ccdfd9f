//! Commands on another machine, over SSH, run by the host.
//!
//! ```no_run
//! # fn f(key: dstack_backend_sdk::Secret<String>) -> Result<(), dstack_backend_sdk::BackendError> {
//! use dstack_backend_sdk::host::ssh::{Command, Hop};
//! let login = Hop::new("login.cluster.example", "ops").key(key);
//! let nodes = Command::exec(login, "sinfo --json").run()?.ok()?;
//! println!("{}", nodes.stdout());
//! # Ok(()) }
//! ```

use super::request;
use dstack_backend_types::{BackendError, ErrorKind, Secret, services as wire};
use std::{fmt, time::Duration};

/// One SSH server on the way.
#[derive(Debug, Clone)]
#[must_use = "a hop is part of a command"]
pub struct Hop(wire::SshHop);

impl Hop {
    /// Port 22; any host key is accepted unless [`host_key`](Self::host_key) or [`known_as`](Self::known_as) is said.
    pub fn new(host: impl Into<String>, user: impl Into<String>) -> Self {
        Self(wire::SshHop {
            host: host.into(),
            user: user.into(),
            ..wire::SshHop::default()
        })
    }
    /// Another port.
    pub fn port(mut self, port: u16) -> Self {
        self.0.port = Some(port);
        self
    }
    /// Logs in with this private key (OpenSSH or PEM, without a passphrase).
    pub fn key(mut self, private_key: Secret<String>) -> Self {
        self.0.private_key = Some(private_key);
        self
    }
    /// Logs in with this password.
    pub fn password(mut self, password: Secret<String>) -> Self {
        self.0.password = Some(password);
        self
    }
    /// Accepts this host key only (an OpenSSH public key line).
    pub fn host_key(mut self, line: impl Into<String>) -> Self {
        self.0.host_key = Some(line.into());
        self
    }
    /// Lets the host remember the key that this machine shows first, under this name, and refuse another one later.
    pub fn known_as(mut self, name: impl Into<String>) -> Self {
        self.0.known_as = Some(name.into());
        self
    }
}

/// A command to run.
#[derive(Clone)]
#[must_use = "a command does nothing until it runs"]
pub struct Command {
    head: wire::SshRequest,
    stdin: Vec<u8>,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The command's words and its input may hold secrets.
        write!(f, "Command(at {})", self.head.target.host)
    }
}

impl Command {
    /// This command line, run by the user's shell there.
    pub fn exec(target: Hop, command: impl Into<String>) -> Self {
        Self {
            head: wire::SshRequest {
                target: target.0,
                command: Some(command.into()),
                ..wire::SshRequest::default()
            },
            stdin: Vec::new(),
        }
    }
    /// A login shell that reads this script.
    pub fn shell(target: Hop, script: impl Into<Vec<u8>>) -> Self {
        Self {
            head: wire::SshRequest {
                target: target.0,
                ..wire::SshRequest::default()
            },
            stdin: script.into(),
        }
    }
    /// Goes through this server; call it for each, the outermost first.
    pub fn through(mut self, jump: Hop) -> Self {
        self.head.jumps.push(jump.0);
        self
    }
    /// Standard input, at most 8 MiB.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }
    /// Bounds the whole of it, connecting included.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.head.timeout_ms = u64::try_from(limit.as_millis()).ok();
        self
    }
    /// Keeps so much of each output; 4 MiB unless said, 16 MiB at most.
    pub fn max_output_bytes(mut self, limit: u64) -> Self {
        self.head.max_output_bytes = Some(limit);
        self
    }

    /// Runs it and waits for its end, whatever its status.
    ///
    /// # Errors
    /// `transport` if the machine cannot be reached, `auth` if it refuses the login or shows another host key, `invalid` if a key
    /// is none, `timeout`, `cancelled`; `unsupported` if the host has no SSH.
    pub fn run(self) -> Result<Output, BackendError> {
        let message = wire::frame(&self.head, &self.stdin)
            .map_err(|e| BackendError::internal(e.to_string()))?;
        let reply = request(wire::SSH, &message)?;
        let (head, output): (wire::SshReply, _) = wire::unframe(reply.as_slice()).map_err(|e| {
            BackendError::internal(format!("the host's answer is not understood: {e}"))
        })?;
        let middle = usize::try_from(head.stdout_bytes)
            .unwrap_or(usize::MAX)
            .min(output.len());
        let (stdout, stderr) = output.split_at(middle);
        Ok(Output {
            stdout: stdout.to_vec(),
            stderr: stderr.to_vec(),
            head,
        })
    }
}

/// What a command left behind.
#[derive(Clone)]
pub struct Output {
    head: wire::SshReply,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Output(status {:?})", self.head.status)
    }
}

impl Output {
    /// Exit status; `None` if a signal ended it or the server did not tell.
    pub fn status(&self) -> Option<u32> {
        self.head.status
    }
    /// The signal that ended it, without `SIG`.
    pub fn signal(&self) -> Option<&str> {
        self.head.signal.as_deref()
    }
    /// Whether output beyond the limit was thrown away.
    pub fn is_truncated(&self) -> bool {
        self.head.is_truncated
    }
    /// The host key that the target showed.
    pub fn host_key(&self) -> &str {
        &self.head.host_key
    }
    /// Standard output; what is not UTF-8 is replaced.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
    /// Standard error; what is not UTF-8 is replaced.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
    /// Standard output as it is.
    pub fn stdout_bytes(&self) -> &[u8] {
        &self.stdout
    }
    /// Itself if the status is 0.
    ///
    /// # Errors
    /// `internal`, with the status and the end of standard error.
    pub fn ok(self) -> Result<Self, BackendError> {
        if self.status() == Some(0) {
            return Ok(self);
        }
        let how = match (self.status(), self.signal()) {
            (Some(status), _) => format!("status {status}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no status".to_owned(),
        };
        let text = self.stderr();
        let skipped = text.chars().count().saturating_sub(300);
        let tail: String = text.chars().skip(skipped).collect();
        Err(BackendError::new(
            ErrorKind::Internal,
            format!("the command ended with {how}: {}", tail.trim()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, Hop, Output};
    use dstack_backend_types::{ErrorKind, Secret, services::SshReply};

    #[test]
    fn nothing_secret_is_printed() {
        let hop = Hop::new("a.example", "root")
            .key(Secret::new("hush".to_owned()))
            .password(Secret::new("hush".to_owned()));
        let command = Command::exec(hop.clone(), "login --token hush").stdin("hush");
        assert!(!format!("{hop:?} {command:?}").contains("hush"));
        assert_eq!(command.run().unwrap_err().kind, ErrorKind::Unsupported);
    }

    #[test]
    fn a_status_is_an_error_with_the_end_of_what_it_said() {
        let head = SshReply {
            status: Some(3),
            ..SshReply::default()
        };
        let output = Output {
            head,
            stdout: Vec::new(),
            stderr: format!("{}the reason\n", "x".repeat(500)).into_bytes(),
        };
        let error = output.ok().unwrap_err();
        assert!(error.message.contains("status 3"), "{error}");
        assert!(error.message.ends_with("the reason"), "{error}");
    }
}
