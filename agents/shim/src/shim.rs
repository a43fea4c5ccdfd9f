//! The shim as a whole: its state and its start.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use dstack_agent_kit::http::{Listen, Listener, serve};
use dstack_agent_kit::logging::{self, Tee};
use dstack_agent_kit::stop::Stop;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::args::{Args, TaskDefaults, env_text};
use crate::components::Components;
use crate::gpu::{Detected, GpuLock};
use crate::registry::Registry;
use crate::runtime::Runtimes;
use crate::{api, gpu, host_info, reconcile, restore};

/// Everything the parts of the shim share.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(crate) home: PathBuf,
    pub(crate) defaults: TaskDefaults,
    pub(crate) runtimes: Runtimes,
    pub(crate) tasks: Registry,
    pub(crate) gpus: Detected,
    pub(crate) gpu_lock: GpuLock,
    pub(crate) components: Components,
    pub(crate) stop: Stop,
    /// Asks the reconciler to look now.
    pub(crate) nudge: Notify,
    /// Work in the background: starting tasks, watching them.
    pub(crate) background: TaskTracker,
}

impl Shim {
    /// Directory that holds the task directories.
    pub(crate) fn tasks_dir(&self) -> PathBuf {
        self.home.join("runners")
    }
}

/// Runs the shim until it is told to stop. Tasks that run go on.
///
/// # Errors
/// If the home, the runner, the engine or the port is not usable.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let home = home(&args)?;
    start_logging(&args, &home)?;
    let stop = Stop::on_signals().context("signals cannot be handled")?;
    let components = Components::start(&args).await?;
    let runtimes = Runtimes::connect(args.runtime).await?;
    let gpus = gpu::detect(Path::new("/")).await;
    let shim = Arc::new(Shim {
        defaults: TaskDefaults::new(&args),
        gpu_lock: GpuLock::new(gpus.gpus.iter().map(|gpu| gpu.id.clone())),
        home,
        runtimes,
        tasks: Registry::default(),
        gpus,
        components,
        stop: stop.clone(),
        nudge: Notify::new(),
        background: TaskTracker::new(),
    });
    restore::restore(&shim).await?;
    if args.service {
        host_info::write(&shim).await;
    }
    let listen = match &args.socket {
        Some(path) => Listen::Unix(path.clone()),
        None => Listen::Tcp {
            host: "localhost".to_owned(),
            port: args.shim_http_port,
        },
    };
    let listener = Listener::bind(&listen)
        .await
        .with_context(|| format!("cannot listen on {listen:?}"))?;
    let reconciler = tokio::spawn(reconcile::run(Arc::clone(&shim)));
    tracing::info!(
        listen = ?listen,
        runtime = ?shim.runtimes.kind(),
        gpus = shim.gpus.gpus.len(),
        version = dstack_agent_protocol::COMPATIBLE_VERSION,
        "the shim serves"
    );
    serve(listener, api::router(Arc::clone(&shim)), &stop).await;
    reconciler.abort();
    shim.components.wait(&stop).await;
    tracing::info!("the shim ends; tasks go on");
    Ok(())
}

fn home(args: &Args) -> anyhow::Result<PathBuf> {
    let home = match &args.shim_home {
        Some(home) => home.clone(),
        None => Path::new(&env_text("HOME").context("HOME is not set: give --shim-home")?)
            .join(".dstack"),
    };
    // Tasks get absolute paths, and containers and processes have other working directories.
    home.canonicalize()
        .with_context(|| format!("shim home {} is not usable", home.display()))
}

fn start_logging(args: &Args, home: &Path) -> anyhow::Result<()> {
    let path = home.join("shim.log");
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let tee = Tee::new();
    tee.add(std::io::stderr());
    tee.add(file);
    logging::init(args.shim_log_level, &tee);
    Ok(())
}
