//! A fake provider as a program of its own, for whoever has only the built plugin: `dstack backend check FILE.so` starts the
//! one that is built beside it.
//!
//! Such a program serves on a free port, says where in its first line of output (`{"provider": "http://…", "config": {…}}`) and
//! ends when its standard input does. One in another language joins in by doing the same.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dstack_backend_loader::inspect;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Provider;

/// How long a program may take to say where it serves.
const PATIENCE: Duration = Duration::from_secs(20);

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    /// Its address.
    provider: String,
    /// A configuration that it accepts, as a section of `config.yml`.
    #[serde(default)]
    config: Option<Value>,
}

impl Provider {
    /// All that such a program does: says where it serves and which configuration it accepts, and serves until the standard
    /// input ends.
    ///
    /// # Errors
    /// If the line cannot be written or the input not be read.
    pub fn serve(&self, config: &Value) -> io::Result<()> {
        let hello = Hello {
            provider: self.url().to_owned(),
            config: Some(config.clone()),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&hello)?)?;
        out.flush()?;
        io::copy(&mut io::stdin().lock(), &mut io::sink()).map(|_| ())
    }
}

/// The program that cargo has built beside a plugin from `examples/<name>-provider.rs`; `None` if there is none, or if the file
/// is no plugin.
pub fn beside(plugin: &Path) -> Option<PathBuf> {
    let name = format!("{}-provider", inspect(plugin).ok()?.manifest.name);
    let folder = plugin.canonicalize().ok()?;
    let folder = folder.parent()?;
    [Some(folder), folder.parent()]
        .into_iter()
        .flatten()
        .map(|folder| folder.join("examples").join(&name))
        .find(|path| path.is_file())
}

/// A running program; it is told to end when this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    pub(crate) url: String,
    pub(crate) config: Option<Value>,
}

impl Program {
    pub(crate) fn start(path: &Path) -> io::Result<Self> {
        let mut child = Command::new(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (sender, first) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                let mut output = BufReader::new(output);
                let mut line = String::new();
                let read = output.by_ref().take(1 << 20).read_line(&mut line);
                drop(sender.send(read.map(|_| line)));
                // What else it says must not block it.
                drop(io::copy(&mut output, &mut io::sink()));
            });
        }
        let mut program = Self {
            child,
            url: String::new(),
            config: None,
        };
        let line = first
            .recv_timeout(PATIENCE)
            .map_err(|_| io::Error::other("it did not say where it serves"))??;
        let hello: Hello = serde_json::from_str(&line).map_err(|_| {
            io::Error::other(format!(
                "its first line is not {{\"provider\": \"http://…\"}}: {:?}",
                line.chars().take(80).collect::<String>()
            ))
        })?;
        hello
            .provider
            .trim_end_matches('/')
            .clone_into(&mut program.url);
        program.config = hello.config;
        Ok(program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It has nothing to lose.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
