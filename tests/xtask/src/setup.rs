//! What tests need of the machine: Debian packages, a Docker engine, the test image.

mod slurm;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::{output, root, run, succeeds, target};

/// Debian packages that tests use, beside what a Rust machine has.
const PACKAGES: &[&str] = &[
    "docker.io",
    "docker-registry",
    "iptables",
    "cgroupfs-mount",
    "openssh-server",
    "openssh-client",
    "busybox-static",
    "debootstrap",
    "iproute2",
    "git",
    "procps",
    "e2fsprogs",
    "postgresql",
];

/// Another `apt-get` may be at work, as on a machine just started.
const WAIT: &str = "-oDPkg::Lock::Timeout=600";

/// The package of the official server, from PyPI.
const OFFICIAL: &str = "dstack==0.22.5";

/// The server that plays AWS, from PyPI.
const MOTO: &str = "moto[server]==5.2.5";

/// Installs, starts and makes everything that tests need. What is already there is used as it is.
///
/// # Errors
/// Names what is missing if this user may not install it.
pub(crate) fn prepare() -> Result<()> {
    packages(PACKAGES)?;
    docker_engine()?;
    small_image()?;
    slurm::chroot()?;
    python_environment("official-clients", OFFICIAL, "the official clients")?;
    python_environment("moto", MOTO, "moto, which plays AWS")
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id == "0")
}

/// A command as root: directly, or by `sudo` where it asks for nothing.
fn as_root(program: &str) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["-n", "-E", program]);
    command
}

fn packages(names: &[&str]) -> Result<()> {
    let missing: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| !installed(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root() && !succeeds("sudo", &["-n", "true"]) {
        bail!("the tests need these packages; install them as root: apt-get install {list}");
    }
    println!("==> installing {list}");
    run(as_root("apt-get").args(["update", "-qq", WAIT]))?;
    run(as_root("apt-get")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", WAIT, "-y", "-qq", "--no-install-recommends"])
        .args(&missing)
        .stdout(Stdio::null()))
}

fn installed(name: &str) -> bool {
    output(Command::new("dpkg-query").args(["-W", "-f", "${Status}", name]))
        .is_ok_and(|status| status.ends_with("ok installed"))
}

/// Uses the engine that runs; else starts one, which stays for the next call.
fn docker_engine() -> Result<()> {
    if succeeds("docker", &["info"]) {
        return Ok(());
    }
    if !is_root() {
        bail!("no Docker engine answers; start one, or let this user reach it (group docker)");
    }
    println!("==> starting a Docker engine");
    if !succeeds("mountpoint", &["-q", "/sys/fs/cgroup"]) {
        run(&mut Command::new("cgroupfs-mount"))?;
    }
    drop_stale_pid_file();
    let log = fs::File::create(std::env::temp_dir().join("dockerd.log"))?;
    let mut engine = Command::new("dockerd");
    engine
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    engine.spawn()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !succeeds("docker", &["info"]) {
        if Instant::now() > deadline {
            let text =
                fs::read_to_string(std::env::temp_dir().join("dockerd.log")).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(15).collect();
            bail!(
                "the Docker engine does not answer:\n{}",
                tail.into_iter().rev().collect::<Vec<_>>().join("\n")
            );
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    Ok(())
}

/// An engine refuses to start if the number in the file of an earlier one is in use by now.
fn drop_stale_pid_file() {
    for path in [
        "/var/run/docker.pid",
        "/run/docker/containerd/containerd.pid",
    ] {
        let Ok(pid) = fs::read_to_string(path) else {
            continue;
        };
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.trim())).unwrap_or_default();
        if !matches!(name.trim(), "dockerd" | "containerd") {
            drop(fs::remove_file(path));
        }
    }
}

/// A package of PyPI in a Python environment of its own. It stays in the folder that is built into, until another version is
/// wanted.
fn python_environment(folder: &str, package: &str, what: &str) -> Result<()> {
    let place = target().join(folder);
    let mark = place.join(package.replace("==", "-").replace(['[', ']'], "-"));
    if mark.exists() {
        return Ok(());
    }
    if !succeeds("python3", &["-c", "import ensurepip, venv"]) {
        packages(&["python3", "python3-venv"])?;
    }
    println!("==> installing {what}");
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    run(Command::new(place.join("bin/python"))
        .args(["-m", "pip", "install", "--quiet"])
        .args(["--disable-pip-version-check", package]))?;
    Ok(fs::write(mark, "")?)
}

/// The image of the tests: a few programs of this machine, no registry.
fn small_image() -> Result<()> {
    if succeeds("docker", &["image", "inspect", "dstack-test/small:1"]) {
        return Ok(());
    }
    println!("==> making the image dstack-test/small:1");
    let script = root().join(Path::new("tests/support/images/small.sh"));
    run(Command::new("sh").arg(script))
}
