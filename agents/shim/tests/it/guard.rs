//! What the shim does for itself: the end of idle machines, its socket, its own replacement.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Shim, eventually, fake, free_port, programs, task};

const IDLE: &str = "echo 1234 >$port_file.tmp; mv $port_file.tmp $port_file; exec sleep 1000";

#[test]
fn a_machine_that_nobody_needs_is_switched_off() {
    let fake = fake(IDLE);
    let told = fake.dir.path().join("switched-off");
    let script = format!("#!/bin/sh\necho $0 $* >>{}\n", told.display());
    let (_dir, path) = programs(&[("shutdown", &script)]);
    let mut shim = Shim::new("process", &fake.runner);
    shim.env = vec![("PATH", path)];
    shim.flags = ["--idle-shutdown", "5"].map(str::to_owned).to_vec();
    shim.launch();
    let id = shim.submit(&task("guard"));
    shim.task_when(&id, "running");
    // A task keeps the machine, without any request.
    std::thread::sleep(Duration::from_secs(7));
    assert!(!told.exists());
    shim.terminate(&id, "terminated_by_user", 0);
    // So do requests, without a task.
    let until = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until {
        assert_eq!(shim.call("GET /api/healthcheck", None).status, 200);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!told.exists());
    eventually("the machine is switched off", || told.exists());
    let words = std::fs::read_to_string(&told).unwrap();
    assert!(words.ends_with("shutdown -h now\n"), "{words}");
}

#[test]
fn the_socket_is_its_owners_alone_and_a_port_opens_only_when_asked_for() {
    use std::os::unix::fs::PermissionsExt;
    let fake = fake(IDLE);
    let shim = Shim::start("process", &fake.runner);
    let mode = std::fs::metadata(shim.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let ports = Command::new("ss").args(["-Htlnp"]).output().unwrap();
    let ports = String::from_utf8(ports.stdout).unwrap();
    let mark = format!("pid={},", shim.pid());
    assert!(!ports.contains(&mark), "{ports}");
}

#[test]
fn a_port_is_not_for_processes_in_containers() {
    let fake = fake(IDLE);
    let port = free_port();
    let mut shim = Shim::new("process", &fake.runner);
    shim.flags = vec!["--shim-http-port".to_owned(), port.clone()];
    shim.launch();
    let url = format!("http://127.0.0.1:{port}/api/healthcheck");
    let ask = |before: &[&str]| {
        let words = [before, &["curl", "-s", &url]].concat();
        let answer = Command::new(words[0]).args(&words[1..]).output().unwrap();
        String::from_utf8(answer.stdout).unwrap()
    };
    assert!(ask(&["env"]).contains("dstack-shim"), "{}", shim.log());
    assert_eq!(ask(&["unshare", "--pid", "--fork"]), "");
    assert!(
        shim.log()
            .contains("a connection out of a container was refused"),
        "{}",
        shim.log()
    );
}

#[test]
fn a_download_that_is_no_agent_leaves_the_old_one() {
    let fake = fake(IDLE);
    let shim = Shim::start("process", &fake.runner);
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/runner", server.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        use std::io::Read;
        let (mut stream, _) = server.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        let body = "<html>not here</html>";
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
    });
    let install = json!({"name": "dstack-runner", "url": url});
    assert_eq!(
        shim.call("POST /api/components/install", Some(&install))
            .status,
        200
    );
    serving.join().unwrap();
    eventually("the failure is noticed", || {
        shim.log().contains("a component stays as it is")
    });
    let runner = || shim.call("GET /api/components", None).json()["components"][0].clone();
    eventually("the old one is told", || runner()["status"] == "installed");
    assert_eq!(runner()["version"], "0.22.5");
    let left = std::fs::read_dir(fake.dir.path()).unwrap().count();
    assert_eq!(left, 1, "nothing but the old file");
}
