//! Hosts as people bring them: each has a network and mounts of its own, an SSH server, and maybe a Docker engine.
//!
//! ```text
//! this machine  .1.1 ── .1.2 ┐ first host    .9.2 ┐
//!               .2.1 ── .2.2 ┘ second host   .9.3 ┘ the hosts' private network
//! ```

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use dstack_test_support::server::wait_for;

/// The image of tasks on these hosts.
pub const IMAGE: &str = "dstack-test/nodes:1";

static STARTED: AtomicU32 = AtomicU32::new(0);

/// Two hosts, and the key that opens them. Everything ends with this value.
#[derive(Debug)]
pub struct OwnHosts {
    dir: tempfile::TempDir,
    /// In names of interfaces and namespaces.
    tag: String,
    /// `10.x.y`: the start of all addresses but for the last two numbers.
    base: String,
    /// Lines of the hosts' boot, before the engine; `$H` is the host's folder.
    boot: &'static str,
}

impl OwnHosts {
    /// Starts both hosts; with `has_engine` each has a Docker engine with [`IMAGE`].
    ///
    /// # Errors
    /// Names the command that failed; not being root is the usual reason.
    pub fn start(has_engine: bool) -> Result<Self> {
        Self::start_as(has_engine, "")
    }

    /// The same with lines of `sh` in each host's boot, before the engine starts; `$H` is the host's folder.
    ///
    /// # Errors
    /// As [`OwnHosts::start`].
    pub fn start_as(has_engine: bool, boot: &'static str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("dstack-hosts.").tempdir()?;
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755))?;
        // Tests may share a process.
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let tag = format!("d{:x}x{number}", std::process::id());
        let base = free_base(std::process::id().wrapping_add(number * 60))?;
        let hosts = Self {
            dir,
            tag,
            base,
            boot,
        };
        for name in ["key", "stranger"] {
            let file = hosts.path(name);
            run(
                "ssh-keygen",
                &["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", &file],
            )?;
        }
        for number in [1, 2] {
            hosts.network(number)?;
        }
        let (one, two) = (hosts.namespace(1), hosts.namespace(2));
        let (a, b) = (format!("{}p1", hosts.tag), format!("{}p2", hosts.tag));
        run(
            "ip",
            &["link", "add", &a, "type", "veth", "peer", "name", &b],
        )?;
        for (link, space, last) in [(&a, &one, 2), (&b, &two, 3)] {
            run("ip", &["link", "set", link, "netns", space, "name", "eth1"])?;
            let address = format!("{}.9.{last}/24", hosts.base);
            run("ip", &["-n", space, "addr", "add", &address, "dev", "eth1"])?;
            run("ip", &["-n", space, "link", "set", "eth1", "up"])?;
        }
        for number in [1, 2] {
            hosts.files(number)?;
            hosts.boot(number, has_engine)?;
        }
        for number in [1, 2] {
            let address = format!("{}:22", hosts.address(number));
            wait_for("the ssh server of a host", Duration::from_secs(20), || {
                Ok(TcpStream::connect(&address).ok())
            })?;
        }
        if has_engine {
            hosts.images()?;
        }
        Ok(hosts)
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_string_lossy().into_owned()
    }

    fn namespace(&self, number: u32) -> String {
        format!("{}n{number}", self.tag)
    }

    /// The file of the private key, an RSA key as many people have.
    #[must_use]
    pub fn key(&self) -> String {
        self.path("key")
    }

    /// The file of a key that opens nothing.
    #[must_use]
    pub fn strange_key(&self) -> String {
        self.path("stranger")
    }

    /// The address of a host (1 or 2) as this machine reaches it.
    #[must_use]
    pub fn address(&self, number: u32) -> String {
        format!("{}.{number}.2", self.base)
    }

    /// A second address of the same host, by which it counts as another one.
    #[must_use]
    pub fn other_address(&self, number: u32) -> String {
        format!("{}.{number}.3", self.base)
    }

    /// Further addresses of the same host, each of which counts as another one; `last` is 4 or 5.
    #[must_use]
    pub fn alias(&self, number: u32, last: u32) -> String {
        format!("{}.{number}.{last}", self.base)
    }

    /// Runs a command within a host, as its root.
    ///
    /// # Errors
    /// If it fails.
    pub fn within(&self, number: u32, command: &[&str]) -> Result<()> {
        let all = self.processes(number)?;
        let sshd = all.iter().find(|(_, line)| line.contains("sshd"));
        let (pid, _) = sshd.context("the host does not run")?;
        let net = format!("--net=/run/netns/{}", self.namespace(number));
        let mount = format!("--mount=/proc/{pid}/ns/mnt");
        let mut args = vec![net.as_str(), mount.as_str(), "--"];
        args.extend(command);
        run("nsenter", &args)
    }

    /// The address of this machine as all hosts reach it.
    #[must_use]
    pub fn outside(&self) -> String {
        format!("{}.1.1", self.base)
    }

    /// The network that only the hosts share.
    #[must_use]
    pub fn private_network(&self) -> String {
        format!("{}.9.0/24", self.base)
    }

    /// An address where nobody is.
    #[must_use]
    pub fn nobody(&self) -> String {
        format!("{}.1.77", self.base)
    }

    /// A file of a host: `root/…`, `run/…`, `bin/…`, `home/…`, `systemd/…`.
    #[must_use]
    pub fn file(&self, number: u32, name: &str) -> PathBuf {
        self.dir.path().join(format!("h{number}")).join(name)
    }

    fn network(&self, number: u32) -> Result<()> {
        let space = self.namespace(number);
        let link = format!("{}v{number}", self.tag);
        let (outer, inner) = (
            format!("{}.{number}.1/24", self.base),
            format!("{}.{number}.2/24", self.base),
        );
        run("ip", &["netns", "add", &space])?;
        run(
            "ip",
            &[
                "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &space,
            ],
        )?;
        run("ip", &["addr", "add", &outer, "dev", &link])?;
        run("ip", &["link", "set", &link, "up"])?;
        run("ip", &["-n", &space, "addr", "add", &inner, "dev", "eth0"])?;
        for other in [
            self.other_address(number),
            self.alias(number, 4),
            self.alias(number, 5),
        ] {
            let other = format!("{other}/24");
            run("ip", &["-n", &space, "addr", "add", &other, "dev", "eth0"])?;
        }
        run("ip", &["-n", &space, "link", "set", "eth0", "up"])?;
        run("ip", &["-n", &space, "link", "set", "lo", "up"])?;
        let (all, gate) = (
            format!("{}.0.0/16", self.base),
            format!("{}.{number}.1", self.base),
        );
        run("ip", &["-n", &space, "route", "add", &all, "via", &gate])
    }

    fn files(&self, number: u32) -> Result<()> {
        let at = |name: &str| self.file(number, name);
        for folder in [
            "root/.ssh",
            "run/sshd",
            "bin",
            "systemd",
            "home/walker/.ssh",
            "docker",
            "etc",
        ] {
            fs::create_dir_all(at(folder))?;
        }
        // Keys of other people stay as they are, also without a line break at the end.
        let key = fs::read_to_string(self.path("key.pub"))?;
        fs::write(at("root/.ssh/authorized_keys"), key.trim_end())?;
        fs::write(at("home/walker/.ssh/authorized_keys"), &key)?;
        fs::set_permissions(at("root"), PermissionsExt::from_mode(0o700))?;
        let accounts = "root:x:0:0:root:/root:/bin/sh\nwalker:x:4711:4711::/home/walker:/bin/sh\n\
                        sshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n";
        fs::write(at("etc/passwd"), accounts)?;
        fs::write(
            at("etc/shadow"),
            "root:*:19000::::::\nwalker:*:19000::::::\n",
        )?;
        run(
            "chown",
            &["-R", "4711:4711", &at("home/walker").to_string_lossy()],
        )?;
        let host_key = at("etc/host_key");
        run(
            "ssh-keygen",
            &[
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-f",
                &host_key.to_string_lossy(),
            ],
        )?;
        let config = format!(
            "Port 22\nListenAddress 0.0.0.0\nPidFile none\nHostKey {}\nAuthorizedKeysFile .ssh/authorized_keys\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin yes\nStrictModes no\n",
            host_key.display()
        );
        fs::write(at("etc/sshd_config"), config)?;
        Ok(())
    }

    fn boot(&self, number: u32, has_engine: bool) -> Result<()> {
        let dir = self.file(number, "");
        let dir = dir.display();
        let mut script = format!(
            "mount --make-rprivate /\nmount --bind {dir}/root /root\nmount --bind {dir}/home /home\n\
             mount --bind {dir}/run /run\nmount --bind {dir}/bin /usr/local/bin\nmkdir -p /etc/systemd/system\n\
             mount --bind {dir}/systemd /etc/systemd/system\nmount --bind {dir}/etc/passwd /etc/passwd\n\
             mount --bind {dir}/etc/shadow /etc/shadow\nH={dir}\n{}\n",
            self.boot
        );
        let engine = format!(
            "exec dockerd --data-root {dir}/docker --exec-root /run/dk --pidfile /run/dk.pid -H unix:///run/docker.sock \
             >>{dir}/dockerd.log 2>&1\n"
        );
        fs::write(self.file(number, "etc/engine.sh"), engine)?;
        if has_engine {
            script.push_str(&format!("sh {dir}/etc/engine.sh &\n"));
        }
        script.push_str(&format!(
            "exec /usr/sbin/sshd -D -e -f {dir}/etc/sshd_config\n"
        ));
        let file = self.file(number, "etc/boot.sh");
        fs::write(&file, script)?;
        let log = fs::File::create(self.file(number, "sshd.log"))?;
        Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.namespace(number)))
            .args(["unshare", "-m", "--propagation", "private", "sh"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start a host; nsenter and unshare are in package util-linux")?;
        Ok(())
    }

    /// Gives the engines the image of the tests.
    fn images(&self) -> Result<()> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../support/images/small.sh");
        run("sh", &[&script.to_string_lossy(), IMAGE])?;
        let tar = self.path("image.tar");
        run("docker", &["save", "-o", &tar, IMAGE])?;
        for number in [1, 2] {
            let socket = self.file(number, "run/docker.sock");
            let engine = format!("unix://{}", socket.display());
            wait_for("the engine of a host", Duration::from_secs(30), || {
                let info = Command::new("docker")
                    .args(["-H", &engine, "info"])
                    .output()?;
                Ok(info.status.success().then_some(()))
            })
            .with_context(|| {
                fs::read_to_string(self.file(number, "dockerd.log")).unwrap_or_default()
            })?;
            run("docker", &["-H", &engine, "load", "-q", "-i", &tar])?;
        }
        Ok(())
    }

    /// Takes the cable of a host out, or puts it back.
    ///
    /// # Errors
    /// If that fails.
    pub fn cable(&self, number: u32, is_in: bool) -> Result<()> {
        let link = format!("{}v{number}", self.tag);
        run(
            "ip",
            &["link", "set", &link, if is_in { "up" } else { "down" }],
        )
    }

    /// Runs lines of `sh` as the host would: with its network, its mounts and its root.
    ///
    /// # Errors
    /// If they end with another code than 0; the text has what they wrote.
    pub fn shell(&self, number: u32, lines: &str) -> Result<String> {
        let output = self.inside(number)?.args(["-ec", lines]).output()?;
        ensure!(
            output.status.success(),
            "{lines}: {} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `sh` in the host's namespaces.
    fn inside(&self, number: u32) -> Result<Command> {
        let all = self.processes(number)?;
        let server = all.iter().find(|(_, line)| line.contains("sshd -D -e -f "));
        let (pid, _) = server.with_context(|| format!("no ssh server among {all:?}"))?;
        let mut command = Command::new("nsenter");
        command
            .args(["--net", "--mount", "-t", pid, "sh"])
            .stdin(Stdio::null());
        Ok(command)
    }

    /// A `docker` command of a host's engine.
    ///
    /// # Errors
    /// If it fails.
    pub fn docker(&self, number: u32, args: &[&str]) -> Result<String> {
        let socket = self.file(number, "run/docker.sock");
        let engine = format!("unix://{}", socket.display());
        let output = Command::new("docker")
            .args(["-H", &engine])
            .args(args)
            .output()?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "docker {args:?}: {error}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Kills a host's engine as a crash would, and starts it again, as its init system would.
    ///
    /// # Errors
    /// If it does not answer again within a minute.
    pub fn lose_engine(&self, number: u32) -> Result<()> {
        let files =
            ["run/dk.pid", "run/dk/containerd/containerd.pid"].map(|name| self.file(number, name));
        let mut pids = Vec::new();
        for file in &files {
            pids.push(fs::read_to_string(file)?.trim().to_owned());
        }
        run("kill", &["-9", &pids[0]])?;
        // What the engine runs on ends with it, a moment later.
        for pid in &pids {
            wait_for("the end of an engine", Duration::from_secs(20), || {
                let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                let is_over = status.is_empty() || status.contains(") Z ");
                Ok(is_over.then_some(()))
            })?;
        }
        // One that nobody has waited for yet, and another process with the number, would be taken for it.
        for file in &files {
            drop(fs::remove_file(file));
        }
        let script = self.file(number, "etc/engine.sh");
        self.inside(number)?
            .arg(script)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        wait_for("an engine that comes back", Duration::from_secs(60), || {
            Ok(self.docker(number, &["version"]).ok())
        })
        .with_context(|| {
            fs::read_to_string(self.file(number, "dockerd.log")).unwrap_or_default()
        })?;
        Ok(())
    }

    /// Processes of a host, with their command lines.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn processes(&self, number: u32) -> Result<Vec<(String, String)>> {
        let pids = Command::new("ip")
            .args(["netns", "pids", &self.namespace(number)])
            .output()?;
        let pids = String::from_utf8_lossy(&pids.stdout).into_owned();
        let line = |pid: &str| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            (pid.to_owned(), line)
        };
        Ok(pids.split_whitespace().map(line).collect())
    }

    /// Kills what the shim of a host consists of, as a boot would.
    ///
    /// # Errors
    /// If there is none.
    pub fn lose_shim(&self, number: u32) -> Result<()> {
        let all = self.processes(number)?;
        let shims: Vec<&str> = all
            .iter()
            .filter(|(_, line)| line.contains("dstack-shim"))
            .map(|(pid, _)| pid.as_str())
            .collect();
        ensure!(!shims.is_empty(), "no shim among {all:?}");
        let mut args = vec!["-9"];
        args.extend(shims);
        run("kill", &args)?;
        drop(fs::remove_dir_all(self.file(number, "run/dstack-shim")));
        Ok(())
    }

    /// What is left of ours on a host; empty if it is clean.
    ///
    /// # Errors
    /// If its processes cannot be listed.
    pub fn traces(&self, number: u32) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for name in ["bin", "systemd", "root/.dstack", "run/dstack-shim"] {
            let entries = fs::read_dir(self.file(number, name)).into_iter().flatten();
            found.extend(
                entries
                    .flatten()
                    .map(|entry| entry.path().display().to_string()),
            );
        }
        if self.file(number, "root/.dstack").exists() {
            found.push("root/.dstack".to_owned());
        }
        let keys = fs::read_to_string(self.file(number, "root/.ssh/authorized_keys"))?;
        let ours = |line: &&str| line.contains("dstack");
        found.extend(keys.lines().filter(ours).map(str::to_owned));
        let ours = |line: &String| line.contains("dstack-shim") || line.contains("dstack-runner");
        let running = self.processes(number)?.into_iter().map(|(_, line)| line);
        found.extend(running.filter(ours));
        Ok(found)
    }

    /// What helps to understand a failure.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for number in [1, 2] {
            for name in [
                "root/.dstack/shim.log",
                "run/dstack-shim/out.log",
                "sshd.log",
            ] {
                let log = fs::read_to_string(self.file(number, name)).unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(25).collect();
                text.push_str(&format!("--- host {number} {name}\n"));
                for line in lines.into_iter().rev() {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
        text
    }

    fn end(&self, number: u32) {
        for signal in ["-TERM", "-KILL", "-KILL"] {
            let pids = self.processes(number).unwrap_or_default();
            if pids.is_empty() {
                break;
            }
            let mut kill = Command::new("kill");
            kill.arg(signal).args(pids.iter().map(|(pid, _)| pid));
            drop(kill.stderr(Stdio::null()).status());
            let gone = wait_for("the end of a host", Duration::from_secs(4), || {
                Ok(self.processes(number)?.is_empty().then_some(()))
            });
            if gone.is_ok() {
                break;
            }
        }
        let space = self.namespace(number);
        drop(Command::new("ip").args(["netns", "del", &space]).status());
        let link = format!("{}v{number}", self.tag);
        let del = Command::new("ip")
            .args(["link", "del", &link])
            .stderr(Stdio::null())
            .status();
        drop(del);
    }
}

impl Drop for OwnHosts {
    fn drop(&mut self) {
        self.end(1);
        self.end(2);
    }
}

/// A start of addresses that no interface has.
pub(crate) fn free_base(seed: u32) -> Result<String> {
    let taken = Command::new("ip").args(["-4", "-o", "addr"]).output()?;
    let taken = String::from_utf8_lossy(&taken.stdout).into_owned();
    let start = seed % 120;
    let mut bases = (0..120).map(|step| format!("10.{}", 100 + (start + step) % 120));
    let free = bases.find(|base| !taken.contains(&format!(" {base}.")));
    free.context("every network 10.100 to 10.219 is taken on this machine")
}

pub(crate) fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{program} {}: {}", args.join(" "), error.trim());
    }
    Ok(())
}
