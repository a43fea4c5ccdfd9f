//! The shim as a whole: its state and its start.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use dstack_agent_kit::http::{Listener, serve};
use dstack_agent_kit::logging::{self, Tee};
use dstack_agent_kit::rotating::RotatingFile;
use dstack_agent_kit::stop::Stop;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::args::{Args, TaskDefaults, env_text};
use crate::components::Components;
use crate::dcgm::{Exporter, HealthCheck};
use crate::gpu::{Detected, GpuLock, Machine, Vendor};
use crate::idle_guard::LastNeeded;
use crate::registry::Registry;
use crate::runtime::Runtimes;
use crate::volumes::VolumeLocks;
use crate::{api, gpu, host_info, idle_guard, programs, reconcile, restore};

/// Size of the log, and how many older ones stay.
const LOG_LIMIT: u64 = 10 * 1024 * 1024;
const LOGS_KEPT: u32 = 3;

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
    /// Set once NVIDIA's tools are ready, on machines that have them.
    pub(crate) exporter: OnceLock<Exporter>,
    pub(crate) health: OnceLock<HealthCheck>,
    pub(crate) volume_locks: VolumeLocks,
    pub(crate) last_needed: LastNeeded,
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
    let components = Components::start(&args, &stop).await?;
    let runtimes = Runtimes::connect(args.runtime).await?;
    let gpus = gpu::detect(&Machine {
        root: Path::new("/"),
        engine: runtimes.engine(),
        has_tpus: !args.pjrt_device.is_empty(),
    })
    .await;
    programs::check(gpus.vendor);
    let shim = Arc::new(Shim {
        defaults: TaskDefaults::new(&args),
        gpu_lock: GpuLock::new(gpus.gpus.iter().map(|gpu| gpu.id.clone())),
        home,
        runtimes,
        tasks: Registry::default(),
        gpus,
        components,
        exporter: OnceLock::new(),
        health: OnceLock::new(),
        volume_locks: VolumeLocks::default(),
        last_needed: LastNeeded::now(),
        stop: stop.clone(),
        nudge: Notify::new(),
        background: TaskTracker::new(),
    });
    restore::restore(&shim).await?;
    if args.service {
        host_info::write(&shim).await;
    }
    let listen = args.listen();
    let listener = Listener::bind_all(&listen)
        .await
        .context("cannot listen for requests")?
        .guarded();
    if let (Some(socket), Some(owner)) = (&args.socket, args.socket_owner) {
        std::os::unix::fs::chown(socket, Some(owner), None)
            .with_context(|| format!("cannot give {} to user {owner}", socket.display()))?;
    }
    let loops = start_loops(&shim, args);
    tracing::info!(
        listen = ?listen,
        runtime = ?shim.runtimes.kind(),
        gpus = shim.gpus.gpus.len(),
        version = dstack_agent_protocol::COMPATIBLE_VERSION,
        "the shim serves"
    );
    serve(listener, api::router(Arc::clone(&shim)), &stop).await;
    loops.iter().for_each(JoinHandle::abort);
    shim.components.wait(&stop).await;
    if let Some(exporter) = shim.exporter.get() {
        exporter.stop().await;
    }
    if let Some(health) = shim.health.get() {
        health.stop().await;
    }
    tracing::info!("the shim ends; tasks go on");
    Ok(())
}

/// What goes on beside the API until the shim ends.
fn start_loops(shim: &Arc<Shim>, args: Args) -> Vec<JoinHandle<()>> {
    let mut loops = vec![tokio::spawn(reconcile::run(Arc::clone(shim)))];
    if args.idle_shutdown > 0 {
        let limit = Duration::from_secs(args.idle_shutdown);
        loops.push(tokio::spawn(idle_guard::run(Arc::clone(shim), limit)));
    }
    if shim.gpus.vendor == Some(Vendor::Nvidia) {
        // NVIDIA's tools may need seconds, and the first task does not need them.
        let shim = Arc::clone(shim);
        loops.push(tokio::spawn(async move {
            if let Some(exporter) = Exporter::start(&args, &shim.home).await {
                shim.exporter.set(exporter).ok();
            }
            if let Some(health) = HealthCheck::start(&args, &shim.home).await {
                shim.health.set(health).ok();
            }
        }));
    }
    loops
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
    let file = RotatingFile::open(&path, LOG_LIMIT, LOGS_KEPT)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let tee = Tee::new();
    tee.add(std::io::stderr());
    tee.add(file);
    logging::init(args.shim_log_level, &tee);
    Ok(())
}
