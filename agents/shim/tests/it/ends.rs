//! Every way in which a task ends before or without its job: an engine that refuses or forgets, machines on which
//! something is missing, a full disk. The engine is a stand-in here, which fails when it is told to.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{Fake, Shim, eventually, fake, programs, task};

const IDLE: &str = "echo 1234 >$port_file.tmp; mv $port_file.tmp $port_file; exec sleep 1000";

/// What was asked of the engine: method and path, body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// An engine whose containers do as their names say.
fn engine(dir: &Path) -> (&'static str, Asked) {
    let socket = dir.join("docker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let asked = Asked::default();
    let (all, names) = (Arc::clone(&asked), Arc::new(Mutex::new(HashMap::new())));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (all, names) = (Arc::clone(&all), Arc::clone(&names));
            std::thread::spawn(move || answer(stream.unwrap(), &all, &names));
        }
    });
    let url = format!("unix://{}", socket.display());
    (Box::leak(url.into_boxed_str()), asked)
}

/// Names of containers by id.
type Names = Arc<Mutex<HashMap<String, String>>>;

fn answer(mut stream: UnixStream, asked: &Asked, names: &Names) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap_or_default());
    let path = path.trim_start_matches("/v1.41");
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let call = format!("{method} {}", path.split('?').next().unwrap());
    let number = {
        let mut asked = asked.lock().unwrap();
        asked.push((call.clone(), body));
        asked.len()
    };
    if call == "POST /containers/create" {
        let name = path.split("name=").nth(1).unwrap_or_default();
        names
            .lock()
            .unwrap()
            .insert(format!("c{number}"), name.to_owned());
    }
    let id = call.split('/').nth(2).unwrap_or_default();
    let (named, made) = {
        let names = names.lock().unwrap();
        (names.get(id).cloned().unwrap_or_default(), names.len())
    };
    let (status, reply) = reply(&call, path, &named, (number, made));
    let text = reply.to_string();
    // The client may be gone.
    drop(write!(
        stream,
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    ));
}

/// `number` is that of the call; `made` is how many containers there have been.
fn reply(call: &str, path: &str, name: &str, (number, made): (usize, usize)) -> (u16, Value) {
    let is = |word: &str| name.contains(word);
    let failed = |message: &str| (500, json!({ "message": message }));
    match call.rsplit('/').next().unwrap_or_default() {
        "version" => (200, json!({"ApiVersion": "1.41", "MinAPIVersion": "1.12"})),
        "info" => (200, json!({"DockerRootDir": "/tmp"})),
        "create" if path.contains("refused") => (400, json!({"message": "no such device"})),
        "create" => (201, json!({"Id": format!("c{number}"), "Warnings": []})),
        "start" if is("display") && made == 1 => {
            failed("error gathering device information: \"/dev/nvidia-modeset\": no such file")
        }
        "start" => (204, Value::Null),
        "wait" => (200, json!({"StatusCode": 0})),
        "json" if call.starts_with("GET /images/") => (200, json!({"Id": "sha256:1"})),
        "json" if call == "GET /containers/json" => (200, json!([])),
        "json" if is("lost") => (404, json!({"message": "No such container"})),
        "json" if is("unmapped") => failed("the engine is unwell"),
        "json" => {
            let status = if is("created") { "created" } else { "running" };
            (200, json!({"State": {"Status": status, "ExitCode": 0}}))
        }
        "stop" => (204, Value::Null),
        _ if call.starts_with("DELETE /containers/") => (204, Value::Null),
        _ => (404, json!({"message": call})),
    }
}

fn with_engine() -> (Fake, Shim, Asked) {
    let fake = fake(IDLE);
    let (docker_host, asked) = engine(fake.dir.path());
    let mut shim = Shim::new("docker", &fake.runner);
    shim.docker_host = Some(docker_host);
    (fake, shim, asked)
}

fn end(task: &Value) -> (&str, &str) {
    let text = |key: &str| task[key].as_str().unwrap();
    (text("termination_reason"), text("termination_message"))
}

#[test]
fn an_engine_that_refuses_or_forgets_a_container_ends_its_task() {
    let (_fake, mut shim, _) = with_engine();
    shim.launch();
    for (name, bridge, wanted) in [
        (
            "refused",
            false,
            (
                "creating_container_error",
                "createContainer error: no such device",
            ),
        ),
        ("lost", false, ("executor_error", "container not found")),
        (
            "created",
            false,
            ("executor_error", "container was not started"),
        ),
        (
            "unmapped",
            true,
            ("executor_error", "the engine failed: the engine is unwell"),
        ),
    ] {
        let mut config = task(name);
        config["network_mode"] = json!(if bridge { "bridge" } else { "host" });
        let id = shim.submit(&config);
        eventually(name, || shim.task(&id)["status"] == "terminated");
        assert_eq!(end(&shim.task(&id)), wanted, "{name}\n{}", shim.log());
        assert_eq!(shim.remove(&id).status, 200);
    }
}

#[test]
fn a_driver_without_a_display_device_gets_its_container_without_that() {
    assert!(
        nix::unistd::Uid::effective().is_root(),
        "this test needs root: run it with sudo"
    );
    let (_fake, mut shim, asked) = with_engine();
    let (_dir, path) = programs(&[(
        "nvidia-smi",
        "#!/bin/sh\necho 'NVIDIA A10G, 23028, GPU-aaaa, 570.86.15'\n",
    )]);
    shim.env = vec![("PATH", path)];
    // Beside the machine's own devices, in a mount namespace of the shim.
    shim.machine = Some(
        "for name in null zero full urandom tty; do touch $NEW/$name; mount --bind /dev/$name $NEW/$name; done; \
         touch $NEW/nvidiactl; mount --rbind $NEW /dev"
            .to_owned(),
    );
    shim.launch();
    let mut config = task("display");
    config["gpu"] = json!(1);
    let running = shim.task_when(&shim.submit(&config), "running");
    assert_eq!(running["gpus_ids"], json!(["GPU-aaaa"]));
    let asked = asked.lock().unwrap();
    let made: Vec<&Value> = asked
        .iter()
        .filter(|(call, _)| call == "POST /containers/create")
        .map(|(_, body)| &body["HostConfig"]["DeviceRequests"][0])
        .collect();
    assert_eq!(made.len(), 2, "{asked:?}");
    let has_display = |request: &Value| request["Capabilities"].to_string().contains("\"display\"");
    assert!(has_display(made[0]) && !has_display(made[1]), "{made:?}");
    assert_eq!(made[0]["DeviceIDs"], made[1]["DeviceIDs"]);
    // The first one does not stay.
    assert!(
        asked
            .iter()
            .any(|(call, _)| call.starts_with("DELETE /containers/"))
    );
}

#[test]
fn what_a_machine_lacks_ends_a_task_with_its_reason() {
    let fake = fake(IDLE);
    let shim = Shim::start("process", &fake.runner);
    let mut mount = task("mount");
    mount["instance_mounts"] = json!([{"instance_path": "/dev/null/x", "path": "/x"}]);
    let mut keys = task("keys");
    keys["host_ssh_user"] = json!("nobody-has-this-name");
    keys["host_ssh_keys"] = json!(["ssh-ed25519 AAAA x"]);
    for (config, start) in [
        (mount, "prepareInstanceMountPoints error: /dev/null/x: "),
        (keys, "reconcileHostSshKeys error: this machine has no user"),
    ] {
        let ended = shim.task_when(&shim.submit(&config), "terminated");
        let (reason, message) = end(&ended);
        assert_eq!(reason, "executor_error");
        assert!(message.starts_with(start), "{message}");
    }
}

/// A file system of a few hundred kilobytes at a shim's home.
struct SmallHome(std::path::PathBuf);

impl SmallHome {
    fn mount(shim: &Shim) -> Self {
        let path = shim.home.path().to_owned();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"])
            .arg(&path)
            .status();
        assert!(mounted.unwrap().success(), "this test needs root");
        Self(path)
    }

    /// Leaves not one byte.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("fill")).unwrap();
        for size in [4096, 512, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.join("fill")).unwrap();
    }
}

impl Drop for SmallHome {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[test]
fn on_a_full_disk_tasks_go_on_new_ones_are_refused_and_ends_are_remembered() {
    let fake = fake(&format!(
        "trap 'exit 3' TERM; {}",
        IDLE.replace("exec sleep 1000", "while :; do sleep 0.05; done")
    ));
    let mut shim = Shim::new("process", &fake.runner);
    let disk = SmallHome::mount(&shim);
    shim.launch();
    let (first, second) = (shim.submit(&task("full-a")), shim.submit(&task("full-b")));
    let before = shim.task_when(&first, "running");
    let other = shim.task_when(&second, "running");
    disk.fill();
    // New work is refused, with the reason.
    let refused = shim.task_when(&shim.submit(&task("full-c")), "terminated");
    let (reason, message) = end(&refused);
    assert_eq!(reason, "executor_error");
    assert!(message.contains("No space left on device"), "{message}");
    assert_eq!(shim.task(&first), before);
    // An end by order, and one by itself whose code has its place on the disk already.
    shim.terminate(&first, "terminated_by_user", 0);
    let state: Value =
        serde_json::from_slice(&std::fs::read(shim.task_dir(&other).join("task.json")).unwrap())
            .unwrap();
    let pid = i32::try_from(state["process"]["pid"].as_i64().unwrap()).unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    let ended = shim.task_when(&second, "terminated");
    assert_eq!(end(&ended).0, "container_exited_with_error", "{ended}");
    // With room again the ends are written down, and a new shim knows them.
    disk.empty();
    let written = |task: &Value| {
        let text = std::fs::read_to_string(shim.task_dir(task).join("task.json"));
        text.is_ok_and(|text| {
            text.contains("\"termination_reason\":\"")
                && !text.contains("\"termination_reason\":\"\"")
        })
    };
    eventually("the ends are written down", || {
        written(&before) && written(&other)
    });
    shim.kill();
    shim.launch();
    assert_eq!(end(&shim.task(&first)).0, "terminated_by_user");
    assert_eq!(end(&shim.task(&second)).0, "container_exited_with_error");
    let next = shim.submit(&task("full-d"));
    shim.task_when(&next, "running");
    shim.terminate(&next, "terminated_by_user", 0);
    shim.kill();
}
