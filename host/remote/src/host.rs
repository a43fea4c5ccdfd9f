//! Own hosts: our agents are brought there over SSH, started, and taken away again.
//!
//! Every step is a small script for `sh`, fed to the login shell's `sh -s`, as root by `sudo` where the account is not root.
//! All steps may be done again at any time.

mod script;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dstack_agent_protocol::shim::HostInfo;
use sha2::{Digest as _, Sha256};

use crate::{Address, CommandOutput, HostData, Remote, RemoteError};
use script::{Facts, quote};

/// The shim's socket on own hosts.
const SOCKET: &str = "/run/dstack-shim/shim.sock";
/// Free space that must be left beside the agents, in KiB.
const SPARE_KIB: u64 = 20 * 1024;
const STEP_LIMIT: Duration = Duration::from_secs(60);
const UPLOAD_LIMIT: Duration = Duration::from_secs(300);
/// The shim may pull an image to look at its GPUs before it tells about the host.
const INFO_TRIES: usize = 12;

/// Finds the file of an agent: processor (`amd64`, `arm64`) and name in, path out; else where it was looked for.
pub type FindAgent = Arc<dyn Fn(&str, &str) -> Result<PathBuf, String> + Send + Sync>;

/// What a host is prepared with.
#[derive(Clone)]
pub struct HostSetup {
    /// Names the instance that the host is prepared for: one that comes later takes the host over.
    pub instance: String,
    /// The public key line that opens the host from now on.
    pub public_key: String,
    /// Variables of the shim, beside its own.
    pub env: BTreeMap<String, String>,
    /// Where the agents' files are.
    pub find_agent: FindAgent,
}

/// A host with a running shim.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedHost {
    /// What it has.
    pub info: HostInfo,
    /// `amd64` or `arm64`.
    pub arch: &'static str,
    /// What finds its shim again.
    pub data: HostData,
}

/// Why a host cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HostError {
    /// One sentence with the remedy.
    pub reason: String,
    /// Somebody has to do something first: trying again soon gives the same.
    pub is_final: bool,
    /// The account was entered, so something of ours may be there.
    pub was_entered: bool,
}

impl HostError {
    fn needs_help(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            is_final: true,
            was_entered: true,
        }
    }

    fn step(what: &str, output: &CommandOutput) -> Self {
        let complaint = output.complaint();
        let remedies = [
            (
                "No space left on device",
                "; the disk is full, free some space",
            ),
            (
                "GLIBC_",
                "; the server's agents need a newer C library than the host has, static ones need none: put those there",
            ),
            // It says by itself what may be wrong.
            ("does not run here", ""),
        ];
        let known = remedies.iter().find(|(words, _)| complaint.contains(words));
        let remedy = known.map_or("", |(_, remedy)| remedy);
        Self {
            reason: format!("{what}: {complaint}{remedy}"),
            is_final: known.is_some(),
            was_entered: true,
        }
    }
}

impl From<RemoteError> for HostError {
    fn from(error: RemoteError) -> Self {
        let (is_final, was_entered) = match &error {
            RemoteError::KeyRefused { .. }
            | RemoteError::HostKeyChanged { .. }
            | RemoteError::Invalid(_) => (true, false),
            RemoteError::TimedOut { .. } => (false, true),
            _ => (false, false),
        };
        Self {
            reason: error.to_string(),
            is_final,
            was_entered,
        }
    }
}

/// One account of one host, while it is worked on.
struct Host<'a> {
    remote: &'a Remote,
    at: &'a Address,
    facts: Facts,
}

impl Remote {
    /// Brings agents and key to a host and starts its shim. What is there already is used or replaced.
    ///
    /// # Errors
    /// [`HostError`] says at which step it ended, and whether trying again makes sense.
    pub async fn prepare_host(
        &self,
        at: &Address,
        setup: &HostSetup,
    ) -> Result<PreparedHost, HostError> {
        let host = Host::enter(self, at).await?;
        let arch = host.facts.arch()?;
        let (key, blob) = key_parts(&setup.public_key)?;
        let vars = host.holder(&setup.instance, blob);
        host.as_root("taking the host", &vars, script::CLAIM)
            .await?;
        let vars = format!("key={}\nblob={}\n", quote(key), quote(blob));
        host.as_user("adding the project's key", &vars, script::ADD_KEY)
            .await?;
        let found = host
            .as_root("looking at the host", "", script::CHECK)
            .await?;
        let found = Facts::read(&found.text());
        check_engine(&found, &setup.env)?;
        host.bring_all(arch, &setup.find_agent, &found).await?;
        let env = env_file(&setup.env, host.facts.get("uid"));
        let path = "/root/.dstack/shim.env";
        host.write(path, Bytes::from(env), STEP_LIMIT).await?;
        host.as_root("starting the shim", "", script::INSTALL)
            .await?;
        let info = host.info().await?;
        Ok(PreparedHost {
            info,
            arch,
            data: HostData {
                shim_socket: SOCKET.into(),
            },
        })
    }

    /// Replaces agents that are older than this server, and starts the new ones; what the host had and has now, if it
    /// was so. Nothing is ever replaced by something older. The host must have no tasks.
    ///
    /// # Errors
    /// [`HostError`]; the old agents are still there unless it says otherwise.
    pub async fn upgrade_host(
        &self,
        at: &Address,
        find_agent: &FindAgent,
    ) -> Result<Option<(String, &'static str)>, HostError> {
        let host = Host::enter(self, at).await?;
        let arch = host.facts.arch()?;
        let step = "looking at the host";
        let found = host.as_root(step, "", script::CHECK).await?;
        let found = Facts::read(&found.text());
        let own = env!("CARGO_PKG_VERSION");
        let there = found.get("version");
        if !is_older(there, own) {
            return Ok(None);
        }
        host.bring_all(arch, find_agent, &found).await?;
        host.as_root("starting the shim", "", script::INSTALL)
            .await?;
        host.info().await?;
        Ok(Some((there.to_owned(), own)))
    }

    /// Takes everything of ours from a host: shim, agents, files, containers, and the key at last. If the host has been
    /// prepared for another instance meanwhile, by another address of it, all that is that one's stays, and its name is
    /// the answer.
    ///
    /// # Errors
    /// [`HostError`]; some of it may be left then.
    pub async fn clear_host(
        &self,
        at: &Address,
        instance: &str,
        public_key: &str,
    ) -> Result<Option<String>, HostError> {
        let host = Host::enter(self, at).await?;
        let (_, blob) = key_parts(public_key)?;
        let vars = host.holder(instance, blob);
        let cleared = host
            .as_root("removing the shim", &vars, script::CLEAR)
            .await?;
        let told = Facts::read(&cleared.text());
        if told.get("key") != "kept" {
            let vars = format!("blob={}\n", quote(blob));
            host.as_user("removing the project's key", &vars, script::REMOVE_KEY)
                .await?;
        }
        let holder = told.get("holder");
        Ok((!holder.is_empty()).then(|| holder.to_owned()))
    }

    /// Starts the shim of a prepared host if it does not run: after a boot of a host without systemd.
    ///
    /// # Errors
    /// [`HostError`].
    pub async fn wake_host(&self, at: &Address) -> Result<(), HostError> {
        let host = Host::enter(self, at).await?;
        host.as_root("starting the shim", "", script::WAKE).await?;
        Ok(())
    }
}

impl<'a> Host<'a> {
    /// Logs in and looks whether the account can do what is needed.
    async fn enter(remote: &'a Remote, at: &'a Address) -> Result<Self, HostError> {
        let input = script::with("", script::PROBE);
        let output = remote.run(at, "sh -s", input, STEP_LIMIT).await?;
        let facts = Facts::read(&output.text());
        let remedy = "give the account passwordless sudo (`NOPASSWD: ALL` in /etc/sudoers.d), or log in as root";
        match facts.get("sudo") {
            "root" | "yes" => {}
            "none" => {
                return Err(HostError {
                    was_entered: false,
                    ..HostError::needs_help(format!(
                        "the account is not root and there is no sudo; {remedy}"
                    ))
                });
            }
            "password" => {
                return Err(HostError {
                    was_entered: false,
                    ..HostError::needs_help(format!("sudo wants a password; {remedy}"))
                });
            }
            _ => {
                return Err(HostError {
                    was_entered: false,
                    ..HostError::needs_help(format!(
                        "the account's login shell runs no commands: {}",
                        output.complaint()
                    ))
                });
            }
        }
        Ok(Self { remote, at, facts })
    }

    /// Who holds the host, as variables of scripts.
    fn holder(&self, instance: &str, blob: &str) -> String {
        let login = format!("{} {blob}", self.facts.get("uid"));
        format!("instance={}\nlogin={}\n", quote(instance), quote(&login))
    }

    fn root(&self, command: &str) -> String {
        match self.facts.get("uid") {
            "0" => command.to_owned(),
            _ => format!("sudo -n {command}"),
        }
    }

    async fn as_user(
        &self,
        step: &str,
        vars: &str,
        text: &str,
    ) -> Result<CommandOutput, HostError> {
        self.script("sh -s", step, vars, text).await
    }

    async fn as_root(
        &self,
        step: &str,
        vars: &str,
        text: &str,
    ) -> Result<CommandOutput, HostError> {
        self.script(&self.root("sh -s"), step, vars, text).await
    }

    async fn script(
        &self,
        shell: &str,
        step: &str,
        vars: &str,
        text: &str,
    ) -> Result<CommandOutput, HostError> {
        let output = self
            .run(shell, script::with(vars, text), STEP_LIMIT)
            .await?;
        if output.is_success() {
            return Ok(output);
        }
        Err(HostError::step(step, &output))
    }

    /// A command of an account that was entered before.
    async fn run(
        &self,
        command: &str,
        input: Bytes,
        limit: Duration,
    ) -> Result<CommandOutput, HostError> {
        let output = self.remote.run(self.at, command, input, limit).await;
        output.map_err(|error| HostError {
            was_entered: true,
            ..error.into()
        })
    }

    /// Writes a file that only root may read.
    async fn write(&self, path: &str, content: Bytes, limit: Duration) -> Result<(), HostError> {
        let command = self.root(&format!("sh -c 'umask 077 && cat > {path}'"));
        let output = self.run(&command, content, limit).await?;
        if output.is_success() {
            return Ok(());
        }
        Err(HostError::step(&format!("writing {path}"), &output))
    }

    async fn bring_all(
        &self,
        arch: &str,
        find_agent: &FindAgent,
        found: &Facts,
    ) -> Result<(), HostError> {
        for name in ["dstack-shim", "dstack-runner"] {
            let path = find_agent(arch, name).map_err(|folders| {
                HostError::needs_help(format!(
                    "there is no {name} for {arch} on the server (looked in {folders}); put the agents of that processor there"
                ))
            })?;
            self.bring(name, arch, &path, found).await?;
        }
        Ok(())
    }

    /// Uploads an agent, unless the very same file is there.
    async fn bring(
        &self,
        name: &str,
        arch: &str,
        path: &Path,
        found: &Facts,
    ) -> Result<(), HostError> {
        let file = path.to_owned();
        let read = tokio::task::spawn_blocking(move || {
            let content = std::fs::read(file)?;
            let mut sum = String::new();
            for byte in Sha256::digest(&content) {
                // Writing into a text cannot fail.
                write!(sum, "{byte:02x}").ok();
            }
            Ok::<_, std::io::Error>((content, sum))
        });
        let (content, sum) = match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => {
                return Err(HostError::needs_help(format!(
                    "cannot read {}: {error}",
                    path.display()
                )));
            }
            Err(error) => {
                return Err(HostError::needs_help(format!(
                    "cannot read {name}: {error}"
                )));
            }
        };
        if !is_for(&content, arch) {
            return Err(HostError::needs_help(format!(
                "{} on the server is no program for {arch}; put the agents of that processor there",
                path.display()
            )));
        }
        if found.get(name) == sum {
            return Ok(());
        }
        let needed = u64::try_from(content.len()).unwrap_or(u64::MAX) / 1024 + SPARE_KIB;
        if let Ok(free) = found.get("free_bin").parse::<u64>()
            && free < needed
        {
            return Err(HostError::needs_help(format!(
                "the disk is full: {} MiB are free in /usr/local/bin, {} MiB are needed",
                free / 1024,
                needed.div_ceil(1024)
            )));
        }
        let target = format!("/usr/local/bin/.{name}.new");
        self.write(&target, Bytes::from(content), UPLOAD_LIMIT)
            .await
    }

    /// What the shim tells about the host, once it does.
    async fn info(&self) -> Result<HostInfo, HostError> {
        let mut last = CommandOutput::default();
        for _ in 0..INFO_TRIES {
            let input = script::with("", script::INFO);
            let output = self.run(&self.root("sh -s"), input, STEP_LIMIT).await?;
            match output.status {
                Some(0) => {
                    return serde_json::from_slice(&output.stdout).map_err(|error| {
                        HostError::needs_help(format!(
                            "the shim's host_info.json cannot be read: {error}"
                        ))
                    });
                }
                Some(3) => {
                    return Err(HostError {
                        is_final: false,
                        ..HostError::step("the shim does not start", &output)
                    });
                }
                _ => last = output,
            }
        }
        Err(HostError::step(
            "the shim does not tell what the host has",
            &last,
        ))
    }
}

fn check_engine(found: &Facts, env: &BTreeMap<String, String>) -> Result<(), HostError> {
    if env
        .get("DSTACK_SHIM_RUNTIME")
        .is_some_and(|runtime| runtime != "docker")
        || env.contains_key("DOCKER_HOST")
    {
        return Ok(());
    }
    let without =
        "or set `DSTACK_SHIM_RUNTIME=process` in the fleet's `env` to run jobs without containers";
    match found.get("engine") {
        "there" => Ok(()),
        "silent" => Err(HostError::needs_help(format!(
            "Docker does not answer (`docker info` fails); start it, {without}"
        ))),
        _ => Err(HostError::needs_help(format!(
            "there is no Docker (no /var/run/docker.sock); install Docker Engine on the host, {without}"
        ))),
    }
}

/// Whether a file is a program for this processor, by the head that programs of Linux have.
fn is_for(file: &[u8], arch: &str) -> bool {
    let machine: u16 = if arch == "arm64" { 183 } else { 62 };
    file.starts_with(b"\x7fELF") && file.get(18..20) == Some(&machine.to_le_bytes()[..])
}

/// Whether the first version in a text is lower than `own`; not if there is none, or if they are no versions.
fn is_older(text: &str, own: &str) -> bool {
    let numbers = |text: &str| -> Option<Vec<u64>> {
        let word = text
            .split_ascii_whitespace()
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
        let word = word.split(['-', '+']).next().unwrap_or_default();
        word.split('.').map(|part| part.parse().ok()).collect()
    };
    match (numbers(text), numbers(own)) {
        (Some(there), Some(own)) => there < own,
        _ => false,
    }
}

/// The line as it may stand in a file, and its base64 part.
fn key_parts(line: &str) -> Result<(&str, &str), HostError> {
    let line = line.trim();
    let blob = line.split_ascii_whitespace().nth(1);
    match blob {
        Some(blob) if !line.contains(['\n', '\r']) => Ok((line, blob)),
        _ => Err(HostError {
            was_entered: false,
            ..HostError::needs_help("the project's public key is not one line of type and key")
        }),
    }
}

/// The shim's variables, in the common language of `sh` and systemd.
fn env_file(more: &BTreeMap<String, String>, uid: &str) -> String {
    let mut env = more.clone();
    let own = [
        ("DSTACK_SHIM_HOME", "/root/.dstack"),
        ("DSTACK_SHIM_SOCKET", SOCKET),
        ("DSTACK_SHIM_SOCKET_OWNER", uid),
        ("DSTACK_SHIM_BINARY_PATH", "/usr/local/bin/dstack-shim"),
        ("DSTACK_RUNNER_BINARY_PATH", "/usr/local/bin/dstack-runner"),
        ("DSTACK_SERVICE_MODE", "1"),
    ];
    env.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let mut text = String::new();
    for (name, value) in env {
        let mut escaped = String::with_capacity(value.len());
        for c in value.chars() {
            if matches!(c, '"' | '\\' | '$' | '`') {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        // Writing into a text cannot fail.
        writeln!(text, "{name}=\"{escaped}\"").ok();
    }
    text
}

#[cfg(test)]
mod tests;
