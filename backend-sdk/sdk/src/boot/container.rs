//! Start of a container whose image knows nothing of us.

use dstack_backend_types::{BackendError, CpuArchitecture};

use super::{AgentUrls, RUNNER_HTTP_PORT, RUNNER_SSH_PORT};
use crate::host;

/// What a container is started with. Begin with [`ContainerSetup::new`].
///
/// Works in images with apt-get, yum or apk; in others it ends with exit code 11 if something is missing. Run it as root:
/// providers that take a user are told so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSetup {
    /// Where the runner comes from.
    pub urls: AgentUrls,
    /// Processor family of the machine.
    pub arch: CpuArchitecture,
    /// Public keys that may log in to the job.
    pub authorized_keys: Vec<String>,
    /// Commands of the backend that come right before the runner is fetched.
    pub before_runner: Vec<String>,
    /// Folder of the runner's program; `/usr/local/bin`.
    pub bin: String,
}

impl ContainerSetup {
    /// The usual set-up.
    pub fn new(urls: AgentUrls, arch: CpuArchitecture, authorized_keys: Vec<String>) -> Self {
        Self {
            urls,
            arch,
            authorized_keys,
            before_runner: Vec::new(),
            bin: "/usr/local/bin".to_owned(),
        }
    }

    /// All commands: make sure that an SSH server and curl are there, fetch the runner and become it.
    pub fn commands(&self) -> Vec<String> {
        let runner = format!("{}/dstack-runner", self.bin);
        let mut commands: Vec<String> = PREPARE.map(str::to_owned).to_vec();
        commands.extend_from_slice(&self.before_runner);
        commands.push(format!(
            "curl --connect-timeout 60 --max-time 240 --retry 1 --output {runner} {}",
            quote(&self.urls.runner_url(self.arch))
        ));
        commands.push(format!("chmod +x {runner}"));
        let mut start = format!(
            "{runner} --log-level 6 start --temp-dir /tmp/runner --http-port {RUNNER_HTTP_PORT} --ssh-port {RUNNER_SSH_PORT}"
        );
        for key in &self.authorized_keys {
            start.push_str(" --ssh-authorized-key ");
            start.push_str(&quote(key));
        }
        commands.push(start);
        commands
    }

    /// The argument of `/bin/sh -c`; about 1.2 KB and the keys.
    pub fn script(&self) -> String {
        self.commands().join(" && ")
    }
}

const PREPARE: [&str; 10] = [
    "( :",
    // Libraries of the image must not leak into the system's own tools.
    "unset LD_LIBRARY_PATH && unset LD_PRELOAD",
    r#"exists() { command -v "$1" > /dev/null 2>&1; }"#,
    "install_pkg() { NAME=Distribution; test -f /etc/os-release && . /etc/os-release; echo $NAME not supported; exit 11; }",
    r#"if exists apt-get; then install_pkg() { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y "$1"; }; fi"#,
    r#"if exists yum; then install_pkg() { yum install -y "$1"; }; fi"#,
    r#"if exists apk; then install_pkg() { apk add -U "$1"; }; fi"#,
    "if ! exists sshd; then install_pkg openssh-server; fi",
    "if ! exists curl; then install_pkg curl; fi",
    ": )",
];

/// [`ContainerSetup::commands`] of the usual set-up with `before_runner`.
pub fn container_commands(
    urls: &AgentUrls,
    arch: CpuArchitecture,
    authorized_keys: &[String],
    before_runner: &[String],
) -> Vec<String> {
    let mut setup = ContainerSetup::new(urls.clone(), arch, authorized_keys.to_vec());
    setup.before_runner = before_runner.to_vec();
    setup.commands()
}

/// Where containers download the runner from. Unlike a machine, a container cannot be brought it over SSH.
///
/// # Errors
/// `invalid` if the host has no address that others can reach; `unsupported` outside of a host.
pub fn container_agent_urls() -> Result<AgentUrls, BackendError> {
    host::agent_urls()?.ok_or_else(|| {
        BackendError::invalid(
            "containers download the runner, and this server has no address for that: set DSTACK_SERVER_URL to one that they can reach",
        )
    })
}

/// One word for a POSIX shell. Plain words stay as they are.
pub fn quote(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\"'\"'"))
}
