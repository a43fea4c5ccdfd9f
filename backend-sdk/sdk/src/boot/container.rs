//! Start of a container whose image knows nothing of us.

use dstack_backend_types::CpuArchitecture;

use super::{AgentUrls, RUNNER_HTTP_PORT, RUNNER_SSH_PORT};

/// Commands for `/bin/sh -c`, joined by ` && `: make sure that an SSH server and curl are there, run `before_runner`, fetch the
/// runner and become it.
///
/// Works in images with apt-get, yum or apk; in others it ends with exit code 11 if something is missing.
pub fn container_commands(
    urls: &AgentUrls,
    arch: CpuArchitecture,
    authorized_keys: &[String],
    before_runner: &[String],
) -> Vec<String> {
    const RUNNER: &str = "/usr/local/bin/dstack-runner";
    let mut commands: Vec<String> = [
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
    ]
    .map(str::to_owned)
    .to_vec();
    commands.extend_from_slice(before_runner);
    let url = urls.runner_url(arch);
    commands.push(format!(
        "curl --connect-timeout 60 --max-time 240 --retry 1 --output {RUNNER} {}",
        quote(&url)
    ));
    commands.push(format!("chmod +x {RUNNER}"));
    let mut start = format!(
        "{RUNNER} --log-level 6 start --temp-dir /tmp/runner --http-port {RUNNER_HTTP_PORT} --ssh-port {RUNNER_SSH_PORT}"
    );
    for key in authorized_keys {
        start.push_str(" --ssh-authorized-key ");
        start.push_str(&quote(key));
    }
    commands.push(start);
    commands
}

/// One word for a POSIX shell. Plain words stay as they are.
pub fn quote(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\"'\"'"))
}
