use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use dstack_remote::{
    Address, Config, HostKeys, KeyPair, MemoryHostKeys, Remote, RemoteError, RunnerAt, Secret,
    SshAddress,
};

use crate::bed::{Agent, Sshd, free_port};

const HEALTH: &str = r#"{"service": "dstack-runner", "version": "1"}"#;

struct Bed {
    key: KeyPair,
    sshd: Sshd,
    agent: Agent,
    remote: Remote,
    host_keys: Arc<MemoryHostKeys>,
}

impl Bed {
    fn start() -> Self {
        let key = KeyPair::generate("project").unwrap();
        let host_keys = Arc::new(MemoryHostKeys::default());
        let remote = Remote::new(Config {
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(2),
            host_keys: Arc::clone(&host_keys) as Arc<dyn HostKeys>,
            ..Config::default()
        });
        Self {
            sshd: Sshd::start(&key),
            agent: Agent::start(),
            key,
            remote,
            host_keys,
        }
    }

    fn address(&self) -> Address {
        Address::ssh(self.sshd.hop(&self.key))
    }

    async fn call(&self) -> Result<String, RemoteError> {
        self.agent.json(HEALTH);
        let health = self
            .remote
            .runner(&self.address(), self.agent.port)
            .healthcheck()
            .await?;
        Ok(health.unwrap().version)
    }
}

#[tokio::test]
async fn many_calls_at_once_share_one_connection() {
    let bed = Bed::start();
    let calls = futures_util::future::join_all((0..20).map(|_| bed.call())).await;
    assert!(
        calls.iter().all(|call| call.as_deref() == Ok("1")),
        "{calls:?}"
    );
    assert_eq!((bed.sshd.logins(), bed.remote.live_connections()), (1, 1));
    bed.remote.forget(&bed.address()).await;
    assert_eq!(bed.remote.live_connections(), 0);
    bed.call().await.unwrap();
    assert_eq!(bed.sshd.logins(), 2);
}

#[tokio::test]
async fn sockets_of_the_machine_are_reached_too() {
    let bed = Bed::start();
    bed.agent.json(HEALTH);
    let at = RunnerAt::Socket(bed.agent.socket.clone());
    bed.remote
        .runner(&bed.address(), at)
        .healthcheck()
        .await
        .unwrap()
        .unwrap();
    let error = bed
        .remote
        .runner(&bed.address(), RunnerAt::Socket("/no/such".into()))
        .stop()
        .await
        .unwrap_err();
    assert!(error.is_refused(), "{error:?}");
}

#[tokio::test]
async fn a_large_answer_passes_whole() {
    let bed = Bed::start();
    let message = "QUJD".repeat(2_000_000);
    bed.agent.json(&format!(
        r#"{{"job_logs": [{{"timestamp": 1, "message": "{message}"}}], "has_more": true}}"#
    ));
    let remote = Remote::new(Config {
        call_timeout: Duration::from_secs(60),
        ..Config::default()
    });
    let pulled = remote
        .runner(&bed.address(), bed.agent.port)
        .pull(0, None)
        .await
        .unwrap();
    assert!(
        pulled.job_logs[0].message == message,
        "{}",
        pulled.job_logs[0].message.len()
    );
}

#[tokio::test]
async fn a_broken_connection_is_made_anew() {
    let mut bed = Bed::start();
    bed.call().await.unwrap();
    bed.sshd.break_connections();
    assert_eq!(bed.call().await.as_deref(), Ok("1"));
    assert_eq!(bed.sshd.logins(), 2);
    // While the machine is away it is unreachable; afterwards the same client works again.
    bed.sshd.stop();
    let error = bed.call().await.unwrap_err();
    assert!(
        matches!(error, RemoteError::Unreachable { .. }),
        "{error:?}"
    );
    bed.sshd.start_again();
    bed.agent.json(HEALTH);
    let health = bed
        .remote
        .runner(&bed.address(), bed.agent.port)
        .healthcheck()
        .await;
    assert!(health.unwrap().is_some());
}

#[tokio::test]
async fn a_key_that_is_not_authorized_is_refused() {
    let bed = Bed::start();
    let other = KeyPair::generate("other").unwrap();
    let address = Address::ssh(bed.sshd.hop(&other));
    let error = bed.remote.shim(&address).tasks().await.unwrap_err();
    let RemoteError::KeyRefused { user, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*user, bed.sshd.hop(&other).username);
    assert!(!error.to_string().contains("PRIVATE"), "{error}");
}

#[tokio::test]
async fn a_port_nobody_listens_at_is_refused_and_the_connection_stays() {
    let bed = Bed::start();
    let port = free_port();
    for _ in 0..2 {
        let health = bed.remote.runner(&bed.address(), port).healthcheck().await;
        assert_eq!(health, Ok(None));
    }
    assert_eq!(bed.sshd.logins(), 1);
}

#[tokio::test]
async fn a_new_host_key_is_recorded_and_another_one_refused() {
    let mut bed = Bed::start();
    bed.call().await.unwrap();
    let machine = format!("127.0.0.1:{}", bed.sshd.port);
    let recorded = bed.host_keys.recorded(&machine).unwrap();
    assert!(recorded.starts_with("ssh-ed25519 "), "{recorded}");
    bed.sshd.rebuild();
    let error = bed.call().await.unwrap_err();
    let RemoteError::HostKeyChanged {
        shown, recorded, ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert!(
        shown.starts_with("SHA256:") && recorded.starts_with("SHA256:") && shown != recorded,
        "{error}"
    );
    // Another machine at the same address is a new one.
    let mut hop = bed.sshd.hop(&bed.key);
    hop.machine = Some("i-2@there".to_owned());
    let health = bed
        .remote
        .runner(&Address::ssh(hop), bed.agent.port)
        .healthcheck()
        .await;
    assert!(health.unwrap().is_some());
}

#[tokio::test]
async fn a_machine_is_reached_through_its_jump_host() {
    let bed = Bed::start();
    let head_key = KeyPair::generate("head").unwrap();
    let head = Sshd::start(&head_key);
    let address = Address::Ssh(SshAddress {
        target: bed.sshd.hop(&bed.key),
        shim_socket: None,
        jumps: vec![head.hop(&head_key)],
    });
    bed.agent.json(HEALTH);
    let health = bed
        .remote
        .runner(&address, bed.agent.port)
        .healthcheck()
        .await;
    assert!(health.unwrap().is_some());
    assert_eq!((head.logins(), bed.sshd.logins()), (1, 1));
    head.break_connections();
    bed.agent.json(HEALTH);
    assert!(
        bed.remote
            .runner(&address, bed.agent.port)
            .healthcheck()
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!((head.logins(), bed.sshd.logins()), (2, 2));
}

#[tokio::test]
async fn a_machine_that_does_not_answer_is_unreachable_in_time() {
    let bed = Bed::start();
    // Takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = Remote::new(Config {
        connect_timeout: Duration::from_millis(300),
        ..Config::default()
    });
    let mut hop = bed.sshd.hop(&bed.key);
    hop.port = silent.local_addr().unwrap().port();
    let address = Address::ssh(hop);
    let calls = (0..10).map(|_| {
        let shim = remote.shim(&address);
        async move { shim.tasks().await }
    });
    for got in futures_util::future::join_all(calls).await {
        let error = got.unwrap_err();
        assert!(
            matches!(&error, RemoteError::Unreachable { reason, .. } if reason.starts_with("no connection within")),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_key_that_is_no_key_is_invalid() {
    let bed = Bed::start();
    let mut hop = bed.sshd.hop(&bed.key);
    hop.private_key = "not a key".into();
    let error = bed
        .remote
        .shim(&Address::ssh(hop))
        .tasks()
        .await
        .unwrap_err();
    assert!(matches!(error, RemoteError::Invalid(_)), "{error:?}");
}

#[tokio::test]
async fn openssh_takes_our_keys() {
    let bed = Bed::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    std::fs::write(&path, bed.key.private.expose()).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let output = std::process::Command::new("ssh-keygen")
        .arg("-y")
        .arg("-f")
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().trim(),
        bed.key.public
    );
    let hop = bed.sshd.hop(&bed.key);
    let status = std::process::Command::new("ssh")
        .args([
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
        ])
        .arg("-i")
        .arg(&path)
        .args([
            "-p",
            &hop.port.to_string(),
            &format!("{}@127.0.0.1", hop.username),
            "true",
        ])
        .status()
        .unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn a_command_has_input_outputs_and_a_status() {
    let bed = Bed::start();
    let run = |command: &'static str, input: Vec<u8>, limit: u64| {
        let (remote, address) = (bed.remote.clone(), bed.address());
        async move {
            let limit = Duration::from_secs(limit);
            remote.run(&address, command, input.into(), limit).await
        }
    };
    let got = run("cat; echo oh >&2; exit 7", b"in".to_vec(), 10)
        .await
        .unwrap();
    assert_eq!((got.status, got.text().as_str()), (Some(7), "in"));
    assert_eq!((got.complaint().as_str(), got.is_success()), ("oh", false));
    // More than a window of the connection, both ways at once.
    let big = vec![b'x'; 8 << 20];
    let got = run("tee /dev/stderr | wc -c", big.clone(), 60)
        .await
        .unwrap();
    assert_eq!(got.text().trim(), big.len().to_string());
    assert_eq!(
        got.stderr.len(),
        1 << 20,
        "only the start of an output is kept"
    );
    // Whoever does not read its input is not waited for.
    let got = run("exit 0", big, 10).await.unwrap();
    assert!(got.is_success(), "{got:?}");
    let error = run("sleep 60", Vec::new(), 1).await.unwrap_err();
    assert!(matches!(error, RemoteError::TimedOut { .. }), "{error:?}");
    assert_eq!(bed.sshd.logins(), 1, "all over one connection");
}

#[tokio::test]
async fn rsa_and_ecdsa_keys_open_machines_too() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, format) in [
        ("rsa", "PEM"),
        ("rsa", "RFC4716"),
        ("ecdsa", "RFC4716"),
        ("ecdsa", "PEM"),
    ] {
        let file = folder.path().join(format!("{kind}{format}"));
        let mut keygen = std::process::Command::new("ssh-keygen");
        keygen
            .args(["-q", "-N", "", "-m", format, "-t", kind, "-f"])
            .arg(&file);
        assert!(keygen.status().unwrap().success());
        let key = KeyPair {
            private: Secret::new(std::fs::read_to_string(&file).unwrap()),
            public: std::fs::read_to_string(file.with_extension("pub")).unwrap(),
        };
        let sshd = Sshd::start(&key);
        let remote = Remote::new(Config::default());
        let address = Address::ssh(sshd.hop(&key));
        let limit = Duration::from_secs(10);
        let got = remote.run(&address, "true", Vec::new().into(), limit).await;
        assert!(
            got.as_ref().is_ok_and(|got| got.is_success()),
            "{kind} {format}: {got:?}"
        );
    }
}

/// An agent of OpenSSH that ends with this value.
struct SshAgent {
    child: std::process::Child,
    socket: std::path::PathBuf,
}

impl SshAgent {
    fn start(folder: &std::path::Path) -> Self {
        let socket = folder.join("agent.sock");
        let mut agent = std::process::Command::new("ssh-agent");
        agent.arg("-D").arg("-a").arg(&socket);
        let child = agent.stdout(std::process::Stdio::null()).spawn().unwrap();
        crate::bed::wait_for("the agent", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        Self { child, socket }
    }

    fn add(&self, file: &std::path::Path) {
        let mut add = std::process::Command::new("ssh-add");
        add.arg("-q").arg(file).env("SSH_AUTH_SOCK", &self.socket);
        assert!(add.status().unwrap().success());
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test]
async fn a_public_key_opens_a_machine_by_the_agent_that_has_the_other_half() {
    let folder = tempfile::tempdir().unwrap();
    let agent = SshAgent::start(folder.path());
    let remote = |socket| {
        Remote::new(Config {
            agent: socket,
            ..Config::default()
        })
    };
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let file = folder.path().join(kind);
        let mut make = std::process::Command::new("ssh-keygen");
        make.args(["-q", "-N", "", "-t", kind, "-f"]).arg(&file);
        assert!(make.status().unwrap().success());
        let public = std::fs::read_to_string(file.with_extension("pub")).unwrap();
        let pair = KeyPair {
            private: Secret::new(public.trim()),
            public,
        };
        let sshd = Sshd::start(&pair);
        let at = Address::ssh(sshd.hop(&pair));
        let run = |remote: Remote| {
            let at = at.clone();
            async move {
                let limit = Duration::from_secs(10);
                remote.run(&at, "echo in", bytes::Bytes::new(), limit).await
            }
        };
        let with_agent = || remote(Some(agent.socket.clone()));
        let before = run(with_agent()).await.unwrap_err().to_string();
        assert!(before.contains("does not sign"), "{kind}: {before}");
        agent.add(&file);
        assert_eq!(run(with_agent()).await.unwrap().text(), "in\n", "{kind}");
        let without = run(remote(None)).await.unwrap_err().to_string();
        assert!(without.contains("SSH_AUTH_SOCK"), "{kind}: {without}");
    }
}
