//! A shim on a Unix socket, with a home of its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Far beyond what anything here takes; only a failure waits that long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Shim {
    pub(crate) home: TempDir,
    pub(crate) runtime: &'static str,
    program: PathBuf,
    runner: PathBuf,
    /// Further flags.
    pub(crate) flags: Vec<String>,
    /// Variables beside those of the test.
    pub(crate) env: Vec<(&'static str, String)>,
    /// Script that makes the machine look like another one, in a mount namespace of the shim's own; `$NEW` is a new
    /// file system.
    pub(crate) machine: Option<String>,
    /// User to run as instead of root.
    user: Option<u32>,
    /// Engine instead of the machine's.
    pub(crate) docker_host: Option<&'static str>,
    child: Option<Child>,
}

impl Shim {
    pub(crate) fn start(runtime: &'static str, runner: &Path) -> Self {
        let mut shim = Self::new(runtime, runner);
        shim.launch();
        shim
    }

    /// A shim that is not started yet.
    pub(crate) fn new(runtime: &'static str, runner: &Path) -> Self {
        let home = tempfile::Builder::new().prefix("shim").tempdir().unwrap();
        Self {
            home,
            runtime,
            program: env!("CARGO_BIN_EXE_dstack-shim").into(),
            runner: runner.to_owned(),
            flags: Vec::new(),
            env: Vec::new(),
            machine: None,
            user: None,
            docker_host: None,
            child: None,
        }
    }

    /// Runs as another user than root, who owns the home. The program is copied there: only root may enter the
    /// build's folder on some machines.
    pub(crate) fn start_as(user: u32, runner: &Path) -> Self {
        let mut shim = Self::new("process", runner);
        let program = shim.home.path().join("dstack-shim");
        std::fs::copy(&shim.program, &program).unwrap();
        std::os::unix::fs::chown(shim.home.path(), Some(user), Some(user)).unwrap();
        shim.program = program;
        shim.user = Some(user);
        shim.launch();
        shim
    }

    /// Starts the program and waits until it answers.
    pub(crate) fn launch(&mut self) {
        let mut command = match &self.machine {
            None => Command::new(&self.program),
            Some(script) => {
                let mut command = Command::new("unshare");
                let script =
                    format!("mkdir -p $NEW; mount -t tmpfs tmpfs $NEW; {script}; exec \"$@\"");
                command
                    .args(["--mount", "--propagation", "private", "sh", "-ec"])
                    .args([&script, "sh"])
                    .arg(&self.program)
                    .env("NEW", self.home.path().join("machine"));
                command
            }
        };
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let stderr = std::fs::File::create(self.home.path().join("stderr")).unwrap();
        if let Some(user) = self.user {
            command.uid(user).gid(user).current_dir("/");
        }
        if let Some(docker_host) = self.docker_host {
            command.env("DOCKER_HOST", docker_host);
        }
        let child = command
            .args(["--shim-log-level", "debug", "--runtime", self.runtime])
            .arg("--shim-home")
            .arg(self.home.path())
            .arg("--socket")
            .arg(self.socket())
            .arg("--runner-binary-path")
            .arg(&self.runner)
            .args(&self.flags)
            .stdin(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        self.child = Some(child);
        eventually("the shim answers", || connect(&self.socket()).is_ok());
    }

    /// Ends the program at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }

    /// Waits until the program has ended by itself.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.take().unwrap().wait().unwrap().code()
    }

    pub(crate) fn connect(&self) -> UnixStream {
        connect(&self.socket()).unwrap()
    }

    /// The new file system of a shim with a machine of its own, seen from here.
    pub(crate) fn new_file_system(&self) -> PathBuf {
        let own = format!("/proc/{}/root{}", self.pid(), self.home.path().display());
        PathBuf::from(own).join("machine")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join("shim.sock")
    }

    pub(crate) fn call(&self, head: &str, body: Option<&Value>) -> Reply {
        call(connect(&self.socket()).unwrap(), head, body)
    }

    pub(crate) fn submit(&self, config: &Value) -> String {
        let reply = self.call("POST /api/tasks", Some(config));
        assert_eq!(reply.status, 200, "{}", reply.body);
        config["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn task(&self, id: &str) -> Value {
        self.call(&format!("GET /api/tasks/{id}"), None).json()
    }

    /// The task once it has this status, or has ended.
    pub(crate) fn task_when(&self, id: &str, status: &str) -> Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let task = self.task(id);
            if task["status"] == status || task["status"] == "terminated" {
                assert_eq!(task["status"], status, "{task}\n{}", self.log());
                return task;
            }
            assert!(
                Instant::now() < deadline,
                "{task} does not become {status}\n{}",
                self.log()
            );
            let from = task["status"].as_str().unwrap();
            self.call(
                &format!("GET /api/tasks/{id}?wait={from}&timeout_ms=1000"),
                None,
            );
        }
    }

    pub(crate) fn terminate(&self, id: &str, reason: &str, timeout: u32) -> Value {
        let body =
            json!({"termination_reason": reason, "termination_message": "", "timeout": timeout});
        self.call(&format!("POST /api/tasks/{id}/terminate"), Some(&body))
            .json()
    }

    pub(crate) fn remove(&self, id: &str) -> Reply {
        self.call(&format!("POST /api/tasks/{id}/remove"), None)
    }

    pub(crate) fn task_dir(&self, task: &Value) -> PathBuf {
        self.home
            .path()
            .join("runners")
            .join(task["container_name"].as_str().unwrap())
    }

    /// What the program wrote to its standard error, panics too.
    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(self.home.path().join("stderr")).unwrap_or_default()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("shim.log")).unwrap_or_default()
    }
}

impl Drop for Shim {
    /// Ends all tasks, so that a failed test leaves neither processes nor containers behind.
    fn drop(&mut self) {
        if self.child.is_none() {
            if std::thread::panicking() {
                return;
            }
            self.launch();
        }
        if let Ok(stream) = connect(&self.socket()) {
            let list = call(stream, "GET /api/tasks", None).json();
            for task in list["tasks"].as_array().unwrap() {
                let id = task["id"].as_str().unwrap();
                self.terminate(id, "", 0);
                self.remove(id);
            }
        }
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Connects even if the path is longer than a socket's address may be.
fn connect(path: &Path) -> std::io::Result<UnixStream> {
    use std::os::fd::AsRawFd;
    let folder = std::fs::File::open(path.parent().unwrap())?;
    UnixStream::connect(format!("/proc/self/fd/{}/shim.sock", folder.as_raw_fd()))
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A folder with programs that come first on the shim's path.
pub(crate) fn programs(scripts: &[(&str, &str)]) -> (TempDir, String) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    for (name, script) in scripts {
        let path = dir.path().join(name);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let rest = std::env::var_os("PATH").unwrap().into_string().unwrap();
    let path = format!("{}:{rest}", dir.path().display());
    (dir, path)
}

pub(crate) fn call(mut io: impl Read + Write, head: &str, body: Option<&Value>) -> Reply {
    let body = body.map(ToString::to_string).unwrap_or_default();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // A refusal may come, and the connection be closed, before the body has been read.
    drop(io.write_all(request.as_bytes()));
    let mut reply = Vec::new();
    drop(io.read_to_end(&mut reply));
    let reply = String::from_utf8(reply).unwrap();
    let (headers, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    let content_type = headers
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "));
    Reply {
        status: headers
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse().ok())
            .unwrap_or(0),
        content_type: content_type.unwrap_or_default().to_owned(),
        body: body.to_owned(),
    }
}

/// A port that is free now.
pub(crate) fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_true() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A task with a fresh id and a name that tells whose test it is.
pub(crate) fn task(name: &str) -> Value {
    let id = uuid::Uuid::new_v4().to_string();
    json!({
        "id": id, "name": format!("shimtest-{name}"), "image_name": "dstack-test/small:1",
        "container_user": "root", "network_mode": "host"
    })
}

/// A program that stands in for the runner: it understands the flags that the shim passes, then does `script`, in
/// which `$port_file` and `$task_dir` are set.
pub(crate) fn fake_runner(dir: &Path, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("dstack-runner");
    let text = format!(
        "#!/bin/sh\n\
         if [ \"$1\" = --version ]; then echo dstack-runner version 0.22.5; exit; fi\n\
         while [ $# -gt 0 ]; do case $1 in\n\
           --port-file) port_file=$2; shift ;;\n\
           --task-dir) task_dir=$2; shift ;;\n\
           --http-port) http_port=$2; shift ;;\n\
         esac; shift; done\n\
         {script}\n"
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Directory and fake runner for one test.
pub(crate) struct Fake {
    pub(crate) dir: TempDir,
    pub(crate) runner: PathBuf,
}

pub(crate) fn fake(script: &str) -> Fake {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let runner = fake_runner(dir.path(), script);
    Fake { dir, runner }
}
