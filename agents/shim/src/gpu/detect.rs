//! Finds the GPUs of this machine. A tool that is missing, fails or hangs means no GPUs, never a failed start.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use super::{Gpu, Vendor, parse};

/// How long a vendor's tool may take; drivers without persistence need seconds to wake up.
const TOOL_TIMEOUT: Duration = Duration::from_secs(60);
const WSL_NVIDIA_SMI: &str = "/usr/lib/wsl/lib/nvidia-smi";

/// The GPUs found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Detected {
    /// Whose devices the machine has, even when their tool told nothing.
    pub(crate) vendor: Option<Vendor>,
    pub(crate) gpus: Vec<Gpu>,
}

/// Looks for device files under `root` (`/` but in tests) and asks the vendor's tool.
pub(crate) async fn detect(root: &Path) -> Detected {
    let vendor = vendor(root);
    let gpus = match vendor {
        None => Vec::new(),
        Some(Vendor::Nvidia) => {
            let tool = if root.join("dev/nvidiactl").exists() {
                "nvidia-smi"
            } else {
                WSL_NVIDIA_SMI
            };
            let query = "--query-gpu=name,memory.total,uuid,driver_version";
            parse::nvidia_smi(&output(tool, &[query, "--format=csv,noheader,nounits"]).await)
        }
        Some(Vendor::Intel) => {
            let query = "--query-aip=name,memory.total,index";
            parse::hl_smi(&output("hl-smi", &[query, "--format=csv,noheader,nounits"]).await)
        }
        Some(vendor @ (Vendor::Amd | Vendor::Tenstorrent)) => {
            tracing::warn!(
                "{} devices found, but this version cannot list them: tasks get no GPUs",
                vendor.as_str()
            );
            Vec::new()
        }
    };
    Detected { vendor, gpus }
}

/// Unambiguous devices first: a host with an NVIDIA card and an AMD processor has `/dev/kfd` too.
fn vendor(root: &Path) -> Option<Vendor> {
    let has = |path: &str| root.join(path.trim_start_matches('/')).exists();
    if has("/dev/nvidiactl") || (has("/dev/dxg") && has(WSL_NVIDIA_SMI)) {
        Some(Vendor::Nvidia)
    } else if has("/dev/tenstorrent") {
        Some(Vendor::Tenstorrent)
    } else if has("/dev/kfd") {
        Some(Vendor::Amd)
    } else if has("/dev/accel") {
        Some(Vendor::Intel)
    } else {
        None
    }
}

async fn output(tool: &str, arguments: &[&str]) -> String {
    let run = Command::new(tool)
        .args(arguments)
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(TOOL_TIMEOUT, run).await {
        Ok(Ok(output)) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(Ok(output)) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            tracing::error!(tool, status = %output.status, stderr = text, "GPUs cannot be listed");
            String::new()
        }
        Ok(Err(err)) => {
            tracing::error!(tool, error = %err, "GPUs cannot be listed");
            String::new()
        }
        Err(_) => {
            tracing::error!(tool, "GPUs cannot be listed: the tool hangs");
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vendor_follows_from_device_files() {
        let with = |paths: &[&str]| {
            let root = tempfile::tempdir().unwrap();
            for path in paths {
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            vendor(root.path())
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&["dev/kfd"]), Some(Vendor::Amd));
        assert_eq!(with(&["dev/kfd", "dev/nvidiactl"]), Some(Vendor::Nvidia));
        assert_eq!(with(&["dev/dxg"]), None);
        assert_eq!(
            with(&["dev/dxg", "usr/lib/wsl/lib/nvidia-smi"]),
            Some(Vendor::Nvidia)
        );
        assert_eq!(
            with(&["dev/accel", "dev/tenstorrent"]),
            Some(Vendor::Tenstorrent)
        );
        assert_eq!(with(&["dev/accel"]), Some(Vendor::Intel));
    }

    #[tokio::test]
    async fn a_missing_tool_means_no_gpus() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/accel"), "").unwrap();
        let found = detect(root.path()).await;
        assert_eq!((found.vendor, found.gpus.len()), (Some(Vendor::Intel), 0));
    }
}
