//! Both runtimes in one shim: the image of each task settles which it gets.

use std::os::unix::fs::symlink;

use serde_json::json;

use crate::docker::{container_exists, require_engine};
use crate::support::{Shim, eventually, fake, task};

/// Runs on in either runtime; only processes tell a port.
const EITHER: &str = "if [ -n \"$port_file\" ]; then echo 1234 >$port_file.tmp; mv $port_file.tmp $port_file; fi; \
     while :; do sleep 0.1; done";
/// Nobody listens there, so the registry of this image does not answer.
const OUT_OF_REACH: &str = "127.0.0.1:1/none:1";

#[test]
fn the_image_settles_the_runtime_and_both_kinds_are_found_again() {
    require_engine();
    let fake = fake(EITHER);
    let mut shim = Shim::start("auto", &fake.runner);
    let contained = shim.submit(&task("auto-docker"));
    let mut config = task("auto-process");
    config["image_name"] = json!(OUT_OF_REACH);
    let bare = shim.submit(&config);
    let container = shim.task_when(&contained, "running");
    let process = shim.task_when(&bare, "running");
    assert!(container_exists(&container));
    assert_eq!(process["container_id"], "");
    assert_eq!(
        process["ports"],
        json!([{"host": 1234, "container": 10999}])
    );
    let log = shim.log();
    let told = |line: &&str| line.contains("runs as a process") && line.contains(OUT_OF_REACH);
    assert_eq!(log.lines().filter(told).count(), 1, "{log}");

    shim.kill();
    shim.launch();
    let again = shim.task_when(&contained, "running");
    assert_eq!(again["container_id"], container["container_id"]);
    let again = shim.task_when(&bare, "running");
    assert_eq!(
        (&again["container_id"], &again["ports"]),
        (&json!(""), &process["ports"])
    );

    for (id, found) in [(&contained, &container), (&bare, &process)] {
        let ended = shim.terminate(id, "terminated_by_user", 0);
        assert_eq!(ended["status"], "terminated");
        let dir = shim.task_dir(found);
        assert_eq!(shim.remove(id).status, 200);
        assert!(!dir.exists());
    }
    assert!(!container_exists(&container));
}

#[test]
fn an_engine_that_comes_later_is_used_for_later_tasks() {
    require_engine();
    let fake = fake(EITHER);
    let socket = fake.dir.path().join("docker.sock");
    let mut shim = Shim::new("auto", &fake.runner);
    shim.docker_host = Some(Box::leak(
        format!("unix://{}", socket.display()).into_boxed_str(),
    ));
    shim.launch();
    let bare = shim.submit(&task("auto-before"));
    assert_eq!(shim.task_when(&bare, "running")["container_id"], "");
    symlink("/var/run/docker.sock", &socket).unwrap();
    let contained = shim.submit(&task("auto-after"));
    assert!(container_exists(&shim.task_when(&contained, "running")));
    // An engine that goes away takes nothing of the processes with it.
    std::fs::remove_file(&socket).unwrap();
    let last = shim.submit(&task("auto-gone"));
    assert_eq!(shim.task_when(&last, "running")["container_id"], "");
    for id in [&bare, &last] {
        assert_eq!(
            shim.terminate(id, "terminated_by_user", 0)["status"],
            "terminated"
        );
    }
    symlink("/var/run/docker.sock", &socket).unwrap();
}

#[test]
fn a_home_with_a_long_path_works() {
    let fake = fake(EITHER);
    let mut shim = Shim::new("process", &fake.runner);
    shim.home = tempfile::Builder::new()
        .prefix(&"long-".repeat(30))
        .tempdir()
        .unwrap();
    assert!(shim.socket().as_os_str().len() > 150);
    shim.launch();
    let id = shim.submit(&task("long"));
    shim.task_when(&id, "running");
    // The next shim takes the socket of one that died over.
    shim.kill();
    assert!(shim.socket().exists());
    shim.launch();
    eventually("it is found again", || {
        shim.task(&id)["status"] == "running"
    });
}
