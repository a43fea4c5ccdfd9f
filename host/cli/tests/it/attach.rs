//! Attached runs against a real sshd: ports, names for `ssh`, logs, and nothing left behind.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::world::{Screen, World, response};

const DEADLINE: Duration = Duration::from_secs(30);

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The sshd of a job, and the user's key that it lets in.
struct Job {
    folder: tempfile::TempDir,
    port: u16,
    sshd: Child,
}

impl Job {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["user", "host"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"])
                .arg(folder.path().join(name))
                .status();
            assert!(made.unwrap().success());
        }
        let port = free_port();
        let sshd = Self::launch(folder.path(), port);
        Self { folder, port, sshd }
    }

    fn launch(folder: &Path, port: u16) -> Child {
        let config = folder.join("sshd_config");
        let text = format!(
            "Port {port}\nListenAddress 127.0.0.1\nPidFile none\nHostKey {0}/host\nAuthorizedKeysFile {0}/user.pub\n\
             UsePAM no\nPasswordAuthentication no\nStrictModes no\nPermitRootLogin yes\n",
            folder.display()
        );
        std::fs::write(&config, text).unwrap();
        drop(std::fs::create_dir_all("/run/sshd"));
        let sshd = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("sshd", || TcpStream::connect(("127.0.0.1", port)).ok());
        sshd
    }

    fn key(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// The network breaks: the processes that serve connections end, then sshd itself.
    fn stop(&mut self) {
        let pid = self.sshd.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        for child in children.split_whitespace() {
            drop(Command::new("kill").args(["-9", child]).status());
        }
        drop(self.sshd.kill());
        drop(self.sshd.wait());
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A web server in the job that says `hello` and counts.
fn web() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            drop(stream.read(&mut [0; 1024]));
            drop(stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello"));
        }
    });
    port
}

fn get(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.ends_with("hello").then_some(text)
}

/// The run `t1` on the job's machine, with ports (container, local).
fn run(job: &Job, status: &str, ports: &[(u16, Option<u16>)]) -> Value {
    let mut run = response("task_apply_attached", "runs/apply");
    run["status"] = json!(status);
    run["run_spec"]["ssh_key_pub"] = json!(job.key("user.pub").trim());
    let apps: Vec<Value> = ports
        .iter()
        .enumerate()
        .map(|(at, (port, local))| json!({"port": port, "map_to_port": local, "app_name": format!("app_{at}")}))
        .collect();
    run["jobs"][0]["job_spec"]["app_specs"] = json!(apps);
    let last = &mut run["jobs"][0]["job_submissions"][0];
    last["status"] = json!(status);
    last["job_provisioning_data"] = json!({
        "backend": "vastai", "instance_type": {"name": "x", "resources": {
            "cpus": 1, "memory_mib": 1024, "gpus": [], "spot": false, "disk": {"size_mib": 1024}}},
        "instance_id": "i", "hostname": "127.0.0.1", "region": "r", "price": 0.0,
        "username": "root", "ssh_port": job.port, "dockerized": false,
    });
    run
}

fn world(job: &Job, run: &Value) -> World {
    let world = World::new();
    world
        .server
        .on("/api/project/main/runs/get", run.clone())
        .on(
            "/api/users/get_my_user",
            json!({
                "id": "00000000-0000-4000-8000-000000000001", "username": "me", "global_role": "user",
                "active": true, "permissions": {"can_create_projects": true},
                "creds": {"token": "secret-token"},
                "ssh_public_key": job.key("user.pub").trim(), "ssh_private_key": job.key("user"),
            }),
        );
    world
}

fn home(world: &World) -> PathBuf {
    world.folder().with_file_name("home")
}

/// Runs the command in a thread, does things meanwhile, then lets the run end as `done`.
fn attached(
    world: &World,
    job: &mut Job,
    done: &Value,
    args: &[&str],
    meanwhile: impl FnOnce(&mut Job),
) -> Screen {
    std::thread::scope(|scope| {
        let command = scope.spawn(|| world.run(args));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| meanwhile(job)));
        let path = "/api/project/main/runs/get";
        world.server.forget(path).on(path, done.clone());
        let screen = command.join().unwrap();
        assert!(result.is_ok(), "{screen}");
        screen
    })
}

#[test]
fn ports_and_a_name_for_ssh_are_here_while_attached_and_gone_after() {
    let mut job = Job::start();
    let (web, local) = (web(), free_port());
    let running = run(&job, "running", &[(web, Some(local))]);
    let world = world(&job, &running);
    world.write("home/.ssh/config", "Host mine\n    User me\n");
    let done = run(&job, "done", &[(web, Some(local))]);
    let config = home(&world).join(".dstack/ssh/config");
    let screen = attached(&world, &mut job, &done, &["attach", "t1"], |job| {
        eventually("the port is forwarded", || get(local));
        let output = Command::new("ssh")
            .arg("-F")
            .arg(&config)
            .args(["t1", "echo in $((40 + 2))"])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "in 42\n",
            "{output:?}"
        );
        // The network is away for a moment; the port comes back.
        job.stop();
        eventually("the port is gone", || get(local).is_none().then_some(()));
        job.sshd = Job::launch(job.folder.path(), job.port);
        eventually("the port is back", || get(local));
    });
    assert_eq!(screen.code, 0, "{screen}");
    assert!(
        screen.err.contains(&format!(
            "http://localhost:{local} is port {web} of the job"
        )),
        "{screen}"
    );
    assert!(screen.err.contains("To log in, use: ssh t1"), "{screen}");
    assert!(get(local).is_none(), "the tunnel outlived the command");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "");
    let own = std::fs::read_to_string(home(&world).join(".ssh/config")).unwrap();
    assert_eq!(
        own,
        "Include ~/.dstack/ssh/config\n\nHost mine\n    User me\n"
    );
    assert!(!screen.out.contains("PRIVATE") && !screen.err.contains("PRIVATE"));
}

#[test]
fn addresses_in_the_log_are_those_of_this_machine() {
    let mut job = Job::start();
    let (web, local) = (web(), free_port());
    let running = run(&job, "running", &[(web, Some(local))]);
    let world = world(&job, &running);
    let done = run(&job, "done", &[(web, Some(local))]);
    let none = json!({"logs": [], "external_url": null, "next_token": null});
    world.server.on("/api/project/main/logs/poll", none);
    let args = ["attach", "t1", "--logs", "-p", &format!("{local}:{web}")];
    let screen = attached(&world, &mut job, &done, &args, |_| {
        eventually("the port is forwarded", || get(local));
        let log = base64::engine::general_purpose::STANDARD
            .encode(format!("open http://0.0.0.0:{web}/x\n"));
        let path = "/api/project/main/logs/poll";
        let line =
            json!({"timestamp": "2026-11-29T19:34:00Z", "log_source": "stdout", "message": log});
        let page = json!({"logs": [line], "external_url": null, "next_token": null});
        let none = json!({"logs": [], "external_url": null, "next_token": null});
        // The link is up before the line comes, and it is read once.
        std::thread::sleep(Duration::from_millis(500));
        world.server.forget(path).on(path, page).on(path, none);
        eventually("the line is read", || {
            (world.server.left(path) == 1).then_some(())
        });
    });
    assert_eq!(screen.code, 0, "{screen}");
    assert!(
        screen
            .out
            .contains(&format!("open http://localhost:{local}/x\n")),
        "{screen}"
    );
}

#[test]
fn a_port_that_is_taken_and_a_key_that_is_not_ours_are_clear_errors() {
    let job = Job::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let running = run(&job, "running", &[(7, Some(port))]);
    let world = world(&job, &running);
    let screen = world.run(&["attach", "t1", "--host", "127.0.0.1"]);
    assert_eq!(screen.code, 1);
    assert!(
        screen
            .err
            .contains(&format!("port {port} of 127.0.0.1 is in use")),
        "{screen}"
    );

    let mut other = run(&job, "running", &[]);
    other["run_spec"]["ssh_key_pub"] = json!("ssh-ed25519 AAAAother me");
    let world = self::world(&job, &other);
    let screen = world.run(&["attach", "t1"]);
    assert_eq!(screen.code, 1);
    assert!(screen.err.contains("--ssh-identity"), "{screen}");
}

#[test]
fn a_finished_or_unknown_run_is_not_attached_to() {
    let job = Job::start();
    let world = world(&job, &run(&job, "failed", &[]));
    let screen = world.run(&["attach", "t1"]);
    assert_eq!((screen.code, screen.err.trim()), (1, "Run t1 is failed"));
}
