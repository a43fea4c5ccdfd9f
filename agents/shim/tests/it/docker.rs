//! Tasks in containers of a real engine, with the small test image.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::{Fake, Shim, eventually, fake, free_port, task};

/// Makes the image if it is not there, and fails with the reason if that does not work.
pub(crate) fn require_engine() {
    static READY: OnceLock<()> = OnceLock::new();
    READY.get_or_init(|| {
        let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
        let script = root.join("../../tests/support/images/small.sh");
        let output = Command::new(script).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "these tests need a Docker engine: {text}"
        );
    });
}

fn shim(script: &str) -> (Fake, Shim) {
    require_engine();
    let fake = fake(script);
    let shim = Shim::start("docker", &fake.runner);
    (fake, shim)
}

fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "docker {arguments:?}: {text}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(crate) fn container_exists(task: &Value) -> bool {
    let filter = format!("id={}", task["container_id"].as_str().unwrap());
    !docker(&["ps", "-aq", "--filter", &filter]).is_empty()
}

const GO: &str = "while [ ! -e /tmp/runner/go ]; do sleep 0.05; done";
/// The word that a runner leaves of a job that was done.
const DONE: &str = "echo done >/tmp/runner/job.end";

fn go(shim: &Shim, task: &Value) {
    std::fs::write(shim.task_dir(task).join("runner/go"), "").unwrap();
}

#[test]
fn a_container_runs_until_its_runner_ends() {
    let (_fake, shim) = shim(&format!("{GO}; {DONE}; exit 0"));
    let config = task("docker-done");
    let id = shim.submit(&config);
    let running = shim.task_when(&id, "running");
    assert_eq!(running["ports"], json!([]));
    let inspected: Value = serde_json::from_str(&docker(&[
        "inspect",
        running["container_id"].as_str().unwrap(),
        "--format",
        "{{json .}}",
    ]))
    .unwrap();
    assert_eq!(
        inspected["Name"],
        format!("/{}", running["container_name"].as_str().unwrap())
    );
    assert_eq!(
        inspected["Config"]["Labels"]["ai.dstack.shim.task-id"],
        config["id"]
    );
    go(&shim, &running);
    let ended = shim.task_when(&id, "terminated");
    assert_eq!(ended["termination_reason"], "done_by_runner");
    assert!(container_exists(&running));
    assert_eq!(shim.remove(&id).status, 200);
    assert!(!container_exists(&running));
}

#[test]
fn an_engine_that_tells_code_0_is_not_believed_without_the_runners_word() {
    for (script, wanted) in [
        // What is left of a container that was killed while its engine was away.
        (
            ": >/tmp/runner/default.log; echo >/tmp/runner/job.end",
            "container_exited_with_error",
        ),
        ("true", "container_exited_with_error"),
        (
            "echo failed >/tmp/runner/job.end",
            "container_exited_with_error",
        ),
        // A runner that leaves no word.
        (": >/tmp/runner/default.log", "done_by_runner"),
    ] {
        let (_fake, shim) = shim(&format!("{script}; {GO}; exit 0"));
        let id = shim.submit(&task("docker-word"));
        go(&shim, &shim.task_when(&id, "running"));
        let ended = shim.task_when(&id, "terminated");
        assert_eq!(ended["termination_reason"], wanted, "{script}: {ended}");
        let says_why = ended["termination_message"] != "";
        assert_eq!(says_why, wanted != "done_by_runner", "{script}: {ended}");
    }
}

#[test]
fn a_failed_container_leaves_its_last_lines() {
    let (_fake, shim) = shim(&format!("{GO}; seq 1 9; exit 4"));
    let id = shim.submit(&task("docker-failed"));
    go(&shim, &shim.task_when(&id, "running"));
    let ended = shim.task_when(&id, "terminated");
    assert_eq!(ended["termination_reason"], "container_exited_with_error");
    assert_eq!(
        ended["termination_message"],
        "5\n6\n7\n8\n9",
        "{}",
        shim.log()
    );
}

#[test]
fn a_bridge_container_has_limits_and_mapped_ports() {
    let (fake, shim) = shim(
        "echo runner on $http_port >/tmp/runner/ports; \
         while :; do printf 'HTTP/1.0 200 OK\\r\\n\\r\\nhi' | nc -l -p $http_port; done",
    );
    let source = fake.dir.path().join("data");
    let mut config = task("docker-bridge");
    config["network_mode"] = json!("bridge");
    config["memory"] = json!(67_108_864);
    config["cpu"] = json!(0.5);
    config["shm_size"] = json!(1_048_576);
    config["instance_mounts"] =
        json!([{"instance_path": source, "path": "/data", "optional": true}]);
    let id = shim.submit(&config);
    let running = shim.task_when(&id, "running");
    let containers: Vec<_> = running["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| &port["container"])
        .collect();
    assert_eq!(containers, [10999, 10022]);
    let port = running["ports"][0]["host"].as_u64().unwrap();
    eventually("the container answers on its mapped port", || {
        let url = format!("http://127.0.0.1:{port}/");
        Command::new("curl")
            .args(["-sf", &url])
            .output()
            .is_ok_and(|out| out.stdout == b"hi")
    });
    let host: Value = serde_json::from_str(&docker(&[
        "inspect",
        running["container_id"].as_str().unwrap(),
        "--format",
        "{{json .HostConfig}}",
    ]))
    .unwrap();
    assert_eq!(
        (&host["Memory"], &host["NanoCpus"]),
        (&json!(67_108_864), &json!(500_000_000))
    );
    assert_eq!(host["Tmpfs"]["/dev/shm"], "exec,size=1048576");
    assert!(source.is_dir());
    let ended = shim.terminate(&id, "terminated_by_user", 0);
    assert_eq!(
        (&ended["status"], &ended["ports"]),
        (&json!("terminated"), &running["ports"])
    );
    let state = docker(&[
        "inspect",
        running["container_id"].as_str().unwrap(),
        "--format",
        "{{.State.Status}}",
    ]);
    assert_eq!(state, "exited");
}

#[test]
fn a_container_with_the_machines_network_does_not_reach_the_shim() {
    let port = free_port();
    require_engine();
    let ask = format!(
        "printf 'GET /api/healthcheck HTTP/1.0\\r\\n\\r\\n' | nc -w 5 127.0.0.1 {port}; echo asked"
    );
    let fake = fake(&format!("{{ {ask}; }} >/tmp/runner/answer 2>&1; {GO}"));
    let mut shim = Shim::new("docker", &fake.runner);
    shim.flags = vec!["--shim-http-port".to_owned(), port];
    shim.launch();
    let running = shim.task_when(&shim.submit(&task("docker-port")), "running");
    let answer = shim.task_dir(&running).join("runner/answer");
    let read = || std::fs::read_to_string(&answer).unwrap_or_default();
    eventually("the container has asked", || read().contains("asked"));
    assert!(!read().contains("dstack-shim"), "{}", read());
    assert!(
        shim.log()
            .contains("a connection out of a container was refused"),
        "{}",
        shim.log()
    );
}

#[test]
fn an_image_that_cannot_be_had_ends_the_task() {
    let (_fake, shim) = shim(GO);
    let mut config = task("docker-image");
    // A port on which nothing listens stands for a registry.
    config["image_name"] = json!("127.0.0.1:1/nosuch/image");
    let ended = shim.task_when(&shim.submit(&config), "terminated");
    assert_eq!(ended["termination_reason"], "creating_container_error");
    let message = ended["termination_message"].as_str().unwrap();
    assert!(
        message.starts_with("pullImage error: pull image: "),
        "{message}"
    );
    assert_eq!(
        (&ended["ports"], &ended["container_id"]),
        (&Value::Null, &json!(""))
    );
}

#[test]
fn a_task_can_be_ended_while_its_image_is_pulled() {
    let (_fake, shim) = shim(GO);
    // A registry that takes connections and says nothing.
    let registry = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = task("docker-pulling");
    config["image_name"] = json!(format!("{}/some/image", registry.local_addr().unwrap()));
    let id = shim.submit(&config);
    shim.task_when(&id, "pulling");
    let ended = shim.terminate(&id, "terminated_by_user", 0);
    assert_eq!(ended["status"], "terminated");
    assert_eq!(shim.remove(&id).status, 200);
    assert_eq!(shim.call(&format!("GET /api/tasks/{id}"), None).status, 404);
}

#[test]
fn a_container_of_another_shim_is_left_alone() {
    let (fake, mut shim) = shim(GO);
    let id = shim.submit(&task("docker-other"));
    let running = shim.task_when(&id, "running");
    let mut other = Shim::start("docker", &fake.runner);
    assert_eq!(
        other.call("GET /api/tasks", None).json(),
        json!({"tasks": []})
    );
    other.kill();
    // Without an engine its own shim does not know what became of it, and keeps what is needed to find it again.
    shim.kill();
    shim.runtime = "process";
    shim.launch();
    assert_eq!(
        shim.call("GET /api/tasks", None).json(),
        json!({"tasks": []})
    );
    shim.kill();
    shim.runtime = "docker";
    shim.launch();
    assert_eq!(shim.task(&id), running);
}

#[test]
fn a_container_without_a_shell_does_not_start() {
    let (fake, shim) = shim(GO);
    let image = "dstack-test/scratch-shimtest:1";
    let tar = fake.dir.path().join("empty.tar");
    let made = Command::new("tar")
        .arg("-cf")
        .arg(&tar)
        .args(["-C", "/", "-T", "/dev/null"])
        .status();
    assert!(made.unwrap().success());
    docker(&["import", tar.to_str().unwrap(), image]);
    let mut config = task("docker-scratch");
    config["image_name"] = json!(image);
    let ended = shim.task_when(&shim.submit(&config), "terminated");
    assert_eq!(ended["termination_reason"], "container_exited_with_error");
}

#[test]
fn containers_outlive_the_shim_and_are_found_again() {
    let (_fake, mut shim) = shim(&format!("{GO}; {DONE}; exit 0"));
    let mut config = task("docker-restart");
    config["network_mode"] = json!("bridge");
    let (first, second) = (shim.submit(&config), shim.submit(&task("docker-restart")));
    let before = shim.task_when(&first, "running");
    let other = shim.task_when(&second, "running");
    shim.kill();
    go(&shim, &other);
    eventually("the second container has ended", || {
        let id = other["container_id"].as_str().unwrap();
        docker(&["inspect", id, "--format", "{{.State.Status}}"]) == "exited"
    });
    shim.launch();
    assert_eq!(shim.task(&first), before);
    assert_eq!(
        shim.task_when(&second, "terminated")["termination_reason"],
        "done_by_runner"
    );
    // A container taken away while there is no shim: nothing is left of its task.
    let dir = shim.task_dir(&before);
    shim.kill();
    docker(&["rm", "-f", before["container_id"].as_str().unwrap()]);
    shim.launch();
    assert_eq!(
        shim.call(&format!("GET /api/tasks/{first}"), None).status,
        404
    );
    assert!(!dir.exists());
}

/// The runner for containers: images have other libraries or none, so it must be static.
pub(crate) fn static_runner() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_dstack-shim"))
        .parent()
        .unwrap();
    let installed = beside
        .join("agents")
        .join(std::env::consts::ARCH)
        .join("dstack-runner");
    let built = beside.join("../x86_64-unknown-linux-gnu/debug/dstack-runner");
    [installed, built]
        .into_iter()
        .find(|path| path.exists())
        .expect("a static runner; `cargo xtask plugins` builds and installs one")
}

#[test]
fn the_real_runner_serves_in_a_container() {
    let runner = static_runner();
    require_engine();
    let shim = Shim::start("docker", &runner);
    let mut config = task("docker-real");
    config["network_mode"] = json!("bridge");
    let id = shim.submit(&config);
    let running = shim.task_when(&id, "running");
    let url = format!(
        "http://127.0.0.1:{}/api/healthcheck",
        running["ports"][0]["host"]
    );
    let mut answer = Vec::new();
    eventually("the runner answers", || {
        answer = Command::new("curl")
            .args(["-sf", &url])
            .output()
            .unwrap()
            .stdout;
        !answer.is_empty() || shim.task(&id)["status"] != "running"
    });
    let health: Value = serde_json::from_slice(&answer).unwrap_or_else(|_| {
        panic!(
            "{}",
            docker(&["logs", running["container_id"].as_str().unwrap()])
        )
    });
    assert_eq!(health["service"], "dstack-runner");
}
