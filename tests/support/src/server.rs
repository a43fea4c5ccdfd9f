//! A real server: the `dstack` binary in folders of its own, with the client beside it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The admin's token of every test server.
pub const ADMIN_TOKEN: &str = "test-admin-token";

/// The folder of the built binaries: `DSTACK_TEST_BIN`, else the one that this test was built into.
///
/// # Panics
/// If the test is not run by cargo and the variable is not set.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "tests have no settings")]
pub fn bin_dir() -> PathBuf {
    if let Ok(dir) = std::env::var("DSTACK_TEST_BIN") {
        return PathBuf::from(dir);
    }
    let exe = std::env::current_exe().expect("a test knows its own file");
    let dir = exe.ancestors().find(|dir| dir.join("dstack").is_file());
    dir.expect("build the product first: cargo xtask test, or set DSTACK_TEST_BIN")
        .to_path_buf()
}

/// Whether a server answers a request at this port of this machine.
fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(
            b"GET /healthcheck HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        )?;
        let mut start = [0; 12];
        stream.read_exact(&mut start)?;
        Ok(start.starts_with(b"HTTP/1.1 "))
    };
    ask().unwrap_or(false)
}

/// Asks again and again until there is an answer.
///
/// # Errors
/// Names `what` if there is none within `patience`.
pub fn wait_for<T>(
    what: &str,
    patience: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("{what} did not come within {} s", patience.as_secs());
        }
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// A server process with its own home, and a client that knows it.
#[derive(Debug)]
pub struct TestServer {
    home: Arc<tempfile::TempDir>,
    log: PathBuf,
    port: u16,
    child: Option<Child>,
    env: Vec<(String, String)>,
    agent: ureq::Agent,
}

impl TestServer {
    /// Starts a server on a fresh home, with these variables set.
    ///
    /// # Errors
    /// If it does not start; the text has its log.
    pub fn start(env: &[(&str, &str)]) -> Result<Self> {
        let mut server = Self::prepare(env)?;
        server.spawn()?;
        Ok(server)
    }

    /// A home without a running server yet.
    ///
    /// # Errors
    /// If no folder or port can be had.
    pub fn prepare(env: &[(&str, &str)]) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("dstack-test.").tempdir()?;
        Self::with_home(Arc::new(home), env)
    }

    /// One more server on the home of this one, not started yet, with a port of its own and these variables. Both share a
    /// database that the variables must name. The client of each goes to its own server.
    ///
    /// # Errors
    /// If no port can be had.
    pub fn replica(&mut self, env: &[(&str, &str)]) -> Result<Self> {
        let mut replica = Self::with_home(Arc::clone(&self.home), env)?;
        for server in [self, &mut replica] {
            let url = server.url();
            let own = [
                ("DSTACK_SERVER_URL", url.as_str()),
                ("DSTACK_TOKEN", ADMIN_TOKEN),
                ("DSTACK_PROJECT", "main"),
                ("DSTACK_DO_NOT_UPDATE_DEFAULT_PROJECT", "1"),
            ];
            let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
            server.env.extend(own);
        }
        Ok(replica)
    }

    fn with_home(home: Arc<tempfile::TempDir>, env: &[(&str, &str)]) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .into();
        let is_first = !home.path().join("server.log").exists();
        let log = if is_first {
            "server.log".to_owned()
        } else {
            format!("server-{port}.log")
        };
        let log = home.path().join(log);
        fs::write(&log, "")?;
        Ok(Self {
            home,
            log,
            port,
            child: None,
            env,
            agent,
        })
    }

    /// The home folder: `.dstack/` is below it.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The server's address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The server's process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// What the server has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A command with this server's home and no variables of the caller's own client.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("HOME", self.home()).env("NO_COLOR", "1");
        for name in [
            "DSTACK_PROJECT",
            "DSTACK_TOKEN",
            "DSTACK_SERVER_URL",
            "DSTACK_SERVER_DIR",
        ] {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts the server's process on the same home and port.
    ///
    /// # Errors
    /// If it does not answer within 20 s; the text has its log.
    pub fn spawn(&mut self) -> Result<()> {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let child = self
            .command(&bin_dir().join("dstack"))
            .args([
                "server",
                "-y",
                "--log-level",
                "debug",
                "--port",
                &self.port.to_string(),
            ])
            .env("DSTACK_SERVER_ADMIN_TOKEN", ADMIN_TOKEN)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the dstack binary")?;
        self.child = Some(child);
        let deadline = Instant::now() + Duration::from_secs(20);
        // The port is taken first and answers last, when everything is prepared.
        while !answers(self.port) {
            let ended = self
                .child
                .as_mut()
                .map(Child::try_wait)
                .transpose()?
                .flatten();
            if ended.is_some() || Instant::now() > deadline {
                bail!("the server does not start:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        Ok(())
    }

    /// Kills the server as a power cut would.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Asks the server to stop and waits for it.
    ///
    /// # Errors
    /// If it does not end within 15 s or not with success.
    pub fn stop(&mut self) -> Result<Duration> {
        let Some(mut child) = self.child.take() else {
            return Ok(Duration::ZERO);
        };
        let began = Instant::now();
        Command::new("kill").arg(child.id().to_string()).status()?;
        let deadline = Instant::now() + Duration::from_secs(15);
        loop {
            if let Some(status) = child.try_wait()? {
                if !status.success() {
                    bail!("the server ended with {status}:\n{}", self.log());
                }
                return Ok(began.elapsed());
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("the server did not stop:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Runs the client to its end.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn cli(&self, args: &[&str]) -> Result<Output> {
        let mut command = self.command(&bin_dir().join("dstack"));
        command.args(args).stdin(Stdio::null());
        command.output().context("cannot start the dstack binary")
    }

    /// Runs the client and wants success; its standard output.
    ///
    /// # Errors
    /// If it fails; the text has both its outputs and the server's log.
    pub fn ok(&self, args: &[&str]) -> Result<String> {
        let out = self.cli(args)?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if !out.status.success() {
            let err = String::from_utf8_lossy(&out.stderr);
            bail!(
                "dstack {} ended with {}\n{text}\n{err}\n{}",
                args.join(" "),
                out.status,
                self.log()
            );
        }
        Ok(text)
    }

    /// `POST` to the API as the admin; status and body.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn post(&self, path: &str, body: &Value) -> Result<(u16, Value)> {
        let mut answer = self
            .agent
            .post(format!("{}{path}", self.url()))
            .header("Authorization", format!("Bearer {ADMIN_TOKEN}"))
            .header("X-Dstack-Client", "test")
            .send_json(body)?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string()?;
        Ok((
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        ))
    }

    /// `GET` without a login; the body of a success.
    ///
    /// # Errors
    /// If the server does not answer with 200.
    pub fn get(&self, path: &str) -> Result<String> {
        let mut answer = self.agent.get(format!("{}{path}", self.url())).call()?;
        let text = answer.body_mut().read_to_string()?;
        if answer.status().as_u16() != 200 {
            bail!("{path}: {} {text}", answer.status());
        }
        Ok(text)
    }

    /// The run with this name, in project `main`.
    ///
    /// # Errors
    /// If the server does not answer with a run.
    pub fn run(&self, name: &str) -> Result<Value> {
        let (status, run) = self.post(
            "/api/project/main/runs/get",
            &serde_json::json!({ "run_name": name }),
        )?;
        if status != 200 {
            bail!("runs/get {name}: {status} {run}");
        }
        Ok(run)
    }

    /// Waits until the run is finished.
    ///
    /// # Errors
    /// If it is not within `patience`; the text has the server's log.
    pub fn finished(&self, name: &str, patience: Duration) -> Result<Value> {
        wait_for(&format!("the end of run {name}"), patience, || {
            let run = self.run(name)?;
            let status = run["status"].as_str().unwrap_or_default();
            Ok(matches!(status, "done" | "failed" | "terminated").then_some(run))
        })
        .with_context(|| self.log())
    }

    /// Writes a file below the home and returns its path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.home().join(name);
        fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// Command lines of processes that mention this home: shims, runners, jobs that it started.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn processes(&self) -> Result<Vec<(u32, String)>> {
        let home = self.home().to_string_lossy().into_owned();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
                continue;
            };
            if Some(pid) == self.pid() {
                continue;
            }
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(&home) {
                found.push((pid, line));
            }
        }
        Ok(found)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.kill());
        // What the server started lives on by design; a test leaves nothing behind.
        for (pid, _) in self.processes().unwrap_or_default() {
            drop(
                Command::new("kill")
                    .args(["-9", &pid.to_string()])
                    .stderr(Stdio::null())
                    .status(),
            );
        }
    }
}
