//! A real PostgreSQL server of a test's own: a cluster in a temporary folder, on a socket and a port of this machine.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The user who owns everything.
const USER: &str = "dstack";
/// Its password; anything else is refused.
pub const PASSWORD: &str = "test-database-password";
/// The system's user who runs the server when the tests are run by root, which PostgreSQL refuses to be run by.
const SYSTEM_USER: &str = "postgres";

/// A running server. It ends with this value, and with the thread that made it.
#[derive(Debug)]
pub struct Cluster {
    folder: tempfile::TempDir,
    bin: PathBuf,
    port: u16,
    settings: Vec<String>,
    child: Option<Child>,
    made: AtomicU32,
}

/// The newest installation of this machine.
fn bin() -> Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
    {
        let version = entry.file_name().to_string_lossy().parse();
        let bin = entry.path().join("bin");
        if let (Ok(version), true) = (version, bin.join("initdb").is_file()) {
            found.push((version, bin));
        }
    }
    found.sort();
    let newest = found.pop().map(|(_, bin)| bin);
    newest.context(
        "PostgreSQL is not installed: cargo xtask test does it, or apt-get install postgresql",
    )
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}

/// A program of the database, run by whom it wants to be run by.
fn program(path: &Path, ends_with_us: bool) -> Command {
    let mut command = if is_root() || ends_with_us {
        let mut command = Command::new("setpriv");
        if ends_with_us {
            command.args(["--pdeathsig", "INT"]);
        }
        if is_root() {
            command.args([
                "--reuid",
                SYSTEM_USER,
                "--regid",
                SYSTEM_USER,
                "--init-groups",
            ]);
        }
        command.arg(path);
        command
    } else {
        Command::new(path)
    };
    command
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .current_dir("/");
    command
}

fn done(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    ensure!(
        out.status.success(),
        "{command:?}\n{text}\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(text)
}

impl Cluster {
    /// A server that forgets all in a power cut: quick, and enough where only processes are killed.
    ///
    /// # Errors
    /// If PostgreSQL is not installed or does not start.
    pub fn start() -> Result<Self> {
        Self::with(&[
            "fsync=off",
            "full_page_writes=off",
            "synchronous_commit=off",
        ])
    }

    /// A server with these settings.
    ///
    /// # Errors
    /// If PostgreSQL is not installed or does not start.
    pub fn with(settings: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("dstack-pg.").tempdir()?;
        let bin = bin()?;
        if is_root() {
            done(Command::new("chown").arg(SYSTEM_USER).arg(folder.path()))?;
        }
        let words = folder.path().join("password");
        fs::write(&words, PASSWORD)?;
        done(
            program(&bin.join("initdb"), false)
                .arg("-D")
                .arg(folder.path().join("data"))
                .args(["-U", USER, "-A", "scram-sha-256", "--no-sync", "-E", "UTF8"])
                .arg("--pwfile")
                .arg(words),
        )?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut cluster = Self {
            folder,
            bin,
            port,
            settings: settings.iter().map(|it| (*it).to_owned()).collect(),
            child: None,
            made: AtomicU32::new(0),
        };
        cluster.resume()?;
        Ok(cluster)
    }

    /// Starts the server again after [`Cluster::stop`].
    ///
    /// # Errors
    /// If it does not answer within a minute; the text has its log.
    pub fn resume(&mut self) -> Result<()> {
        let path = self.folder.path().join("log");
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)?;
        let mut command = program(&self.bin.join("postgres"), true);
        command
            .arg("-D")
            .arg(self.folder.path().join("data"))
            .arg("-k")
            .arg(self.folder.path())
            .args(["-p", &self.port.to_string()])
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "max_connections=200",
            ]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let child = command.stdout(log.try_clone()?).stderr(log).spawn();
        self.child = Some(child.context("setpriv (util-linux) is needed")?);
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.sql("postgres", "SELECT 1").is_err() {
            if Instant::now() > deadline {
                bail!("PostgreSQL does not start:\n{}", fs::read_to_string(path)?);
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(())
    }

    /// Ends the server at once, as a crash does.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            done(Command::new("kill").args(["-QUIT", &child.id().to_string()]))?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts the server again with TLS.
    ///
    /// # Errors
    /// If a file cannot be copied, or the server does not start with it.
    pub fn use_certificate(&mut self, cert: &str, key: &str) -> Result<()> {
        self.stop()?;
        for (from, name, setting) in [
            (cert, "server.crt", "ssl_cert_file"),
            (key, "server.key", "ssl_key_file"),
        ] {
            let to = self.folder.path().join(name);
            fs::copy(from, &to)?;
            done(Command::new("chmod").arg("600").arg(&to))?;
            if is_root() {
                done(Command::new("chown").arg(SYSTEM_USER).arg(&to))?;
            }
            self.settings.push(format!("{setting}={}", to.display()));
        }
        self.settings.push("ssl=on".to_owned());
        self.resume()
    }

    /// Runs statements in a database as its owner; what they print.
    ///
    /// # Errors
    /// If one fails.
    pub fn sql(&self, database: &str, text: &str) -> Result<String> {
        let mut command = Command::new(self.bin.join("psql"));
        command
            .env("PGPASSWORD", PASSWORD)
            .args(["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1"])
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-U", USER, "-d", database, "-c", text])
            .stdin(Stdio::null());
        Ok(done(&mut command)?.trim().to_owned())
    }

    /// Makes an empty database; its address.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn database(&self) -> Result<String> {
        let name = format!("test{}", self.made.fetch_add(1, Ordering::Relaxed));
        self.database_named(&name)
    }

    /// Makes an empty database of this name; its address.
    ///
    /// # Errors
    /// If there is one of this name, or the server does not answer.
    pub fn database_named(&self, name: &str) -> Result<String> {
        self.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(self.url(name))
    }

    /// The address of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("{}/{database}", self.root())
    }

    /// The address without a database.
    #[must_use]
    pub fn root(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}", self.port)
    }

    /// The folder of the server's socket.
    #[must_use]
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Makes an empty database on a server whose address without a database this is; its address.
///
/// # Errors
/// If the server does not answer, or has a database of this name.
pub fn create_database(root: &str, name: &str) -> Result<String> {
    let mut command = Command::new(bin()?.join("psql"));
    command
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d"])
        .arg(format!("{root}/postgres"))
        .args(["-c", &format!("CREATE DATABASE {name}")])
        .stdin(Stdio::null());
    done(&mut command)?;
    Ok(format!("{root}/{name}"))
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.stop());
    }
}
