//! What this machine has.

use super::MachineConfig;
use crate::services::unix_http;
use dstack_backend_types::{
    BackendError,
    services::{MachineFacts, MachineGpu},
};
use std::{
    path::Path,
    time::{Duration, Instant},
};
use tokio::{process::Command, sync::Mutex};

const MIB: u64 = 1 << 20;
/// GPUs come and go with drivers, not with the minute, and asking takes a second or two.
const GPUS_KNOWN_FOR: Duration = Duration::from_secs(300);
const TOOL_LIMIT: Duration = Duration::from_secs(20);
const DOCKER_LIMIT: Duration = Duration::from_secs(2);

/// The GPUs, as last seen.
#[derive(Debug, Default)]
pub(super) struct Gpus(Mutex<Option<(Instant, Vec<MachineGpu>)>>);

impl Gpus {
    async fn get(&self) -> Vec<MachineGpu> {
        // Only NVIDIA's: the device node says whether to ask its tool at all.
        if !Path::new("/dev/nvidiactl").exists()
            && !Path::new("/usr/lib/wsl/lib/nvidia-smi").exists()
        {
            return Vec::new();
        }
        let mut known = self.0.lock().await;
        if let Some((at, gpus)) = known.as_ref()
            && at.elapsed() < GPUS_KNOWN_FOR
        {
            return gpus.clone();
        }
        let gpus = nvidia().await;
        *known = Some((Instant::now(), gpus.clone()));
        gpus
    }
}

async fn nvidia() -> Vec<MachineGpu> {
    let run = Command::new("nvidia-smi")
        .args([
            "--query-gpu=name,memory.total",
            "--format=csv,noheader,nounits",
        ])
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(TOOL_LIMIT, run).await {
        Ok(Ok(output)) if output.status.success() => {
            parse_nvidia(&String::from_utf8_lossy(&output.stdout))
        }
        Ok(Ok(output)) => {
            tracing::warn!(status = %output.status, "nvidia-smi failed; no GPUs are offered");
            Vec::new()
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "nvidia-smi cannot be run; no GPUs are offered");
            Vec::new()
        }
        Err(_) => {
            tracing::warn!("nvidia-smi does not answer; no GPUs are offered");
            Vec::new()
        }
    }
}

fn parse_nvidia(text: &str) -> Vec<MachineGpu> {
    let line = |line: &str| {
        let (name, memory) = line.rsplit_once(',')?;
        Some(MachineGpu {
            vendor: "nvidia".to_owned(),
            name: name.trim().to_owned(),
            memory_mib: memory.trim().parse().ok()?,
        })
    };
    text.lines().filter_map(line).collect()
}

pub(super) async fn facts(
    config: &MachineConfig,
    gpus: &Gpus,
    home: &Path,
) -> Result<MachineFacts, BackendError> {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map_err(|e| BackendError::internal(format!("cannot read {path}: {e}")))
    };
    let memory = read("/proc/meminfo")?;
    let hostname = read("/proc/sys/kernel/hostname").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let docker = unix_http::request(&config.docker_socket, "GET", "/_ping", "", DOCKER_LIMIT).await;
    Ok(MachineFacts {
        hostname: hostname.trim().to_owned(),
        cpu_arch: if cfg!(target_arch = "aarch64") {
            "arm"
        } else {
            "x86"
        }
        .to_owned(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory_mib: total_memory_kib(&memory).unwrap_or_default() / 1024,
        disk_mib: disk_bytes(home) / MIB,
        gpus: gpus.get().await,
        has_docker: matches!(docker, Ok((200, _))),
        is_root: nix::unistd::Uid::effective().is_root(),
        has_agents: config.agent("dstack-shim").is_some()
            && config.agent("dstack-runner").is_some(),
    })
}

fn total_memory_kib(meminfo: &str) -> Option<u64> {
    let rest = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Total size of the file system that holds `path`, or will hold it.
fn disk_bytes(path: &Path) -> u64 {
    let nearest = path.ancestors().find(|folder| folder.exists());
    let Some(Ok(disk)) = nearest.map(nix::sys::statvfs::statvfs) else {
        return 0;
    };
    #[allow(
        clippy::useless_conversion,
        reason = "the width of these differs between platforms"
    )]
    let (blocks, size): (u64, u64) = (disk.blocks().into(), disk.fragment_size().into());
    blocks.saturating_mul(size)
}

#[cfg(test)]
mod tests {
    use super::{parse_nvidia, total_memory_kib};

    #[test]
    fn nvidia_smi_lines_become_gpus() {
        let gpus =
            parse_nvidia("NVIDIA A100-SXM4-40GB, 40960\nNVIDIA GeForce RTX 3090, 24576\nbroken\n");
        assert_eq!(gpus.len(), 2);
        assert_eq!(
            (gpus[0].name.as_str(), gpus[0].memory_mib),
            ("NVIDIA A100-SXM4-40GB", 40960)
        );
    }

    #[test]
    fn memory_is_read() {
        assert_eq!(
            total_memory_kib("MemTotal:       24679420 kB\nMemFree: 1 kB\n"),
            Some(24_679_420)
        );
        assert_eq!(total_memory_kib(""), None);
    }
}
