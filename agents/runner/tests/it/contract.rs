//! Statuses, texts and phases of the HTTP API.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bed::{Bed, binary, job};

/// A recorded exchange of the contract.
fn sample(name: &str) -> Value {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let path = root.join("../../tests/contract/agents").join(name);
    serde_json::from_str(
        &std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
    )
    .unwrap()
}

#[test]
fn the_version_has_three_words() {
    let output = std::process::Command::new(binary())
        .arg("--version")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "dstack-runner version 0.22.5\n"
    );
}

#[test]
fn calls_are_answered_as_the_contract_says() {
    let bed = Bed::start();
    let health = bed.get("/api/healthcheck");
    assert_eq!(
        health.json::<Value>(),
        sample("runner-healthcheck.json")["response"]["json"]
    );
    assert!(
        health
            .head
            .to_lowercase()
            .contains("content-type: application/json")
    );
    for (method, path, status, text) in [
        ("GET", "/api/nothing", 404, "Not Found\n"),
        ("GET", "/api/submit", 405, "Method Not Allowed\n"),
        ("POST", "/api/run", 409, "Conflict\n"),
        ("POST", "/api/upload_code", 409, "Conflict\n"),
        ("POST", "/api/upload_archive", 409, "Conflict\n"),
        (
            "GET",
            "/api/pull?timestamp=x",
            400,
            "timestamp is not an integer: x\n",
        ),
        (
            "POST",
            "/api/submit",
            400,
            "Request body must not be empty\n",
        ),
        ("POST", "/api/stop", 200, "\n"),
    ] {
        let answer = bed.request(method, path, "", b"");
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (status, text),
            "{method} {path}"
        );
    }
    let empty: Value = bed.get("/api/pull").json();
    assert_eq!(
        empty,
        json!({"job_states": [], "job_logs": [], "runner_logs": [], "last_updated": 0, "no_connections_secs": 0, "has_more": true})
    );
}

#[test]
fn recorded_submissions_are_taken_and_a_second_one_replaces_the_first() {
    let bed = Bed::start();
    for name in ["runner-submit.json", "runner-submit-remote-repo.json"] {
        bed.submit(&sample(name)["request"]["json"]);
    }
    bed.submit(&job("echo second"));
    let answer = bed.run();
    assert_eq!(
        answer.json::<Value>(),
        json!({"working_dir": "/image", "username": "root"})
    );
    for path in [
        "/api/submit",
        "/api/run",
        "/api/upload_code",
        "/api/upload_archive",
    ] {
        assert_eq!(bed.post(path, b"{}").status, 409, "{path}");
    }
    assert_eq!(bed.finish().text(), "second\n");
}

#[test]
fn a_user_or_directory_that_cannot_be_resolved_fails_the_job_without_a_result() {
    for (spec, message) in [
        (
            json!({"user": {"username": "nosuch"}}),
            "Failed to set job user (unknown user nosuch)",
        ),
        (
            json!({"user": {}}),
            "Failed to set job user (neither uid nor username is set)",
        ),
        (
            json!({"working_dir": "rel"}),
            "Failed to set job working dir (working dir must be absolute: rel)",
        ),
        (
            json!({"working_dir": "~x/y"}),
            "Failed to set job working dir (~username syntax is not supported)",
        ),
    ] {
        let bed = Bed::start();
        bed.submit(&json!({"job_spec": spec}));
        let answer = bed.run();
        assert_eq!(answer.text(), "\n");
        assert!(
            answer
                .head
                .to_lowercase()
                .contains("content-type: text/plain")
        );
        let outcome = bed.finish();
        let last = outcome.last();
        assert_eq!(serde_json::to_value(last.state).unwrap(), "failed");
        assert_eq!(
            (
                last.termination_reason.as_str(),
                last.termination_message.as_str()
            ),
            ("executor_error", message)
        );
        assert_eq!(last.exit_status, None);
    }
}

#[test]
fn metrics_are_measured_or_absent() {
    let bed = Bed::with(&["--no-sshd"], "mount --rbind /sys root/sys");
    let answer = bed.get("/api/metrics");
    if answer.status == 404 {
        assert_eq!(answer.text(), "Metrics collector is not available\n");
        return;
    }
    let metrics: Value = answer.json();
    assert!(
        metrics["memory_usage_bytes"].as_u64().unwrap() > 0,
        "{metrics}"
    );
    assert!(
        metrics["memory_working_set_bytes"].as_u64() <= metrics["memory_usage_bytes"].as_u64(),
        "{metrics}"
    );
}

#[test]
fn without_root_a_container_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    // The build's folder may be one that only root enters.
    let copy = dir.path().join("dstack-runner");
    std::fs::copy(binary(), &copy).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(copy);
    let output = command
        .args(["start", "--temp-dir"])
        .arg(dir.path().join("t"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("must be root: "), "{said}");
}
