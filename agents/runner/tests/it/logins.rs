//! The SSH server in the container.

use std::net::TcpListener;
use std::process::Command;

use serde_json::json;

use crate::bed::{Bed, job, wait_for};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn keys_log_in_as_root_and_as_locked_users_with_the_jobs_environment() {
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "a,b", "-f"])
        .arg(&key)
        .status()
        .unwrap();
    assert!(made.success());
    let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    let port = free_port();
    let bed = Bed::with(
        &[
            "--ssh-port",
            &port.to_string(),
            "--ssh-authorized-key",
            public.trim(),
        ],
        "mkdir -p root/run/sshd",
    );
    let ssh = |user: &str, command: &str| {
        let mut ssh = Command::new("ssh");
        ssh.args([
            "-F",
            "none",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "BatchMode=yes",
            "-i",
        ]);
        ssh.arg(&key).args([
            "-p",
            &port.to_string(),
            &format!("{user}@127.0.0.1"),
            command,
        ]);
        let output = ssh.output().unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    };
    wait_for("the ssh server", || ssh("root", "true"));
    let mut spec = job("echo ready; sleep 1000");
    spec["run"] = json!({"run_spec": {"run_name": "my-run"}});
    spec["job_spec"]["working_dir"] = json!("/tmp");
    bed.start_job(&spec);
    bed.pull_until(|so_far| so_far.text().contains("ready"));
    assert_eq!(ssh("app", "id -un").as_deref(), Some("app\n"));
    assert_eq!(
        ssh("root", "sh -lc 'echo $DSTACK_RUN_NAME; pwd'").as_deref(),
        Some("profile-was-read\nmy-run\n/tmp\n")
    );
    let config = bed.read("/dstack/ssh/conf/sshd_config");
    for line in [
        "LogLevel INFO",
        &format!("Port {port}"),
        "PidFile none",
        "Subsystem sftp internal-sftp",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM yes",
        "AuthorizedKeysFile /dstack/ssh/conf/authorized_keys .ssh/authorized_keys",
        "AcceptEnv LANG LC_* COLORTERM NO_COLOR",
        "ClientAliveInterval 30",
        "ClientAliveCountMax 4",
        "HostKey /dstack/ssh/conf/ssh_host_ecdsa_key",
        "HostKey /dstack/ssh/conf/ssh_host_ed25519_key",
    ] {
        assert!(
            config.lines().any(|found| found == line),
            "{line} is missing:\n{config}"
        );
    }
    assert_eq!(bed.read("/dstack/ssh/conf/authorized_keys"), public);
}
