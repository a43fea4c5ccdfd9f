//! Without a container, and without root.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use serde_json::{Value, json};

use crate::bed::{Bed, binary, job};

/// A runner of user `nobody` that keeps everything in its own directory.
fn start() -> Bed {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let mut command = Command::new("setpriv");
    // The binary may lie where only root can read: run it through an open descriptor.
    let file = std::fs::File::open(binary()).unwrap();
    let copy = dir.path().join("dstack-runner");
    std::io::copy(&mut &file, &mut std::fs::File::create(&copy).unwrap()).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    let task = dir.path().join("task");
    std::fs::create_dir_all(task.join("work")).unwrap();
    for path in [&task, &task.join("work")] {
        chown(path, Some(65534), Some(65534)).unwrap();
    }
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(copy);
    command.args([
        "--log-level",
        "debug",
        "start",
        "--http-address",
        "127.0.0.1",
        "--http-port",
        "0",
    ]);
    command
        .arg("--task-dir")
        .arg(&task)
        .arg("--port-file")
        .arg(dir.path().join("port"));
    Bed::launch(command, dir, false)
}

#[test]
fn everything_stays_below_the_tasks_directory() {
    let bed = start();
    let task = bed.dir.path().join("task").display().to_string();
    let mut spec = job(
        "id -u; pwd; echo $HOME; echo $DSTACK_REPO_DIR; cat $DSTACK_MPI_HOSTFILE; test -f $(dirname $DSTACK_MPI_HOSTFILE)/../profile && echo profile",
    );
    spec["job_spec"]["user"] = json!({"username": "root"});
    spec["cluster_info"] = json!({"job_ips": ["127.0.0.1"]});
    bed.submit(&spec);
    let answer: Value = bed.run().json();
    assert_eq!(answer["working_dir"], format!("{task}/work"));
    let text = bed.finish().text();
    assert_eq!(
        text,
        format!("65534\n{task}/work\n{task}/home\n{task}/work\n127.0.0.1\nprofile\n")
    );
}

#[test]
fn the_workflow_directory_of_the_server_is_the_tasks_work() {
    let bed = start();
    let mut spec = job("pwd");
    spec["job_spec"]["working_dir"] = json!("/workflow/sub");
    let text = bed.outcome(&spec).text();
    assert_eq!(
        text,
        format!("{}/task/work/sub\n", bed.dir.path().display())
    );
}

#[test]
fn a_unix_socket_can_take_the_place_of_the_port() {
    use std::io::{Read, Write};
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("r.sock");
    let mut child = Command::new(binary())
        .args(["start", "--task-dir"])
        .arg(dir.path().join("task"))
        .arg("--http-socket")
        .arg(&socket)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut stream = crate::bed::wait_for("the socket", || {
        std::os::unix::net::UnixStream::connect(&socket).ok()
    });
    stream
        .write_all(b"GET /api/healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        answer.ends_with("{\"service\":\"dstack-runner\",\"version\":\"0.22.5\"}\n"),
        "{answer}"
    );
}

#[test]
fn what_left_the_jobs_session_ends_with_the_runner() {
    let mut bed = start();
    bed.start_job(&job(
        "(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 0.5",
    ));
    let outcome = bed.finish();
    let pid: u32 = outcome.text().trim().parse().unwrap();
    let is_alive =
        || std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    assert!(is_alive(), "{outcome:?}");
    bed.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(bed.exit_code(), 0);
    assert!(!is_alive());
}
