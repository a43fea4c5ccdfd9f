//! A real Slurm cluster: a login node with the controller and two nodes, each with a network of its own.
//!
//! ```text
//! this machine .1 ──┬─ .10 login node, controller
//!   (a bridge in    ├─ .11 n1, one GPU
//!    the login's    └─ .12 n2
//!    namespace)
//! ```
//!
//! Where clusters have Pyxis there is a program that starts the same command in a copy of the system, as its root.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_test_support::server::{bin_dir, wait_for};

use crate::own_hosts::{free_base, run};

static STARTED: AtomicU32 = AtomicU32::new(0);

/// A cluster; it ends with this value.
#[derive(Debug)]
pub struct SlurmBed {
    dir: tempfile::TempDir,
    tag: String,
    /// `10.x.7`: the start of all addresses.
    base: String,
    child: Option<Child>,
}

/// Where `cargo xtask test` keeps the Debian with Slurm: in the folder that is built into.
fn debian() -> Result<PathBuf> {
    let bin = bin_dir();
    let mut found = bin.ancestors().map(|dir| dir.join("slurm-bed/root"));
    found
        .find(|root| root.join("usr/sbin/slurmctld").is_symlink())
        .context("no Debian with Slurm; `cargo xtask test` makes it")
}

impl SlurmBed {
    /// Starts it and waits until both nodes take jobs.
    ///
    /// # Errors
    /// Names what failed; not being root is the usual reason.
    pub fn start() -> Result<Self> {
        let debian = debian()?;
        let dir = tempfile::Builder::new().prefix("dstack-slurm.").tempdir()?;
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755))?;
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let tag = format!("s{:x}x{number}", std::process::id());
        let base = free_base(std::process::id().wrapping_add(31 + number * 60))?;
        let mut bed = Self {
            dir,
            tag,
            base: format!("{base}.7"),
            child: None,
        };
        let key = bed.key();
        run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &key])?;
        bed.network()?;
        bed.boot(&debian)?;
        let login = format!("{}:22", bed.login());
        let up = wait_for("the cluster", Duration::from_secs(60), || {
            if TcpStream::connect(&login).is_err() {
                return Ok(None);
            }
            let idle = bed
                .shell("sinfo -h -N -p cpu -t idle -o %N")
                .unwrap_or_default();
            Ok((idle.lines().count() == 2).then_some(()))
        });
        up.with_context(|| bed.logs())?;
        Ok(bed)
    }

    fn network(&self) -> Result<()> {
        let (tag, base) = (&self.tag, &self.base);
        let space = |place: &str| format!("{tag}{place}");
        for place in ["l", "a", "b"] {
            run("ip", &["netns", "add", &space(place)])?;
            run("ip", &["-n", &space(place), "link", "set", "lo", "up"])?;
        }
        let login = space("l");
        run(
            "ip",
            &["-n", &login, "link", "add", "br0", "type", "bridge"],
        )?;
        run(
            "ip",
            &[
                "-n",
                &login,
                "addr",
                "add",
                &format!("{base}.10/24"),
                "dev",
                "br0",
            ],
        )?;
        run("ip", &["-n", &login, "link", "set", "br0", "up"])?;
        for (place, last) in [("a", 11), ("b", 12)] {
            let (inner, outer) = (space(place), format!("p{place}"));
            run(
                "ip",
                &[
                    "-n", &inner, "link", "add", "eth0", "type", "veth", "peer", "name", &outer,
                    "netns", &login,
                ],
            )?;
            run(
                "ip",
                &[
                    "-n",
                    &inner,
                    "addr",
                    "add",
                    &format!("{base}.{last}/24"),
                    "dev",
                    "eth0",
                ],
            )?;
            run("ip", &["-n", &inner, "link", "set", "eth0", "up"])?;
            run(
                "ip",
                &["-n", &login, "link", "set", &outer, "master", "br0", "up"],
            )?;
        }
        let here = space("v");
        run(
            "ip",
            &[
                "link", "add", &here, "type", "veth", "peer", "name", "ph", "netns", &login,
            ],
        )?;
        run(
            "ip",
            &["-n", &login, "link", "set", "ph", "master", "br0", "up"],
        )?;
        run(
            "ip",
            &["addr", "add", &format!("{base}.1/24"), "dev", &here],
        )?;
        run("ip", &["link", "set", &here, "up"])
    }

    fn boot(&mut self, debian: &Path) -> Result<()> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../support/slurm/boot.sh");
        let log = fs::File::create(self.dir.path().join("boot.log"))?;
        let child = Command::new("unshare")
            .args(["--mount", "--uts", "--pid", "--fork", "--kill-child", "sh"])
            .arg(script)
            .arg(self.dir.path())
            .arg(debian)
            .args([&self.base, &self.tag])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start a cluster; unshare is in package util-linux")?;
        self.child = Some(child);
        Ok(())
    }

    /// The file of the private key of the cluster's user `researcher`.
    #[must_use]
    pub fn key(&self) -> String {
        self.dir.path().join("key").to_string_lossy().into_owned()
    }

    /// The address of the login node.
    #[must_use]
    pub fn login(&self) -> String {
        format!("{}.10", self.base)
    }

    /// The address of a node, 1 or 2.
    #[must_use]
    pub fn node(&self, number: u32) -> String {
        format!("{}.{}", self.base, 10 + number)
    }

    /// The address of this machine as the cluster reaches it.
    #[must_use]
    pub fn outside(&self) -> String {
        format!("{}.1", self.base)
    }

    /// Runs lines of `sh` at the login node, as its root.
    ///
    /// # Errors
    /// If they end with another code than 0; the text has what they wrote.
    pub fn shell(&self, lines: &str) -> Result<String> {
        let parent = self
            .child
            .as_ref()
            .map(Child::id)
            .context("no cluster runs")?;
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
        let pid = children
            .split_whitespace()
            .next()
            .context("the cluster has ended")?;
        let output = Command::new("nsenter")
            .args(["-t", pid, "-m", "-p", "-u"])
            .arg(format!("--net=/run/netns/{}l", self.tag))
            .arg("chroot")
            .arg(self.dir.path().join("root"))
            .args(["sh", "-ec", lines])
            .stdin(Stdio::null())
            .output()?;
        ensure!(
            output.status.success(),
            "{lines}: {} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The same as the user whose key this is.
    ///
    /// # Errors
    /// As [`SlurmBed::shell`].
    pub fn researcher(&self, command: &str) -> Result<String> {
        self.shell(&format!("su -s /bin/sh researcher -c '{command}'"))
    }

    /// The ends of all logs.
    #[must_use]
    pub fn logs(&self) -> String {
        let boot = fs::read_to_string(self.dir.path().join("boot.log")).unwrap_or_default();
        let rest = self.shell(
            "cd /var/log; tail -n 30 slurmctld.log slurmd-n1.log slurmd-n2.log srun.log; squeue; sinfo -N",
        );
        format!("{boot}\n{}", rest.unwrap_or_else(|error| error.to_string()))
    }
}

impl Drop for SlurmBed {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
        for place in ["l", "a", "b"] {
            drop(run(
                "ip",
                &["netns", "del", &format!("{}{place}", self.tag)],
            ));
        }
    }
}
