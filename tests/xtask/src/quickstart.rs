//! The first command of a newcomer: from a clean clone to the log of a task.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::build::{Built, Selection, build};
use crate::process::{output, root, run as run_command, succeeds, target};

/// Build what is needed, start a server, run the first task and show its log
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the task in a container; needs a Docker engine and the default image
    #[arg(long)]
    docker: bool,
    /// Leave the server running and say how to go on
    #[arg(long)]
    keep: bool,
    /// Optimised build: slower to make
    #[arg(long)]
    release: bool,
}

/// The chore.
///
/// # Errors
/// If the build, the server or the task fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let began = Instant::now();
    println!(
        "This builds dstack, starts a server, runs one task on this machine and shows its log."
    );
    let built = build(Selection::Product, args.release)?;
    let engine = succeeds("docker", &["info"]);
    if args.docker && !engine {
        bail!(
            "--docker needs a Docker engine, and none answers; without it the task runs as a process"
        );
    }
    println!(
        "==> Docker engine: {}",
        if engine {
            "answers"
        } else {
            "none; the task runs as a process"
        }
    );

    let home = fresh_home()?;
    if args.docker {
        only_docker(&home)?;
    }
    let started = Instant::now();
    let mut server = Server::start(&built, &home)?;
    println!(
        "==> server answers on {} after {} ms",
        server.url,
        started.elapsed().as_millis()
    );

    let done = first_job(&built, &home, args, started);
    if args.keep && done.is_ok() {
        server.keep(&built, &home);
        return Ok(());
    }
    if done.is_err() {
        eprintln!(
            "--- the server's last lines ({})",
            home.join("server.log").display()
        );
        for line in server.tail() {
            eprintln!("{line}");
        }
    }
    if done.is_err() {
        // The machine of a task that failed is idle now, and would live on without its server.
        let mut delete = dstack(&built, &home);
        drop(
            delete
                .args(["fleet", "delete", "hello-fleet", "-y"])
                .output(),
        );
    }
    server.stop()?;
    done?;
    fs::remove_dir_all(&home).with_context(|| format!("cannot remove {}", home.display()))?;
    println!(
        "==> done in {:.1} s, of it {:.1} s after the build; nothing is left running",
        began.elapsed().as_secs_f32(),
        started.elapsed().as_secs_f32()
    );
    println!(
        "    next: cargo xtask quickstart --keep, then dstack apply with your own configuration"
    );
    Ok(())
}

/// Folders of their own, so that a newcomer's own `~/.dstack` stays as it is.
fn fresh_home() -> Result<PathBuf> {
    let home = target()
        .join("quickstart")
        .join(std::process::id().to_string());
    if home.exists() {
        fs::remove_dir_all(&home)?;
    }
    fs::create_dir_all(&home)?;
    Ok(std::path::absolute(home)?)
}

/// Without this the backend runs a task as a process where its image cannot be had.
fn only_docker(home: &Path) -> Result<()> {
    let folder = home.join(".dstack/server");
    fs::create_dir_all(&folder)?;
    let config = "projects:\n- name: main\n  backends:\n  - type: local\n    runtime: docker\n";
    fs::write(folder.join("config.yml"), config)?;
    Ok(())
}

fn first_job(built: &Built, home: &Path, args: &Args, started: Instant) -> Result<()> {
    let examples = root().join("examples");
    say("dstack apply -f examples/fleet.dstack.yml -y -d");
    run_command(
        dstack(built, home)
            .arg("apply")
            .arg("-f")
            .arg(examples.join("fleet.dstack.yml"))
            .args(["-y", "-d"]),
    )?;
    let task = examples.join(if args.docker {
        "task-docker.dstack.yml"
    } else {
        "task.dstack.yml"
    });
    say(&format!(
        "dstack apply -f examples/{} -y",
        task.file_name().unwrap_or_default().to_string_lossy()
    ));
    let first_line = attached(built, home, &task, started)?;
    say("dstack ps -a");
    run_command(dstack(built, home).args(["ps", "-a"]))?;
    match first_line {
        Some(after) => println!(
            "==> first log line {} ms after the server's start",
            after.as_millis()
        ),
        None => bail!("the task ended without a log line"),
    }
    if !args.keep {
        say("dstack fleet delete hello-fleet -y");
        run_command(dstack(built, home).args(["fleet", "delete", "hello-fleet", "-y"]))?;
    }
    Ok(())
}

fn say(command: &str) {
    println!("\n$ {command}");
}

/// Runs the attached apply, passes its lines on, and notes when the task's first line came.
fn attached(built: &Built, home: &Path, task: &Path, started: Instant) -> Result<Option<Duration>> {
    let mut child = dstack(built, home)
        .arg("apply")
        .arg("-f")
        .arg(task)
        .arg("-y")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut first = None;
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).lines() {
            let line = line?;
            if first.is_none() && line.contains("Hello from ") {
                first = Some(started.elapsed());
            }
            println!("{line}");
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("dstack apply ended with {status}");
    }
    Ok(first)
}

fn dstack(built: &Built, home: &Path) -> Command {
    let mut command = Command::new(built.dstack());
    command
        .env("HOME", home)
        .env_remove("DSTACK_PROJECT")
        .env_remove("DSTACK_TOKEN")
        .env_remove("DSTACK_SERVER_URL");
    command
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

struct Server {
    child: Child,
    url: String,
    log: PathBuf,
}

impl Server {
    fn start(built: &Built, home: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = home.join("server.log");
        let file = fs::File::create(&log)?;
        let child = dstack(built, home)
            .args(["server", "-y", "--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let mut server = Self {
            child,
            url: format!("http://127.0.0.1:{port}"),
            log,
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        // The port is taken first and answers last, when everything is prepared.
        while !answers(port) {
            if server.child.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("the server does not start:\n{}", server.tail().join("\n"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn tail(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.into_iter().rev().take(20).rev().collect()
    }

    fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        output(Command::new("kill").arg(self.child.id().to_string()))?;
        let deadline = Instant::now() + Duration::from_secs(15);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.child.kill()?;
                bail!("the server did not stop within 15 s of being asked");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn keep(&self, built: &Built, home: &Path) {
        let config = fs::read_to_string(home.join(".dstack/config.yml")).unwrap_or_default();
        let token = config
            .lines()
            .find_map(|line| line.trim().strip_prefix("token: "))
            .unwrap_or("see the file");
        println!("\n==> the server goes on:");
        println!("    address   {}", self.url);
        println!("    token     {token}");
        println!("    folder    {}", home.display());
        println!(
            "    process   {} (stop it with: kill {})",
            self.child.id(),
            self.child.id()
        );
        println!(
            "    use it    export HOME={} PATH={}:$PATH; dstack ps -a",
            home.display(),
            built.bin.display()
        );
    }
}
