//! Tasks without containers: the runner as a process of this machine.
//!
//! ```text
//! shim ─► keeper (own session, outlives the shim) ─► init (namespaces, cgroup) ─► runner ─► job
//! ```
//!
//! The keeper is this program under another command: it waits for the runner, ends whatever is left of the job and
//! writes the exit code to a file, so that a shim started later learns how the task ended.

mod cgroup;
mod init;
mod keeper;
mod namespaces;
mod record;
mod targets;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use dstack_agent_protocol::process_runtime::{
    DSTACK_DIR, HOME_DIR, PORT_FILE_FLAG, TASK_DIR_FLAG, TMP_DIR, WORK_DIR,
};
use dstack_agent_protocol::shim::PortMapping;
use dstack_agent_protocol::{RUNNER_PORT, shim::TaskConfig};
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use tokio::process::{Child, Command};
use tokio::time::Instant;

pub use keeper::{KEEPER_COMMAND, run_keeper};
pub(crate) use record::{Outcome, ProcessRecord};
pub(crate) use targets::remove_unused as remove_unused_targets;

use crate::args::{TaskDefaults, env_text};
use crate::docker::last_lines_of_file;
use crate::gpu::Vendor;
use crate::volumes::volume_dir;
use keeper::{HARD_STOP, KeeperSpec};

const PORT_FILE: &str = "runner.port";
const OUTPUT_FILE: &str = "runner.out";
/// Variables of the shim's environment that a job may need. Others stay out: they may hold what is not the job's.
const KEPT_VARIABLES: [&str; 6] = ["PATH", "LANG", "TZ", "USER", "LOGNAME", "LD_LIBRARY_PATH"];
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long a runner may take until it accepts connections.
const START_LIMIT: Duration = Duration::from_secs(15);
/// The start of a task is what users wait for, so the port file is looked at often.
const START_POLL: Duration = Duration::from_millis(2);
const STOP_POLL: Duration = Duration::from_millis(10);
/// How long the keeper may take to end everything, before it is killed itself.
const HARD_STOP_LIMIT: Duration = Duration::from_secs(4);

/// A task that did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The process could not be made.
    #[error("{0}")]
    Create(#[from] io::Error),
    /// The runner ended, or did not open its port; the text is what it wrote last.
    #[error("{0}")]
    Exited(String),
}

/// What a process needs besides the task's own configuration.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) config: &'a TaskConfig,
    pub(crate) defaults: &'a TaskDefaults,
    /// Name of the task directory.
    pub(crate) name: &'a str,
    pub(crate) dir: &'a Path,
    pub(crate) vendor: Option<Vendor>,
    pub(crate) gpus: &'a [String],
}

/// Makes the task's directories.
pub(crate) fn prepare(dir: &Path) -> io::Result<()> {
    for name in [WORK_DIR, TMP_DIR, DSTACK_DIR, HOME_DIR] {
        match DirBuilder::new().mode(0o755).create(dir.join(name)) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
            _ => {}
        }
    }
    Ok(())
}

/// A keeper that waits for its instructions: the caller writes the record down before it goes on.
#[derive(Debug)]
pub(crate) struct Spawned {
    child: Child,
    spec: KeeperSpec,
    pub(crate) record: ProcessRecord,
}

/// Starts the keeper of a task.
pub(crate) fn spawn(request: &Request<'_>) -> io::Result<Spawned> {
    let runner = &request.defaults.runner_binary;
    if !runner.is_file() {
        let text = format!("the runner {} does not exist", runner.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let output = OpenOptions::new()
        .create(true)
        .append(true)
        .open(request.dir.join(OUTPUT_FILE))?;
    // The running file itself, even if an update has replaced its name meanwhile.
    let child = Command::new("/proc/self/exe")
        .arg(KEEPER_COMMAND)
        .arg(request.name)
        .env_clear()
        .current_dir(request.dir)
        .stdin(Stdio::piped())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    let pid = child
        .id()
        .ok_or_else(|| io::Error::other("the keeper ended at once"))?;
    let record = ProcessRecord::of(pid)?;
    Ok(Spawned {
        child,
        spec: spec(request),
        record,
    })
}

impl Spawned {
    /// Lets the keeper go on and waits until the runner accepts connections.
    pub(crate) async fn release(mut self, dir: &Path) -> Result<Vec<PortMapping>, StartError> {
        use tokio::io::AsyncWriteExt;
        let json = serde_json::to_vec(&self.spec).map_err(io::Error::from)?;
        let mut stdin = self
            .child
            .stdin
            .take()
            .ok_or_else(|| io::Error::other("no stdin"))?;
        stdin.write_all(&json).await?;
        drop(stdin);
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(ports) = ports(dir) {
                return Ok(ports);
            }
            if self.child.try_wait()?.is_some() {
                return Err(StartError::Exited(last_lines_of_file(
                    &dir.join(OUTPUT_FILE),
                )));
            }
            if Instant::now() >= deadline {
                return Err(StartError::Exited(format!(
                    "the runner did not open its port within {} s\n{}",
                    START_LIMIT.as_secs(),
                    last_lines_of_file(&dir.join(OUTPUT_FILE))
                )));
            }
            tokio::time::sleep(START_POLL).await;
        }
    }
}

/// The runner's port, once it has told it.
pub(crate) fn ports(dir: &Path) -> Option<Vec<PortMapping>> {
    let text = fs::read_to_string(dir.join(PORT_FILE)).ok()?;
    let host = text.strip_suffix('\n')?.trim().parse().ok()?;
    Some(vec![PortMapping {
        host,
        container: RUNNER_PORT,
    }])
}

/// What the runner wrote last. If somebody killed it, that says so first, since it could not itself.
pub(crate) fn why_ended(code: i32, dir: &Path) -> String {
    let lines = last_lines_of_file(&dir.join(OUTPUT_FILE));
    match code
        .checked_sub(128)
        .and_then(|it| Signal::try_from(it).ok())
    {
        Some(signal) => format!("the runner was ended by {signal}; its last lines:\n{lines}"),
        None => lines,
    }
}

/// Ends a task's processes, politely for `timeout_s` seconds, then by force. Ended ones are fine.
pub(crate) async fn stop(record: &ProcessRecord, name: &str, timeout_s: u32) -> Result<(), String> {
    if timeout_s > 0 && record.signal(Signal::SIGTERM) {
        wait_for_end(record, Duration::from_secs(u64::from(timeout_s))).await;
    }
    if record.signal(HARD_STOP) && !wait_for_end(record, HARD_STOP_LIMIT).await {
        // The keeper hangs. Its children die with it where the kernel does that; the control group has the rest.
        record::kill_tree(record);
        if !wait_for_end(record, HARD_STOP_LIMIT).await {
            return Err(format!("process {} does not end", record.pid()));
        }
    }
    cgroup::end(name);
    Ok(())
}

async fn wait_for_end(record: &ProcessRecord, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while record.is_alive() {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(STOP_POLL).await;
    }
    true
}

fn spec(request: &Request<'_>) -> KeeperSpec {
    let config = request.config;
    let dir = request.dir;
    let mut env: Vec<(String, String)> = KEPT_VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), env_text(name)?)))
        .collect();
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".to_owned(), DEFAULT_PATH.to_owned()));
    }
    env.push((
        "HOME".to_owned(),
        dir.join(HOME_DIR).to_string_lossy().into_owned(),
    ));
    env.extend(request.defaults.env.iter().cloned());
    env.extend(gpu_variable(request.vendor, request.gpus));
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    KeeperSpec {
        task_dir: dir.to_owned(),
        name: request.name.to_owned(),
        work_dir: dir.join(WORK_DIR),
        command: vec![
            text(request.defaults.runner_binary.clone()),
            "--log-level".to_owned(),
            request.defaults.runner_log_level.clone(),
            "start".to_owned(),
            TASK_DIR_FLAG.to_owned(),
            text(dir.to_owned()),
            "--http-address".to_owned(),
            "127.0.0.1".to_owned(),
            "--http-port".to_owned(),
            "0".to_owned(),
            PORT_FILE_FLAG.to_owned(),
            text(dir.join(PORT_FILE)),
        ],
        env,
        cpus: config.cpu,
        memory_bytes: config.memory,
        binds: binds(config),
        is_root: Uid::effective().is_root(),
    }
}

/// Directories of the machine, and where the job sees them.
pub(crate) fn binds(config: &TaskConfig) -> Vec<(PathBuf, PathBuf)> {
    let instance = config.instance_mounts.iter();
    let elsewhere = instance.filter(|mount| mount.instance_path != mount.path);
    let volumes = config.volume_mounts.iter();
    elsewhere
        .map(|mount| {
            (
                mount.instance_path.clone().into(),
                mount.path.clone().into(),
            )
        })
        .chain(volumes.map(|mount| (volume_dir(&mount.name), mount.path.clone().into())))
        .collect()
}

/// Without device control groups a variable tells the libraries which GPUs are the job's.
fn gpu_variable(vendor: Option<Vendor>, gpus: &[String]) -> Option<(String, String)> {
    let name = match vendor? {
        Vendor::Nvidia => "CUDA_VISIBLE_DEVICES",
        Vendor::Intel => "HABANA_VISIBLE_DEVICES",
        Vendor::Tenstorrent => "TT_VISIBLE_DEVICES",
        // The ids are render nodes, which AMD's variable does not take.
        Vendor::Amd => return None,
    };
    Some((name.to_owned(), gpus.join(",")))
}

/// Appends a line to the keeper's output, which is the task's output file.
fn note(text: std::fmt::Arguments<'_>) {
    // There is nobody to tell if this fails.
    drop(writeln!(io::stderr(), "{text}"));
}
