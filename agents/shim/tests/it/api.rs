//! What the API says, whatever runs the tasks.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Shim, eventually, fake, task};

const IDLE: &str = "echo 1234 >$port_file.tmp; mv $port_file.tmp $port_file; exec sleep 1000";

#[test]
fn the_program_tells_its_version_in_three_words() {
    let shim = env!("CARGO_BIN_EXE_dstack-shim");
    let output = Command::new(shim).arg("--version").output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "dstack-shim version 0.22.5\n"
    );
    let output = Command::new(shim)
        .args(["--shim-home", "/nonexistent"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("/nonexistent")
    );
}

#[test]
fn the_machine_describes_itself() {
    let fake = fake(IDLE);
    let shim = Shim::start("process", &fake.runner);
    let health = shim.call("GET /api/healthcheck", None);
    assert_eq!(health.content_type, "application/json");
    assert_eq!(
        health.json(),
        json!({"service": "dstack-shim", "version": "0.22.5"})
    );
    assert_eq!(
        shim.call("GET /api/instance/health", None).json(),
        json!({"dcgm": null})
    );
    assert_eq!(shim.call("GET /api/instance/info", None).json(), json!({}));
    assert_eq!(
        shim.call("GET /api/tasks", None).json(),
        json!({"tasks": []})
    );
    let components = shim.call("GET /api/components", None).json();
    let versions: Vec<_> = components["components"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    assert_eq!(
        versions[0],
        &json!({"name": "dstack-runner", "version": "0.22.5", "status": "installed"})
    );
    assert_eq!(
        versions[1],
        &json!({"name": "dstack-shim", "version": "0.22.5", "status": "installed"})
    );
}

#[test]
fn wrong_requests_get_the_texts_of_the_api() {
    let fake = fake(IDLE);
    let shim = Shim::start("process", &fake.runner);
    let without = |field: &str| {
        let mut config = task("wrong");
        config[field] = Value::Null;
        config
    };
    let empty = json!({});
    let broken_name = json!({"id": "a", "name": "../x", "image_name": "i"});
    for (head, body, status, text) in [
        ("POST /api/tasks", Some(without("id")), 400, "empty id\n"),
        (
            "POST /api/tasks",
            Some(without("name")),
            400,
            "empty name\n",
        ),
        (
            "POST /api/tasks",
            Some(without("image_name")),
            400,
            "empty image_name\n",
        ),
        (
            "POST /api/tasks",
            Some(broken_name),
            400,
            "invalid name \"../x\": use letters, digits, \"_\", \".\" and \"-\"\n",
        ),
        (
            "POST /api/tasks",
            None,
            400,
            "Request body must not be empty\n",
        ),
        ("GET /api/tasks/none", None, 404, "Not Found\n"),
        (
            "POST /api/tasks/none/terminate",
            Some(empty.clone()),
            404,
            "Not Found\n",
        ),
        ("POST /api/tasks/none/remove", None, 404, "Not Found\n"),
        (
            "GET /metrics/tasks/none",
            None,
            404,
            "DCGM Exporter is not available\n",
        ),
        (
            "POST /api/components/install",
            Some(empty),
            400,
            "empty name\n",
        ),
        (
            "POST /api/components/install",
            Some(json!({"name": "x", "url": "u"})),
            400,
            "unknown component\n",
        ),
        (
            "POST /api/components/install",
            Some(json!({"name": "dstack-shim"})),
            400,
            "empty url\n",
        ),
        ("POST /api/submit", Some(json!({})), 404, "Not Found\n"),
        ("DELETE /api/tasks", None, 405, "Method Not Allowed\n"),
    ] {
        let reply = shim.call(head, body.as_ref());
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (status, text),
            "{head} {body:?}"
        );
    }
}

#[test]
fn an_id_is_taken_until_its_task_is_removed() {
    let fake = fake(IDLE);
    let shim = Shim::start("process", &fake.runner);
    let config = task("taken");
    let id = shim.submit(&config);
    let reply = shim.call("POST /api/tasks", Some(&config));
    let text = format!("request error: task {id} is already submitted\n");
    assert_eq!((reply.status, reply.body), (409, text));
    shim.task_when(&id, "running");
    let reply = shim.remove(&id);
    let text = format!("request error: cannot remove task {id} with running status\n");
    assert_eq!((reply.status, reply.body), (409, text));
    let first = shim.terminate(&id, "terminated_by_user", 0);
    assert_eq!(first["status"], "terminated");
    // Terminating again is no error and does not change the reason.
    assert_eq!(shim.terminate(&id, "max_duration_exceeded", 0), first);
    let dir = shim.task_dir(&first);
    assert!(dir.exists());
    let reply = shim.remove(&id);
    assert_eq!((reply.status, reply.body.as_str()), (200, "\n"));
    assert_eq!(reply.content_type, "text/plain; charset=utf-8");
    assert!(!dir.exists());
    assert_eq!(shim.remove(&id).status, 404);
    shim.submit(&config);
    shim.task_when(&id, "running");
}

#[test]
fn a_long_poll_ends_with_the_change_of_status() {
    let fake = fake(IDLE);
    let shim = Shim::start("process", &fake.runner);
    let id = shim.submit(&task("poll"));
    shim.task_when(&id, "running");
    let waited = std::thread::scope(|scope| {
        let poll = scope.spawn(|| shim.call(&format!("GET /api/tasks/{id}?wait=running"), None));
        shim.terminate(&id, "scaled_down", 0);
        poll.join().unwrap().json()
    });
    assert_eq!(
        (&waited["status"], &waited["termination_reason"]),
        (&json!("terminated"), &json!("scaled_down"))
    );
    let late = shim.call(
        &format!("GET /api/tasks/{id}?wait=terminated&timeout_ms=1"),
        None,
    );
    assert_eq!(late.json()["status"], "terminated");
    assert_eq!(
        shim.call(&format!("GET /api/tasks/{id}?wait=happy"), None)
            .status,
        400
    );
}

#[test]
fn gpus_that_are_not_there_end_the_task() {
    let fake = fake(IDLE);
    let shim = Shim::start("process", &fake.runner);
    let mut config = task("gpus");
    config["gpu"] = json!(2);
    let id = shim.submit(&config);
    let ended = shim.task_when(&id, "terminated");
    assert_eq!(ended["termination_reason"], "executor_error");
    assert_eq!(
        ended["termination_message"],
        "no capacity: 2 GPUs requested, 0 available"
    );
    let mut config = task("gpus-all");
    config["gpu"] = json!(-1);
    let all = shim.submit(&config);
    assert_eq!(shim.task_when(&all, "running")["gpus_ids"], json!([]));
}

#[test]
fn a_component_is_replaced_by_a_download() {
    use std::io::{Read, Write};
    let fake = fake(IDLE);
    let shim = Shim::start("process", &fake.runner);
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/runner", server.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        let body = "#!/bin/sh\necho dstack-runner version 9.9.9\n";
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
    });
    let install = json!({"name": "dstack-runner", "url": url});
    assert_eq!(
        shim.call("POST /api/components/install", Some(&install))
            .body,
        "\n"
    );
    eventually("the new version is there", || {
        shim.call("GET /api/components", None).json()["components"][0]["version"] == "9.9.9"
    });
    serving.join().unwrap();
}

#[test]
fn a_shutdown_ends_the_shim_and_not_its_tasks() {
    let fake = fake(IDLE);
    let mut shim = Shim::start("process", &fake.runner);
    let id = shim.submit(&task("shutdown"));
    shim.task_when(&id, "running");
    assert_eq!(
        shim.call("POST /api/shutdown", Some(&json!({"force": false})))
            .body,
        "\n"
    );
    assert_eq!(shim.wait(), Some(0));
    assert!(!shim.socket().exists());
    shim.launch();
    assert_eq!(shim.task(&id)["status"], "running");
    assert_eq!(
        shim.call("POST /api/shutdown", Some(&json!({"force": true})))
            .status,
        200
    );
    assert_eq!(shim.wait(), Some(0));
}

#[test]
fn a_signal_ends_the_shim_well() {
    let fake = fake(IDLE);
    let mut shim = Shim::start("process", &fake.runner);
    let pid = nix::unistd::Pid::from_raw(shim.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(shim.wait(), Some(0));
}

#[test]
fn the_host_is_described_in_a_file_when_asked_for() {
    let fake = fake(IDLE);
    let mut shim = Shim::new("process", &fake.runner);
    shim.flags = vec!["--service".to_owned()];
    shim.launch();
    let text = std::fs::read_to_string(shim.home.path().join("host_info.json")).unwrap();
    let info: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&info["gpu_vendor"], &info["gpu_count"]),
        (&json!("none"), &json!(0))
    );
    assert!(info["cpus"].as_u64().unwrap() > 0 && info["disk_size"].as_u64().unwrap() > 0);
}

#[test]
fn without_an_engine_auto_means_processes_and_docker_a_failed_start() {
    let fake = fake(IDLE);
    let mut shim = Shim::new("auto", &fake.runner);
    shim.docker_host = Some("unix:///nonexistent/docker.sock");
    shim.launch();
    let id = shim.submit(&task("auto"));
    assert_eq!(shim.task_when(&id, "running")["container_id"], "");
    let output = Command::new(env!("CARGO_BIN_EXE_dstack-shim"))
        .env("DOCKER_HOST", "unix:///nonexistent/docker.sock")
        .arg("--shim-home")
        .arg(fake.dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("--runtime process"), "{text}");
}
