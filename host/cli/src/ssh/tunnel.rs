//! OpenSSH as a child that carries the ports.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::config::Config;
use super::ports::Forward;
use super::target::Target;
use crate::error::CliError;

/// How often a login is tried: sshd in a fresh container needs a moment.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);
/// How long one login may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest path of a control socket that leaves room for the suffix that OpenSSH adds while it makes it.
const LONGEST: usize = 85;

/// What to run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) config: Config,
    pub(super) target: Target,
    pub(super) forwards: Vec<Forward>,
    /// Address of this machine that ports are bound to.
    pub(super) host: String,
    /// Where others find this connection.
    pub(super) control: PathBuf,
    pub(super) log: PathBuf,
    /// Set by who no longer waits.
    pub(super) gives_up: Arc<AtomicBool>,
}

/// A running `ssh`, ours or that of another attach to the same job. Dropping it ends ours.
#[derive(Debug)]
pub(super) struct Tunnel {
    plan: Plan,
    child: Option<Child>,
    /// Another attach holds the connection.
    is_shared: bool,
    /// When to look or try again.
    next: Instant,
}

/// Where the connection to one name can be shared.
pub(super) fn control_path(home: &Path, name: &str) -> PathBuf {
    let path = home
        .join(".dstack/ssh")
        .join(format!("{name}.control.sock"));
    if path.as_os_str().len() <= LONGEST {
        return path;
    }
    std::env::temp_dir().join(format!("dstack-{name}.sock"))
}

/// Whether somebody holds a connection there.
pub(super) fn is_alive(config: &Path, control: &Path, name: &str) -> bool {
    let check = || {
        Command::new("ssh")
            .arg("-F")
            .arg(config)
            .arg("-S")
            .arg(control)
            .args(["-O", "check", name])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    control.exists() && check()
}

/// The person's own keys for a host, as their configuration has them.
pub(crate) fn identities_for(host: &str) -> Vec<PathBuf> {
    let Ok(output) = Command::new("ssh").args(["-G", "--", host]).output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let home = std::env::home_dir().unwrap_or_default();
    text.lines()
        .filter_map(|line| line.strip_prefix("identityfile "))
        .map(|path| match path.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => PathBuf::from(path),
        })
        .filter(|path| path.is_file())
        .collect()
}

impl Tunnel {
    /// Logs in and binds the ports, or joins the connection that is there.
    pub(super) fn open(plan: Plan) -> Result<Self, CliError> {
        let mut tunnel = Self {
            is_shared: is_alive(plan.config.path(), &plan.control, &plan.target.name),
            plan,
            child: None,
            next: Instant::now(),
        };
        if tunnel.is_shared {
            return Ok(tunnel);
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match tunnel.start() {
                Ok(()) => return Ok(tunnel),
                Err(failed) if tries >= TRIES || !failed.may_pass || tunnel.is_given_up() => {
                    return Err(failed.error);
                }
                Err(_) => tunnel.pause(),
            }
        }
    }

    fn start(&mut self) -> Result<(), Failed> {
        self.end();
        let plan = &self.plan;
        plan.config
            .set(&plan.target.entries)
            .map_err(|error| Failed {
                may_pass: false,
                error,
            })?;
        // What an earlier try left.
        drop(fs::remove_file(&plan.log));
        drop(fs::remove_file(&plan.control));
        let mut command = Command::new("ssh");
        command.arg("-F").arg(plan.config.path());
        command.arg("-E").arg(&plan.log);
        command.args(["-N", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
        command.args(["-o", "ExitOnForwardFailure=yes", "-o", "LogLevel=INFO"]);
        command.args([
            "-o",
            "ServerAliveInterval=10",
            "-o",
            "ServerAliveCountMax=3",
        ]);
        // The socket is also how we learn that the ports are bound: OpenSSH makes it after them.
        command
            .args(["-o", "ControlMaster=yes", "-S"])
            .arg(&plan.control);
        for forward in &plan.forwards {
            command.arg("-L").arg(format!(
                "{}:{}:localhost:{}",
                bracketed(&plan.host),
                forward.local,
                forward.remote
            ));
        }
        command.args(["-l", &plan.target.user, &plan.target.name]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl+C is for us; we end it.
            .process_group(0);
        let mut child = command.spawn().map_err(|error| Failed {
            may_pass: false,
            error: CliError::message(format!(
                "cannot start ssh: {error}; install the OpenSSH client (Debian: openssh-client)"
            )),
        })?;
        let until = Instant::now() + PATIENCE;
        loop {
            if is_alive(plan.config.path(), &plan.control, &plan.target.name) {
                self.child = Some(child);
                return Ok(());
            }
            let ended = matches!(child.try_wait(), Ok(Some(_)) | Err(_));
            if ended || Instant::now() > until || self.is_given_up() {
                drop(child.kill());
                drop(child.wait());
                return Err(self.failed());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Why the last try failed, in OpenSSH's words.
    fn failed(&self) -> Failed {
        let text = fs::read_to_string(&self.plan.log).unwrap_or_default();
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("Warning: Permanently added"))
            .collect();
        let from = lines.len().saturating_sub(4);
        let words = lines.get(from..).unwrap_or_default().join("\n  ");
        Failed {
            may_pass: !words.contains("cannot listen to port"),
            error: CliError::message(format!(
                "cannot log in to the job over SSH:\n  {}\nThe whole log is in {}.",
                if words.is_empty() {
                    "no answer in time"
                } else {
                    &words
                },
                self.plan.log.display()
            )),
        }
    }

    /// Starts it again if it ended. False while that fails.
    pub(super) fn keep(&mut self) -> bool {
        if self.is_shared {
            if Instant::now() < self.next {
                return true;
            }
            self.next = Instant::now() + PAUSE;
            let plan = &self.plan;
            self.is_shared = is_alive(plan.config.path(), &plan.control, &plan.target.name);
            if self.is_shared {
                return true;
            }
        }
        let runs = self
            .child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if runs {
            return true;
        }
        if Instant::now() < self.next {
            return false;
        }
        let is_up = self.start().is_ok();
        self.next = Instant::now() + PAUSE;
        is_up
    }

    fn is_given_up(&self) -> bool {
        self.plan.gives_up.load(Ordering::Relaxed)
    }

    /// Between two tries.
    fn pause(&self) {
        let until = Instant::now() + PAUSE;
        while Instant::now() < until && !self.is_given_up() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
            drop(fs::remove_file(&self.plan.control));
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.end();
        if !self.is_shared {
            let entries = self.plan.target.entries.iter();
            let names: Vec<String> = entries.map(|entry| entry.name.clone()).collect();
            // An entry that stays is replaced by the next attach.
            drop(self.plan.config.remove(&names));
            drop(fs::remove_file(&self.plan.log));
        }
    }
}

struct Failed {
    may_pass: bool,
    error: CliError,
}

/// IPv6 addresses stand in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}
