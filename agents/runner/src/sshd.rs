//! The SSH server for logins into the container.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::children::{Children, Owned};
use crate::{files, session};

/// OpenSSH starts itself anew for each login, so it needs its absolute path.
const SSHD: &str = "/usr/sbin/sshd";
/// Not RSA: making such a key takes a second.
const KEY_TYPES: [&str; 2] = ["ecdsa", "ed25519"];
/// Directories of the unprivileged part, in two builds of OpenSSH.
const EMPTY_DIRS: [&str; 2] = ["/var/empty", "/run/sshd"];
const STOP_GRACE: Duration = Duration::from_secs(10);

/// How the server is set up.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) dstack: &'a Path,
    pub(crate) temp: &'a Path,
    pub(crate) port: u16,
    pub(crate) log_level: &'a str,
    pub(crate) authorized_keys: &'a [String],
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Sshd(Owned);

/// Makes `/dstack` and `/dstack/ssh`, owned by root and writable by nobody else: the server insists on it.
pub(crate) fn make_root(dstack: &Path, is_root: bool) -> io::Result<()> {
    if !dstack.is_dir() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dstack)?;
    }
    if is_root {
        chown(dstack, Some(0), Some(0))?;
    }
    std::fs::set_permissions(dstack, Permissions::from_mode(0o755))?;
    files::remove(&dstack.join("ssh"))?;
    for dir in ["ssh", "ssh/conf", "ssh/log"] {
        DirBuilder::new().mode(0o755).create(dstack.join(dir))?;
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(dstack.join("mpi"))
}

/// Prepares and starts the server.
pub(crate) fn start(settings: &Settings<'_>, children: &Children) -> io::Result<Sshd> {
    let conf = settings.dstack.join("ssh/conf");
    let keys = make_host_keys(settings.temp, &conf, children)?;
    let authorized = conf.join("authorized_keys");
    write(&authorized, "")?;
    for key in settings.authorized_keys {
        authorize(&authorized, key)?;
    }
    let config_path = conf.join("sshd_config");
    write(&config_path, &config(settings, &authorized, &keys))?;
    for dir in EMPTY_DIRS {
        files::remove(Path::new(dir))?;
        DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    }
    let log = settings.dstack.join("ssh/log/sshd.log");
    let mut command = Command::new(SSHD);
    command
        .arg("-D")
        .arg("-f")
        .arg(&config_path)
        .arg("-E")
        .arg(&log);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Libraries of the image that the job preloads are not for the server.
    command
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD");
    let server = children.spawn(&mut command);
    server
        .map(Sshd)
        .map_err(|e| io::Error::new(e.kind(), format!("{SSHD}: {e}")))
}

/// Lets one more key log in.
pub(crate) fn authorize(authorized_keys: &Path, key: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(authorized_keys)?;
    writeln!(file, "{}", key.trim())
}

fn make_host_keys(temp: &Path, conf: &Path, children: &Children) -> io::Result<Vec<PathBuf>> {
    let making = temp.join(".host-keys");
    files::remove(&making)?;
    DirBuilder::new().mode(0o700).create(&making)?;
    let mut made = Vec::new();
    for kind in KEY_TYPES {
        let name = format!("ssh_host_{kind}_key");
        let mut keygen = Command::new("ssh-keygen");
        keygen
            .args(["-t", kind, "-q", "-N", "", "-f"])
            .arg(making.join(&name));
        keygen
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("LD_PRELOAD");
        children.run(&mut keygen)?;
        for (name, mode) in [(name.clone(), 0o600), (format!("{name}.pub"), 0o644)] {
            // Copied, not renamed: the two directories may be on different disks.
            let target = conf.join(&name);
            std::fs::copy(making.join(&name), &target)?;
            std::fs::set_permissions(&target, Permissions::from_mode(mode))?;
        }
        made.push(conf.join(name));
    }
    files::remove(&making)?;
    Ok(made)
}

fn config(settings: &Settings<'_>, authorized_keys: &Path, host_keys: &[PathBuf]) -> String {
    let mut text = format!(
        "LogLevel {}\nPort {}\nPidFile none\nSubsystem sftp internal-sftp\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUsePAM yes\nAuthorizedKeysFile {} .ssh/authorized_keys\n\
         AcceptEnv LANG LC_* COLORTERM NO_COLOR\nClientAliveInterval 30\nClientAliveCountMax 4\n",
        settings.log_level,
        settings.port,
        authorized_keys.display(),
    );
    for key in host_keys {
        text.push_str(&format!("HostKey {}\n", key.display()));
    }
    text
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    File::create(path)?.write_all(text.as_bytes())?;
    std::fs::set_permissions(path, Permissions::from_mode(0o644))
}

impl Sshd {
    /// Ends the server; blocks the thread.
    pub(crate) fn stop(mut self) {
        let pid = self.0.pid();
        session::send(pid, Signal::SIGTERM);
        let asked = std::time::Instant::now();
        while !self.0.has_ended() {
            if asked.elapsed() > STOP_GRACE {
                session::send(pid, Signal::SIGKILL);
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Err(error) = self.0.wait() {
            tracing::debug!(%error, "the ssh server was reaped before");
        }
    }
}
