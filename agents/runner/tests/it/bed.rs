use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dstack_agent_protocol::runner::{JobStateEvent, PullResponse};
use serde_json::{Value, json};

/// More than anything takes on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A layer over the machine's root with users of its own; `$EXTRA` is the test's.
const NAMESPACE: &str = r#"
mkdir -p $D/ns; mount -t tmpfs tmpfs $D/ns; cd $D/ns; mkdir up work root
mount -t overlay overlay -o lowerdir=/,upperdir=up,workdir=work root
mount --rbind /dev root/dev; mount -t proc proc root/proc
mount -t tmpfs tmpfs root/tmp; mkdir -p root$D root$(dirname $BIN); mount --bind $D root$D; mount --bind $(dirname $BIN) root$(dirname $BIN)
echo 'app:x:12345:12345::/home/app:/bin/sh' >> root/etc/passwd
printf 'app:x:12345:\nextra:x:12399:app\n' >> root/etc/group
echo 'app:!:19000:0:99999:7:::' >> root/etc/shadow
mkdir -p root/home/app root/image; chown 12345:12345 root/home/app
echo 'echo profile-was-read' > root/etc/profile
eval "$EXTRA"
exec chroot root sh -c 'cd /image; exec "$@"' sh "$@"
"#;

/// A running runner.
pub(crate) struct Bed {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) port: u16,
    child: Child,
    /// The child is `unshare`, and the runner its child.
    has_namespace: bool,
}

/// What a job left.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) states: Vec<JobStateEvent>,
    pub(crate) log: Vec<u8>,
    pub(crate) runner_log: String,
}

impl Outcome {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.log.clone()).expect("the log is UTF-8")
    }

    pub(crate) fn last(&self) -> &JobStateEvent {
        self.states.last().expect("there is a state")
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        assert_eq!(self.status, 200, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|e| {
            let start: String = self.text().chars().take(1000).collect();
            panic!("{e}: {start}")
        })
    }
}

/// A job that runs `script` in a plain shell.
pub(crate) fn job(script: &str) -> Value {
    json!({"job_spec": {"commands": ["/bin/sh", "-c", script], "jobs_per_replica": 1}})
}

pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_dstack-runner"))
}

impl Bed {
    pub(crate) fn start() -> Self {
        Self::with(&["--no-sshd"], "")
    }

    /// `extra` is a script run in the namespace before, with the new root at `root`.
    pub(crate) fn with(args: &[&str], extra: &str) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "these tests need root for a mount namespace"
        );
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-ec",
            NAMESPACE,
            "sh",
        ]);
        command.arg(binary()).args([
            "--log-level",
            "debug",
            "start",
            "--http-address",
            "127.0.0.1",
            "--http-port",
            "0",
        ]);
        command
            .arg("--port-file")
            .arg(dir.path().join("port"))
            .args(args);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("IMAGE_VARIABLE", "of the image");
        command
            .env("D", dir.path())
            .env("BIN", binary())
            .env("EXTRA", extra);
        Self::launch(command, dir, true)
    }

    pub(crate) fn launch(
        mut command: Command,
        dir: tempfile::TempDir,
        has_namespace: bool,
    ) -> Self {
        let out = std::fs::File::create(dir.path().join("out")).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out);
        let mut child = command.spawn().unwrap();
        let port = wait_for("the port", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!(
                    "the runner ended: {status}: {}",
                    std::fs::read_to_string(dir.path().join("out")).unwrap()
                );
            }
            std::fs::read_to_string(dir.path().join("port"))
                .ok()?
                .trim()
                .parse()
                .ok()
        });
        Self {
            dir,
            port,
            child,
            has_namespace,
        }
    }

    pub(crate) fn out(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("out")).unwrap()
    }

    /// A path within the namespace as it is seen from outside.
    pub(crate) fn inside(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid()))
    }

    /// The layer with what was made or changed in the namespace's root.
    pub(crate) fn upper(&self) -> PathBuf {
        let namespace = format!(
            "/proc/{}/root{}",
            self.child.id(),
            self.dir.path().display()
        );
        PathBuf::from(namespace).join("ns/up")
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.inside(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// The runner's own process.
    pub(crate) fn pid(&self) -> u32 {
        let unshare = self.child.id();
        if !self.has_namespace {
            return unshare;
        }
        let children =
            std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
        children
            .split_whitespace()
            .next()
            .map_or(unshare, |pid| pid.parse().unwrap())
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.pid().try_into().unwrap()),
            signal,
        )
        .unwrap();
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let length = body.len();
        // An answer to the old version ends with its connection, however long it is.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: %2Fr.sock\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        // A refusal may come before all was sent.
        drop(
            stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(body)),
        );
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .expect("an answer has a head");
        let body = answer.split_off(end + 4);
        let head = String::from_utf8(answer).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "", b"")
    }

    pub(crate) fn post(&self, path: &str, body: &[u8]) -> Answer {
        self.request("POST", path, "", body)
    }

    pub(crate) fn submit(&self, job: &Value) {
        let answer = self.post("/api/submit", job.to_string().as_bytes());
        assert_eq!((answer.status, answer.text().as_str()), (200, "\n"));
    }

    pub(crate) fn run(&self) -> Answer {
        let answer = self.post("/api/run", b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer
    }

    pub(crate) fn start_job(&self, job: &Value) {
        self.submit(job);
        self.run();
    }

    pub(crate) fn pull(&self, timestamp: i64) -> PullResponse {
        self.get(&format!("/api/pull?timestamp={timestamp}&wait_ms=5000"))
            .json()
    }

    /// Pulls until `is_enough` or the end.
    pub(crate) fn pull_until(&self, is_enough: impl Fn(&Outcome) -> bool) -> Outcome {
        let started = Instant::now();
        let (mut outcome, mut at) = (Outcome::default(), 0);
        loop {
            assert!(
                started.elapsed() < DEADLINE,
                "the job does not end: {outcome:?}\n{}",
                self.out()
            );
            let pulled = self.pull(at);
            for log in pulled.job_logs {
                assert!(log.timestamp > at && log.timestamp <= pulled.last_updated);
                outcome.log.extend(STANDARD.decode(log.message).unwrap());
            }
            for log in pulled.runner_logs {
                outcome
                    .runner_log
                    .push_str(&String::from_utf8(STANDARD.decode(log.message).unwrap()).unwrap());
            }
            outcome.states.extend(pulled.job_states);
            at = pulled.last_updated;
            if !pulled.has_more || is_enough(&outcome) {
                return outcome;
            }
        }
    }

    pub(crate) fn finish(&self) -> Outcome {
        self.pull_until(|_| false)
    }

    /// Runs a job to its end.
    pub(crate) fn outcome(&self, job: &Value) -> Outcome {
        self.start_job(job);
        self.finish()
    }

    /// Waits for the runner's own end; gives its exit code.
    pub(crate) fn exit_code(&mut self) -> i32 {
        wait_for("the runner's end", || self.child.try_wait().unwrap())
            .code()
            .expect("an exit code")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Its namespace goes with it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}
