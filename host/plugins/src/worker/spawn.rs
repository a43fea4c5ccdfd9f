//! Starts a worker's process.

use super::WorkerProgram;
use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::Stdio,
    sync::{OnceLock, mpsc},
};
use tokio::{
    process::{Child, Command},
    sync::oneshot,
};

type Job = Box<dyn FnOnce() + Send>;

/// Runs it on the one thread that starts workers. A worker asks the kernel to be killed when its parent *thread* ends, so
/// that thread must live as long as this process.
fn on_spawner(job: Job) -> io::Result<()> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts workers is gone");
    let sender = match SPAWNER.get() {
        Some(sender) => sender,
        None => {
            let (sender, jobs) = mpsc::channel::<Job>();
            std::thread::Builder::new()
                .name("be-spawn".to_owned())
                .spawn(move || jobs.into_iter().for_each(|job| job()))?;
            // Another thread may have been quicker; then this one's ends, and has started nothing.
            SPAWNER.get_or_init(|| sender)
        }
    };
    sender.send(job).map_err(|_| gone())
}

/// Starts the program with one end of a socket as its standard input, in a process group of its own.
pub(super) async fn spawn(program: &WorkerProgram, socket: UnixStream) -> io::Result<Child> {
    let mut command = Command::new(&program.program);
    command
        .args(&program.args)
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .env_clear()
        // A cloud's own variables are default credentials; the server's are none of a plugin's business.
        .envs(
            std::env::vars_os()
                .filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"DSTACK_")),
        )
        // Each further heap arena reserves address space, which is limited.
        .env("MALLOC_ARENA_MAX", "2");
    let runtime = tokio::runtime::Handle::current();
    let (sender, started) = oneshot::channel();
    on_spawner(Box::new(move || {
        let _entered = runtime.enter();
        // If nobody waits for it any more, it is killed when it is dropped.
        drop(sender.send(command.spawn()));
    }))?;
    started
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the thread that starts workers is gone")))
}
