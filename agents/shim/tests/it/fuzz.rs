//! Requests nobody would send, at every endpoint: none ends the shim or makes a file outside of its folders.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::support::{Shim, eventually, fake};

const CASES: u32 = 400;
/// A root whose changes can be listed afterwards.
const OVERLAY: &str = "mkdir $NEW/up $NEW/work $NEW/root; \
    mount -t overlay overlay -o lowerdir=/,upperdir=$NEW/up,workdir=$NEW/work $NEW/root; \
    mount --rbind /dev $NEW/root/dev; mount -t proc proc $NEW/root/proc; mkdir -p $NEW/root$KEPT; \
    mount --rbind $KEPT $NEW/root$KEPT; mkdir -p $NEW/root$BIN; mount --bind $BIN $NEW/root$BIN; \
    mkdir -p $NEW/root$RUNNER; mount --bind $RUNNER $NEW/root$RUNNER; \
    set -- chroot $NEW/root \"$@\"";

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("../../../etc/x".to_owned()),
        Just("/etc/x".to_owned()),
        Just("a\0b".to_owned()),
        Just("root".to_owned()),
        Just("x".repeat(5000)),
        "[a-z]{1,8}",
        "\\PC{0,12}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,12}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// A task in which any fields are something else. The process runtime gets no GPUs here, and mounts of directories of
/// the machine stay in one place: those are made on purpose.
fn task_config() -> impl Strategy<Value = Value> {
    const FIELDS: [&str; 17] = [
        "id",
        "name",
        "image_name",
        "container_user",
        "privileged",
        "gpu",
        "cpu",
        "memory",
        "shm_size",
        "network_mode",
        "volumes",
        "volume_mounts",
        "gpu_devices",
        "host_ssh_user",
        "host_ssh_keys",
        "container_ssh_keys",
        "registry_password",
    ];
    let changes = prop::collection::vec((prop::sample::select(&FIELDS[..]), value()), 0..4);
    let volume = (
        word(),
        word(),
        prop::sample::select(vec!["aws", "gcp", "x"]),
    );
    let mount = (word(), word());
    (changes, prop::option::of(volume), prop::option::of(mount)).prop_map(|(changes, volume, mount)| {
        let mut config = json!({"id": uuid::Uuid::new_v4().to_string(), "name": "fuzz", "image_name": "i"});
        if let Some((name, id, backend)) = volume {
            // A device name that is missing, so that nobody waits for a disk.
            let device = if backend == "gcp" { Value::Null } else { json!(id) };
            if backend != "aws" {
                config["volumes"] = json!([{"name": name, "volume_id": id, "backend": backend, "device_name": device}]);
            }
        }
        if let Some((name, path)) = mount {
            // Where a directory appears is whoever submits to say, and without a container it is made there.
            let path = if path.starts_with('/') { format!("/instance{path}") } else { path };
            config["instance_mounts"] = json!([{"instance_path": format!("/instance/{}", name.replace(['/', '\0', '.'], "_")), "path": path}]);
        }
        for (field, value) in changes {
            if field != "volumes" {
                config[field] = value;
            }
        }
        config
    })
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let path = prop_oneof![
        prop::sample::select(vec![
            "/api/healthcheck",
            "/api/instance/health",
            "/api/instance/info",
            "/api/components",
            "/api/components/install",
            "/api/tasks",
            "/api/tasks/x",
            "/api/tasks/%2e%2e%2fx",
            "/api/tasks/x/terminate",
            "/api/tasks/x/remove",
            "/metrics/tasks/x",
            "/",
            "/api/tasks/%00?wait=%zz&timeout_ms=-1",
            "/api/tasks/?wait=running",
            "/api/shutdown",
        ])
        .prop_map(str::to_owned),
        "/[!-~]{0,40}".prop_map(|path| path.replace([' ', '#'], "")),
    ];
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        value().prop_map(|value| value.to_string().into_bytes()),
        task_config().prop_map(|value| value.to_string().into_bytes()),
        (word(), word())
            .prop_map(|(name, url)| json!({"name": name, "url": url}).to_string().into_bytes()),
        Just(vec![b'['; 100_000]),
    ];
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "DELETE", "HEAD"]);
    (method, path, body).prop_map(|(method, path, body)| {
        // The order to end comes at the end.
        let is_order = matches!(serde_json::from_slice(&body), Ok(Value::Null | Value::Object(_)));
        let path = if path.contains("shutdown") && is_order { "/".to_owned() } else { path };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.into_bytes(), body].concat()
    })
}

fn submission() -> impl Strategy<Value = Vec<u8>> {
    task_config().prop_map(|config| {
        let body = config.to_string();
        format!("POST /api/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .into_bytes()
    })
}

/// Bytes that are no request, or only its beginning.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let cut = (request().boxed(), any::<prop::sample::Index>());
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        cut.prop_map(|(mut bytes, at)| {
            bytes.truncate(at.index(bytes.len()));
            bytes
        }),
    ]
}

fn send(shim: &Shim, bytes: &[u8]) -> String {
    let mut stream = shim.connect();
    // A refusal may come, and the connection be closed, before all was sent.
    drop(stream.write_all(bytes));
    drop(stream.shutdown(std::net::Shutdown::Write));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

fn files_below(dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files_below(&path, found);
        }
        found.insert(path);
    }
}

#[test]
fn no_request_ends_the_shim_or_leaves_its_folders() {
    assert!(
        nix::unistd::Uid::effective().is_root(),
        "this test needs root: run it with sudo"
    );
    let fake = fake("echo 1 >$port_file.tmp; mv $port_file.tmp $port_file; exec sleep 1");
    let mut shim = Shim::new("process", &fake.runner);
    let program = Path::new(env!("CARGO_BIN_EXE_dstack-shim"));
    shim.machine = Some(OVERLAY.to_owned());
    let text = |path: &Path| path.display().to_string();
    shim.env = vec![
        ("KEPT", text(shim.home.path())),
        ("BIN", text(program.parent().unwrap())),
        ("RUNNER", text(fake.dir.path())),
    ];
    shim.launch();
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(
            &prop_oneof![4 => request().boxed(), 3 => submission().boxed(), 1 => noise().boxed()],
            |bytes| {
                let answer = send(&shim, &bytes);
                prop_assert!(
                    answer.starts_with("HTTP/1.1 ") || answer.is_empty(),
                    "{answer}"
                );
                prop_assert!(
                    !answer.ends_with("\r\n\r\nInternal Server Error\n"),
                    "{answer}"
                );
                Ok(())
            },
        )
        .unwrap();
    // All that was started comes to rest, and ends.
    eventually("no task is in the making", || {
        let tasks = shim.call("GET /api/tasks", None).json();
        let tasks = tasks["tasks"].as_array().unwrap();
        tasks
            .iter()
            .all(|task| task["status"] == "running" || task["status"] == "terminated")
    });
    assert!(!shim.stderr().contains("panicked at"), "{}", shim.stderr());
    let changed = shim.new_file_system().join("up");
    let mut found = BTreeSet::new();
    files_below(&changed, &mut found);
    let allowed = [
        shim.home.path().to_owned(),
        fake.dir.path().to_owned(),
        program.parent().unwrap().to_owned(),
        PathBuf::from("/instance"),
    ];
    let outside: Vec<_> = found
        .iter()
        .map(|path| Path::new("/").join(path.strip_prefix(&changed).unwrap()))
        .filter(|path| {
            !allowed
                .iter()
                .any(|dir| path.starts_with(dir) || dir.starts_with(path))
        })
        .collect();
    assert!(outside.is_empty(), "{outside:?}");
    let end = json!({"force": true});
    assert_eq!(shim.call("POST /api/shutdown", Some(&end)).status, 200);
    assert_eq!(shim.wait(), Some(0));
}
