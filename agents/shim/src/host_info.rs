//! What this machine has, for hosts that are added by SSH.

use std::fs;
use std::path::Path;

use anyhow::Context;
use dstack_agent_protocol::shim::HostInfo;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use nix::sys::statvfs::statvfs;

use crate::gpu::Detected;
use crate::shim::Shim;
use crate::state_file::write_durably;

const FILE_NAME: &str = "host_info.json";

/// Writes the file, unless it exists: then the server has not asked for a new one. A failure is logged only.
pub(crate) async fn write(shim: &Shim) {
    let path = shim.home.join(FILE_NAME);
    if path.exists() {
        tracing::error!(path = %path.display(), "the host's data exists already and stays as it is");
        return;
    }
    let disk = shim
        .runtimes
        .engine()
        .map_or(shim.home.as_path(), |engine| Path::new(&engine.root_dir));
    let written = collect(&shim.gpus, disk)
        .and_then(|info| Ok(write_durably(&path, &serde_json::to_vec(&info)?, 0o644)?));
    if let Err(err) = written {
        tracing::error!(
            error = format!("{err:#}"),
            "the host's data cannot be written"
        );
    }
}

fn collect(gpus: &Detected, disk: &Path) -> anyhow::Result<HostInfo> {
    let first = gpus.gpus.first();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(HostInfo {
        gpu_vendor: first
            .and(gpus.vendor)
            .map_or("none", |vendor| vendor.as_str())
            .to_owned(),
        gpu_name: first.map(|gpu| gpu.name.clone()).unwrap_or_default(),
        gpu_memory: first.map_or(0, |gpu| gpu.memory_mib),
        gpu_count: u32::try_from(gpus.gpus.len())?,
        addresses: addresses()?,
        disk_size: free_bytes(disk)?,
        cpus: u32::try_from(cpus)?,
        memory: memory_bytes(&fs::read_to_string("/proc/meminfo")?)
            .context("/proc/meminfo has no MemTotal")?,
    })
}

fn free_bytes(path: &Path) -> anyhow::Result<u64> {
    let stat = statvfs(path).with_context(|| format!("statvfs {}", path.display()))?;
    Ok(stat.blocks_available() * stat.fragment_size())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let rest = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Addresses of all interfaces but the loopback, with prefix lengths.
fn addresses() -> anyhow::Result<Vec<String>> {
    Ok(getifaddrs()?
        .filter(|interface| !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK))
        .filter_map(|interface| Some(with_prefix(&interface.address?, &interface.netmask?)))
        .flatten()
        .collect())
}

fn with_prefix(address: &SockaddrStorage, mask: &SockaddrStorage) -> Option<String> {
    if let (Some(address), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
        return Some(format!(
            "{}/{}",
            address.ip(),
            mask.ip().to_bits().count_ones()
        ));
    }
    let (address, mask) = (address.as_sockaddr_in6()?, mask.as_sockaddr_in6()?);
    Some(format!(
        "{}/{}",
        address.ip(),
        mask.ip().to_bits().count_ones()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{Gpu, Vendor};

    #[test]
    fn this_machine_can_be_described() {
        let gpu = Gpu {
            id: "G".into(),
            name: "T4".into(),
            memory_mib: 15360,
            driver: "1".into(),
        };
        let gpus = Detected {
            vendor: Some(Vendor::Nvidia),
            gpus: vec![gpu.clone(), gpu],
        };
        let info = collect(&gpus, Path::new("/")).unwrap();
        assert_eq!((info.gpu_vendor.as_str(), info.gpu_count), ("nvidia", 2));
        assert!(info.cpus >= 1 && info.memory > 0 && info.disk_size > 0);
        assert!(
            info.addresses
                .iter()
                .all(|a| a.contains('/') && !a.starts_with("127."))
        );
        let info = collect(&Detected::default(), Path::new("/")).unwrap();
        assert_eq!((info.gpu_vendor.as_str(), info.gpu_memory), ("none", 0));
    }

    #[test]
    fn memory_is_told_in_bytes() {
        assert_eq!(
            memory_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(memory_bytes("MemFree: 1 kB\n"), None);
    }
}
