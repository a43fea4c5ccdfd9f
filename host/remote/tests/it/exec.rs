//! Commands over connections of their own, against a real SSH server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dstack_remote::{
    Exec, ExecHop, HostKeyRule, HostKeys, KeyPair, MemoryHostKeys, RemoteError, Secret, exec,
};

use crate::bed::{Sshd, free_port};

fn hop(sshd: &Sshd, key: &KeyPair) -> ExecHop {
    let hop = sshd.hop(key);
    ExecHop {
        host: hop.host,
        port: hop.port,
        username: hop.username,
        private_key: Some(hop.private_key),
        password: None,
        host_key: HostKeyRule::Any,
    }
}

fn order(target: ExecHop, command: Option<&str>, input: &str) -> Exec {
    Exec {
        jumps: Vec::new(),
        target,
        command: command.map(str::to_owned),
        input: input.to_owned().into(),
        max_output: 1 << 20,
        connect_limit: Duration::from_secs(10),
    }
}

#[tokio::test]
async fn commands_and_scripts_tell_everything() {
    let key = KeyPair::generate("mine").unwrap();
    let sshd = Sshd::start(&key);
    let got = exec(order(
        hop(&sshd, &key),
        Some("cat; echo oops >&2; exit 3"),
        "input",
    ))
    .await;
    let got = got.unwrap();
    assert_eq!((got.status, got.signal.as_deref()), (Some(3), None));
    assert_eq!(
        (got.stdout.as_slice(), got.stderr.as_slice()),
        (&b"input"[..], &b"oops\n"[..])
    );
    assert!(got.host_key.starts_with("ssh-ed25519 "), "{}", got.host_key);
    assert!(!got.is_truncated);
    // A login shell reads its commands.
    let got = exec(order(hop(&sshd, &key), None, "echo one\nexit 4\n"))
        .await
        .unwrap();
    assert_eq!(got.status, Some(4));
    assert!(
        String::from_utf8_lossy(&got.stdout).contains("one"),
        "{got:?}"
    );
    let got = exec(order(hop(&sshd, &key), Some("kill -TERM $$"), ""))
        .await
        .unwrap();
    assert_eq!((got.status, got.signal.as_deref()), (None, Some("TERM")));
    let mut much = order(hop(&sshd, &key), Some("head -c 3000000 /dev/zero"), "");
    much.max_output = 1000;
    let got = exec(much).await.unwrap();
    assert_eq!((got.stdout.len(), got.is_truncated), (1000, true));
}

#[tokio::test]
async fn a_way_through_other_servers() {
    let (outer_key, inner_key) = (
        KeyPair::generate("o").unwrap(),
        KeyPair::generate("i").unwrap(),
    );
    let (outer, inner) = (Sshd::start(&outer_key), Sshd::start(&inner_key));
    let mut what = order(hop(&inner, &inner_key), Some("echo there"), "");
    what.jumps = vec![hop(&outer, &outer_key)];
    assert_eq!(exec(what).await.unwrap().stdout, b"there\n");
    assert_eq!((outer.logins(), inner.logins()), (1, 1));
}

#[tokio::test]
async fn host_keys_are_held_to_as_asked() {
    let key = KeyPair::generate("mine").unwrap();
    let mut sshd = Sshd::start(&key);
    let shown = exec(order(hop(&sshd, &key), Some("true"), ""))
        .await
        .unwrap()
        .host_key;
    let with = |rule: HostKeyRule, sshd: &Sshd| {
        let target = ExecHop {
            host_key: rule,
            ..hop(sshd, &key)
        };
        exec(order(target, Some("true"), ""))
    };
    let keys: Arc<dyn HostKeys> = Arc::new(MemoryHostKeys::default());
    let recorded = || HostKeyRule::Recorded("login".to_owned(), Arc::clone(&keys));
    with(HostKeyRule::Only(format!("{shown} a comment")), &sshd)
        .await
        .unwrap();
    with(recorded(), &sshd).await.unwrap();
    assert_eq!(keys.recorded("login").as_deref(), Some(shown.as_str()));
    sshd.rebuild();
    for rule in [HostKeyRule::Only(shown), recorded()] {
        let error = with(rule, &sshd).await.unwrap_err();
        assert!(
            matches!(error, RemoteError::HostKeyChanged { .. }),
            "{error:?}"
        );
    }
    with(HostKeyRule::Any, &sshd).await.unwrap();
}

#[tokio::test]
async fn who_is_not_reached_or_refuses_is_named() {
    let (key, other) = (
        KeyPair::generate("mine").unwrap(),
        KeyPair::generate("other").unwrap(),
    );
    let sshd = Sshd::start(&key);
    let error = exec(order(hop(&sshd, &other), Some("true"), ""))
        .await
        .unwrap_err();
    assert!(matches!(error, RemoteError::KeyRefused { .. }), "{error:?}");
    let mut target = hop(&sshd, &key);
    target.private_key = None;
    target.password = Some(Secret::new("wrong"));
    let error = exec(order(target, Some("true"), "")).await.unwrap_err();
    assert!(matches!(error, RemoteError::KeyRefused { .. }), "{error:?}");
    let mut target = hop(&sshd, &key);
    target.private_key = Some(Secret::new("hush"));
    let error = exec(order(target, Some("true"), "")).await.unwrap_err();
    assert!(matches!(error, RemoteError::Invalid(_)), "{error:?}");
    assert!(!error.to_string().contains("hush"), "{error}");
    let mut target = hop(&sshd, &key);
    target.port = free_port();
    let error = exec(order(target, Some("true"), "")).await.unwrap_err();
    assert!(
        matches!(error, RemoteError::Unreachable { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn what_is_dropped_ends() {
    let key = KeyPair::generate("mine").unwrap();
    let sshd = Sshd::start(&key);
    let begun = Instant::now();
    let running = exec(order(hop(&sshd, &key), Some("sleep 600"), ""));
    assert!(
        tokio::time::timeout(Duration::from_secs(1), running)
            .await
            .is_err()
    );
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(
        exec(order(hop(&sshd, &key), Some("echo on"), ""))
            .await
            .unwrap()
            .stdout,
        b"on\n"
    );
}
