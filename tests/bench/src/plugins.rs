//! Plugins: loading many, the border alone, many offers, a process of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dstack_backend_types::methods::GetOffersRequest;
use dstack_backend_types::resources::ResourcesSpec;
use dstack_backend_types::{InstanceOfferWithAvailability, Requirements};
use dstack_plugins::{Backend, Isolation, Plugins, PluginsConfig, WORKER_ARGUMENT, WorkerProgram};
use dstack_test_support::server::bin_dir;
use serde_json::{Value, json};

use crate::measure::{Row, median};

const ROUNDS: usize = 5;
const PLUGINS: u32 = 25;
/// A method that no backend has: what it costs is the way there and back.
const NO_METHOD: u32 = 9999;

fn row(what: &'static str, unit: &'static str, ours: f64, target: f64) -> Row {
    Row {
        what,
        unit,
        ours,
        target,
        reference: None,
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// Builds a test plugin as this program was built, and finds it.
fn built(package: &str) -> Result<PathBuf> {
    let status = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--package", package])
        .status()?;
    ensure!(status.success(), "{package} does not build");
    let file = format!("lib{}.so", package.replace('-', "_"));
    let exe = std::env::current_exe()?;
    let found = exe
        .ancestors()
        .map(|folder| folder.join(&file))
        .find(|path| path.is_file());
    found.with_context(|| format!("the build left no {file} beside {}", exe.display()))
}

fn config(folders: Vec<PathBuf>) -> PluginsConfig {
    let mut config = PluginsConfig::new(folders);
    config.worker = WorkerProgram {
        program: bin_dir().join("dstack"),
        args: vec![WORKER_ARGUMENT.into()],
    };
    config
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.context("no runtime")
}

/// Copies of one plugin, each with a name of its own.
fn many(of: &Path, folder: &Path) -> Result<()> {
    let bytes = fs::read(of)?;
    let name = br#""name":"fake""#;
    let places: Vec<usize> = bytes
        .windows(name.len())
        .enumerate()
        .filter(|(_, window)| window == name)
        .map(|(at, _)| at)
        .collect();
    ensure!(!places.is_empty(), "no manifest in {}", of.display());
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for number in 0..PLUGINS {
        let mut copy = bytes.clone();
        let named = format!(r#""name":"f{number:03}""#);
        for at in &places {
            if let Some(place) = copy.get_mut(*at..*at + name.len()) {
                place.copy_from_slice(named.as_bytes());
            }
        }
        let path = folder.join(format!("f{number:03}.so"));
        fs::write(&path, copy)?;
        fs::File::open(&path)?.sync_all()?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    }
    dstack_plugins::write_lock(folder)?;
    Ok(())
}

/// Memory of a process that it shares with nobody.
fn private_mb(pid: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Private_Dirty:"));
    let kb: f64 = line
        .context("Private_Dirty")?
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()?;
    Ok(kb / 1024.0)
}

/// 25 plugins: look through the folder, check, load, open.
pub(crate) fn load() -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    many(&built("dstack-backend-fake")?, folder.path())?;
    runtime()?.block_on(async {
        let before = private_mb("self")?;
        let began = Instant::now();
        let plugins = Plugins::load(config(vec![folder.path().to_owned()]));
        let manifests = plugins.manifests();
        ensure!(manifests.len() == 25, "{:?}", plugins.list());
        for manifest in &manifests {
            plugins.configurator(&manifest.name).await?;
        }
        let took = ms(began);
        let each = (private_mb("self")? - before) / f64::from(PLUGINS);
        Ok(vec![
            row("25 plugins: look, check, load, open", "ms", took, 150.0),
            row("private memory of each of them", "MB", each, 1.0),
        ])
    })
}

fn opened_config(cloud: &Path, offers: usize) -> Result<Value> {
    fs::write(
        cloud.join("knobs.json"),
        json!({"offers": offers}).to_string(),
    )?;
    Ok(json!({"type": "fake", "folder": cloud}))
}

async fn fake(isolation: Isolation, file: &Path, cloud: &Path, offers: usize) -> Result<Backend> {
    let plugins = Plugins::of_file(config(Vec::new()), file, isolation)?;
    Ok(plugins.open("fake", &opened_config(cloud, offers)?).await?)
}

async fn empty_call(backend: &Backend, count: u32) -> Result<f64> {
    let began = Instant::now();
    for _ in 0..count {
        let answer = backend
            .call_raw(NO_METHOD, Vec::new(), Duration::from_secs(10), None)
            .await;
        if answer.is_ok() {
            bail!("the method is there");
        }
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(count))
}

extern "C" fn no_log(
    _: *const (),
    _: u64,
    _: u32,
    _: dstack_backend_abi::RStr<'_>,
    _: dstack_backend_abi::RStr<'_>,
    _: dstack_backend_abi::RStr<'_>,
) {
}

extern "C" fn no_service(
    _: *const (),
    _: u64,
    _: u32,
    _: dstack_backend_abi::RSlice<'_, u8>,
) -> dstack_backend_abi::Reply {
    dstack_backend_abi::RErr(dstack_backend_abi::RVec::new())
}

/// The border alone, and what the host adds to it.
pub(crate) fn calls() -> Result<Vec<Row>> {
    const COUNT: u32 = 20_000;
    let (file, cloud) = (built("dstack-backend-fake")?, tempfile::tempdir()?);
    // A copy, since one file is loaded once in a process.
    let copy = cloud.path().join("copy.so");
    fs::copy(&file, &copy)?;
    let services = dstack_backend_abi::HostServices {
        context: std::ptr::null(),
        log: no_log,
        request: no_service,
    };
    let plugin = dstack_backend_loader::inspect(&copy)?.open(services)?;
    let bare = plugin.open_backend(&[]).ok().context("it does not open")?;
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for number in 0..COUNT {
            std::hint::black_box(bare.call(NO_METHOD, u64::from(number), &[]).is_err());
        }
        figures.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(COUNT));
    }
    let border = median(figures);
    runtime()?.block_on(async {
        let here = fake(Isolation::InProcess, &file, cloud.path(), 1).await?;
        let child = fake(Isolation::Process, &file, cloud.path(), 1).await?;
        let (mut in_process, mut in_child) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            in_process.push(empty_call(&here, 2000).await?);
            in_child.push(empty_call(&child, 2000).await?);
        }
        Ok(vec![
            row("a call: the border alone", "us", border, 1.0),
            row(
                "a call in process, thread and deadline",
                "us",
                median(in_process),
                30.0,
            ),
            row(
                "a call in a process of its own",
                "us",
                median(in_child),
                150.0,
            ),
        ])
    })
}

fn everything() -> GetOffersRequest {
    GetOffersRequest {
        requirements: Requirements::of(ResourcesSpec::unconstrained()),
        full_offers: false,
        unallocated_resources: false,
        image: None,
    }
}

/// Offers across the border, with their decoding, ranked by price.
pub(crate) fn offers() -> Result<Vec<Row>> {
    let file = built("dstack-backend-fake")?;
    let mut rows = Vec::new();
    for (isolation, count, what, target) in [
        (
            Isolation::InProcess,
            5000,
            "5,000 offers across the border, ranked",
            25.0,
        ),
        (
            Isolation::InProcess,
            50_000,
            "50,000 offers across the border, ranked",
            300.0,
        ),
        (
            Isolation::Process,
            50_000,
            "50,000 offers from a process, ranked",
            450.0,
        ),
    ] {
        let cloud = tempfile::tempdir()?;
        // The same file twice in this process would meet its own statics.
        let copy = cloud.path().join("copy.so");
        fs::copy(&file, &copy)?;
        let figures = runtime()?.block_on(async {
            let backend = fake(isolation, &copy, cloud.path(), count).await?;
            let mut figures = Vec::new();
            for _ in 0..ROUNDS {
                let began = Instant::now();
                let mut all: Vec<InstanceOfferWithAvailability> =
                    backend.get_offers(&everything()).await?;
                all.sort_by(|a, b| a.price.total_cmp(&b.price));
                figures.push(ms(began));
                ensure!(all.len() == count, "{} offers", all.len());
            }
            Ok(figures)
        })?;
        rows.push(row(what, "ms", median(figures), target));
    }
    Ok(rows)
}

/// A process that dies: how soon the next call is answered, and what one costs.
pub(crate) fn respawn() -> Result<Vec<Row>> {
    let file = built("dstack-backend-misbehaving")?;
    runtime()?.block_on(async {
        let plugins = Plugins::of_file(config(Vec::new()), &file, Isolation::Process)?;
        let open = async |mode: &str| {
            let config = json!({"type": "misbehaving", "mode": mode});
            plugins.open("misbehaving", &config).await
        };
        let (abort, good) = (open("abort").await?, open("good").await?);
        let (mut figures, mut memory) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ensure!(abort.health().await.is_err(), "it did not die");
            let began = Instant::now();
            good.health().await?;
            figures.push(ms(began));
            let pid = open("process_id")
                .await?
                .health()
                .await?
                .message
                .unwrap_or_default();
            memory.push(private_mb(&pid)?);
        }
        plugins.shut_down().await;
        Ok(vec![
            row(
                "a new process after a death, first answer",
                "ms",
                median(figures),
                50.0,
            ),
            row(
                "private memory of a plugin's process",
                "MB",
                median(memory),
                3.0,
            ),
        ])
    })
}
