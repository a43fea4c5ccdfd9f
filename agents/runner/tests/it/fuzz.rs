//! Requests nobody would send, at every endpoint: none ends the runner or makes a file where none belongs.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::bed::Bed;

const REQUESTS: u32 = 400;
/// Jobs are run to their end, each in a runner of its own.
const JOBS: u32 = 12;

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("../../../etc/x".to_owned()),
        Just("/etc/x".to_owned()),
        Just("~/../../x".to_owned()),
        Just("a\0b".to_owned()),
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

/// A submission in which any fields are something else. Paths that a user may choose freely stay in one place.
fn submission() -> impl Strategy<Value = Value> {
    const FIELDS: [&str; 16] = [
        "run",
        "job_submission",
        "cluster_info",
        "secrets",
        "repo_credentials",
        "log_quota_hour",
        "run_spec",
        "job_spec/env",
        "job_spec/max_duration",
        "job_spec/ssh_key",
        "job_spec/repo_data",
        "job_spec/repo_exists_action",
        "job_spec/job_num",
        "job_spec/jobs_per_replica",
        "job_spec/single_branch",
        "job_spec/user",
    ];
    let changes = prop::collection::vec((prop::sample::select(&FIELDS[..]), value()), 0..4);
    let archive = prop::option::of((word(), "[a-z./~]{1,12}"));
    let repo = prop::sample::select(vec!["virtual", "local", "remote", "x", ""]);
    (changes, archive, repo, word()).prop_map(|(changes, archive, repo, id)| {
        let mut spec = json!({
            "run": {"run_spec": {"run_name": "fuzz", "repo_id": id}},
            "job_spec": {
                "commands": ["/bin/sh", "-c", "true"], "working_dir": "/allowed/work",
                "repo_dir": "/allowed/repo", "repo_data": {"repo_type": repo}, "jobs_per_replica": 1
            },
        });
        if let Some((id, path)) = archive {
            spec["job_spec"]["file_archives"] =
                json!([{"id": id, "path": format!("/allowed/files/{}", path.replace("..", ""))}]);
        }
        for (field, value) in changes {
            match field.split_once('/') {
                Some((outer, inner)) => spec[outer][inner] = value,
                None => spec[field] = value,
            }
        }
        spec
    })
}

/// A tar as somebody with bad intent would write it, or bytes that are none.
fn archive() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        "[a-z]{1,4}(/[a-z]{1,4}){0,2}",
        "(\\.\\./){1,6}[a-z]{1,4}",
        "/[a-z]{1,4}",
        "[a-z]/(\\.\\./){1,6}[a-z]",
        Just("l/evil".to_owned()),
    ];
    let link = prop_oneof![
        Just("/".to_owned()),
        Just("/etc".to_owned()),
        Just("../../..".to_owned()),
        "[a-z]{1,4}",
    ];
    let kind = prop::sample::select(b"012345678LKxgS7".to_vec());
    let size = prop_oneof![
        Just(3u64),
        Just(0),
        any::<u64>().prop_map(|size| size % (1 << 40))
    ];
    let entry = (
        prop_oneof![Just("l".to_owned()), name],
        kind,
        link,
        size,
        any::<u16>(),
    );
    let tar = prop::collection::vec(entry, 0..6).prop_map(|entries| {
        let mut bytes = Vec::new();
        for (name, kind, link, size, mode) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(u32::from(mode) & 0o777);
            header.set_size(size);
            let gnu = header.as_gnu_mut().unwrap();
            gnu.typeflag = [kind];
            gnu.name[..name.len()].copy_from_slice(name.as_bytes());
            gnu.linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_cksum();
            bytes.extend_from_slice(header.as_bytes());
            if size == 3 {
                let mut block = [0; 512];
                block[..3].copy_from_slice(b"abc");
                bytes.extend_from_slice(&block);
            }
        }
        bytes.extend([0; 1024]);
        bytes
    });
    prop_oneof![4 => tar, 1 => prop::collection::vec(any::<u8>(), 0..2000)]
}

fn multipart() -> impl Strategy<Value = (String, Vec<u8>)> {
    let boundary = prop_oneof![Just("B".to_owned()), "[ -~]{0,10}"];
    let field = prop_oneof![3 => Just("archive".to_owned()), 1 => word()];
    let end = prop::sample::select(vec!["\r\n--B--\r\n", "\r\n--B\r\n", "", "\r\n--B"]);
    (boundary, field, word(), archive(), end).prop_map(|(boundary, field, file, content, end)| {
        let head = format!(
            "--B\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{file}\"\r\n\r\n"
        );
        let boundary: String = boundary.chars().filter(|c| !c.is_control()).collect();
        let kind = format!("Content-Type: multipart/form-data; boundary={boundary}\r\n");
        (kind, [head.as_bytes(), &content, end.as_bytes()].concat())
    })
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let path = prop_oneof![
        prop::sample::select(vec![
            "/api/healthcheck",
            "/api/submit",
            "/api/upload_archive",
            "/api/upload_code",
            "/api/pull",
            "/api/pull?timestamp=9223372036854775807",
            "/api/pull?timestamp=-9223372036854775808",
            "/api/pull?timestamp=99999999999999999999",
            "/api/pull?wait_ms=-5&timestamp=%zz",
            "/api/stop",
            "/api/metrics",
            "/logs_ws",
            "/logs_ws?start_time=2026-02-30T25:00:00Z",
            "/",
        ])
        .prop_map(str::to_owned),
        "/[!-~]{0,40}".prop_map(|path| path.replace(['#', ' '], "")),
    ];
    let plain = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        value().prop_map(|value| value.to_string().into_bytes()),
        submission().prop_map(|value| value.to_string().into_bytes()),
        Just(vec![b'['; 100_000]),
    ]
    .prop_map(|body| (String::new(), body));
    let body = prop_oneof![plain, multipart()];
    let method = prop::sample::select(vec!["GET", "POST", "POST", "PUT", "HEAD"]);
    (method, path, body).prop_map(|(method, path, (kind, body))| {
        // A job is started elsewhere: it can be started once.
        let path = if path == "/api/run" {
            "/".to_owned()
        } else {
            path
        };
        raw(method, &path, &kind, &body)
    })
}

/// A client of the raw log that speaks something else, bytes that are no request, and beginnings of requests.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    const UPGRADE: &[u8] =
        b"GET /logs_ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let bytes = || prop::collection::vec(any::<u8>(), 0..300);
    let cut = (request().boxed(), any::<prop::sample::Index>());
    prop_oneof![
        bytes(),
        bytes().prop_map(|frames| [UPGRADE, &frames].concat()),
        cut.prop_map(|(mut bytes, at)| {
            bytes.truncate(at.index(bytes.len()));
            bytes
        }),
    ]
}

fn raw(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn send(bed: &Bed, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", bed.port)).unwrap();
    drop(stream.write_all(bytes));
    drop(stream.shutdown(std::net::Shutdown::Write));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 30,
        ..Config::default()
    })
}

/// Files that were made or changed in the runner's root, beside those it is meant to make.
fn outside(bed: &Bed) -> Vec<PathBuf> {
    fn below(dir: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                below(&entry.path(), found);
            }
            found.insert(entry.path());
        }
    }
    let up = bed.upper();
    let mut found = BTreeSet::new();
    below(&up, &mut found);
    let allowed = [
        "/allowed",
        "/dstack",
        "/workflow",
        "/etc/profile",
        "/etc/passwd",
        "/etc/group",
        "/etc/shadow",
        "/home/app",
        "/image",
        "/var/empty",
        "/run/sshd",
        "/root/.ssh",
        "/root/.config",
        "/dev",
        "/proc",
        "/tmp",
    ];
    let allowed: Vec<PathBuf> = allowed
        .iter()
        .map(PathBuf::from)
        .chain([
            bed.dir.path().to_owned(),
            crate::bed::binary().parent().unwrap().to_owned(),
        ])
        .collect();
    found
        .iter()
        .map(|path| Path::new("/").join(path.strip_prefix(&up).unwrap()))
        .filter(|path| {
            !allowed
                .iter()
                .any(|dir| path.starts_with(dir) || dir.starts_with(path))
        })
        .collect()
}

fn check(bed: &Bed) {
    let out = bed.out();
    assert!(!out.contains("panicked"), "{out}");
    assert_eq!(outside(bed), Vec::<PathBuf>::new());
}

#[test]
fn no_request_ends_the_runner_or_leaves_its_folders() {
    let bed = Bed::start();
    runner(REQUESTS)
        .run(
            &prop_oneof![4 => request().boxed(), 1 => noise().boxed()],
            |bytes| {
                let answer = send(&bed, &bytes);
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
    assert_eq!(bed.get("/api/healthcheck").status, 200);
    check(&bed);
    let left = std::fs::read_dir(bed.inside("/tmp")).unwrap().flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name != "runner")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn no_job_makes_the_runner_write_where_it_should_not() {
    runner(JOBS)
        .run(&(submission(), archive(), archive()), |(spec, code, file)| {
            let bed = Bed::start();
            let answer = bed.post("/api/submit", spec.to_string().as_bytes());
            if answer.status != 200 {
                prop_assert_eq!(answer.status, 400, "{}", answer.text());
                return Ok(());
            }
            let id = spec["job_spec"]["file_archives"][0]["id"].as_str().unwrap_or("none");
            let head = format!(
                "--B\r\nContent-Disposition: form-data; name=\"archive\"; filename=\"{}\"\r\n\r\n",
                id.replace(['"', '\\', '\r', '\n', '\0'], "")
            );
            let form = [head.as_bytes(), &file, b"\r\n--B--\r\n"].concat();
            send(&bed, &raw("POST", "/api/upload_archive", "Content-Type: multipart/form-data; boundary=B\r\n", &form));
            prop_assert_eq!(bed.post("/api/upload_code", &code).status, 200);
            bed.run();
            let outcome = bed.finish();
            prop_assert!(!outcome.states.is_empty());
            prop_assert!(outcome.last().termination_message != "Internal error of the runner");
            check(&bed);
            Ok(())
        })
        .unwrap();
}
