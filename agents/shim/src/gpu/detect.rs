//! Finds the GPUs of this machine. A tool that is missing, fails or hangs means no GPUs, never a failed start.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use super::{Gpu, Vendor, amd, parse, tenstorrent};
use crate::docker::{Engine, Tool};
use crate::programs;

/// How long a vendor's tool may take; drivers without persistence need seconds to wake up.
const TOOL_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for a tool in a container, whose image may have to be pulled.
const CONTAINER_TIMEOUT: Duration = Duration::from_secs(120);
const WSL_NVIDIA_SMI: &str = "/usr/lib/wsl/lib/nvidia-smi";
const TENSTORRENT_DRIVER: &str = "sys/module/tenstorrent/version";

/// The GPUs found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Detected {
    /// Whose devices the machine has, even when their tool told nothing.
    pub(crate) vendor: Option<Vendor>,
    pub(crate) gpus: Vec<Gpu>,
}

/// Where to look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine<'a> {
    /// `/` but in tests.
    pub(crate) root: &'a Path,
    /// Runs tools that the machine does not have itself.
    pub(crate) engine: Option<&'a Engine>,
    /// Whether the settings say that the accelerators are TPUs. Those are not listed: a task gets all of them, as a
    /// privileged container, and their device files must not be taken for another vendor's.
    pub(crate) has_tpus: bool,
}

/// Looks for device files and asks the vendor's tool.
pub(crate) async fn detect(machine: &Machine<'_>) -> Detected {
    let vendor = vendor(machine.root, machine.has_tpus);
    let gpus = match vendor {
        None => Vec::new(),
        Some(Vendor::Nvidia) => {
            let tool = if machine.root.join("dev/nvidiactl").exists() {
                "nvidia-smi"
            } else {
                WSL_NVIDIA_SMI
            };
            let query = "--query-gpu=name,memory.total,uuid,driver_version";
            let arguments = [query, "--format=csv,noheader,nounits"];
            parse::nvidia_smi(&or_none(tool, output(tool, &arguments).await))
        }
        Some(Vendor::Intel) => {
            let query = "--query-aip=name,memory.total,index";
            let arguments = [query, "--format=csv,noheader,nounits"];
            parse::hl_smi(&or_none("hl-smi", output("hl-smi", &arguments).await))
        }
        Some(Vendor::Amd) => amd_gpus(machine).await,
        Some(Vendor::Tenstorrent) => tenstorrent_devices(machine).await,
    };
    Detected { vendor, gpus }
}

async fn amd_gpus(machine: &Machine<'_>) -> Vec<Gpu> {
    let tool = |arguments| Tool {
        image: amd::IMAGE,
        arguments,
        devices: &["/dev/kfd", "/dev/dri"],
    };
    let mut told = own_or_container(machine, "amd-smi", tool(&amd::ARGUMENTS)).await;
    if told.is_err() {
        // Older versions do not know the last option.
        let fewer = amd::ARGUMENTS
            .split_last()
            .map_or(&[][..], |(_, fewer)| fewer);
        told = own_or_container(machine, "amd-smi", tool(fewer)).await;
    }
    let gpus = told.and_then(|text| {
        amd::gpus(&text, |bdf| render_node(machine.root, bdf)).map_err(|err| err.to_string())
    });
    or_none("amd-smi", gpus)
}

async fn tenstorrent_devices(machine: &Machine<'_>) -> Vec<Gpu> {
    let tool = Tool {
        image: tenstorrent::IMAGE,
        arguments: &tenstorrent::ARGUMENTS,
        devices: &["/dev/tenstorrent"],
    };
    let driver = std::fs::read_to_string(machine.root.join(TENSTORRENT_DRIVER)).unwrap_or_default();
    let told = own_or_container(machine, "tt-smi", tool).await;
    let devices = told
        .and_then(|text| tenstorrent::devices(&text, driver.trim()).map_err(|err| err.to_string()));
    or_none("tt-smi", devices)
}

/// The machine's own tool, or the one of an image.
async fn own_or_container(
    machine: &Machine<'_>,
    program: &'static str,
    tool: Tool<'_>,
) -> Result<String, String> {
    if programs::find(program).is_some() {
        return output(program, tool.arguments).await;
    }
    match machine.engine {
        Some(engine) => engine.run_tool(tool, CONTAINER_TIMEOUT).await,
        None => Err(format!(
            "{program} is not installed, and there is no Docker engine to run the image {} with",
            tool.image
        )),
    }
}

/// File of the device that renders for the card at a PCI address.
fn render_node(root: &Path, bdf: &str) -> Option<String> {
    let link = root.join(format!("dev/dri/by-path/pci-{bdf}-render"));
    let target = std::fs::read_link(link).ok()?;
    let name = target.file_name()?.to_str()?;
    Some(format!("/dev/dri/{name}"))
}

/// Unambiguous devices first: a host with an NVIDIA card and an AMD processor has `/dev/kfd` too.
fn vendor(root: &Path, has_tpus: bool) -> Option<Vendor> {
    let has = |path: &str| root.join(path.trim_start_matches('/')).exists();
    if has("/dev/nvidiactl") || (has("/dev/dxg") && has(WSL_NVIDIA_SMI)) {
        Some(Vendor::Nvidia)
    } else if has("/dev/tenstorrent") {
        Some(Vendor::Tenstorrent)
    } else if has("/dev/kfd") {
        Some(Vendor::Amd)
    } else if has("/dev/accel") && !has_tpus {
        Some(Vendor::Intel)
    } else {
        None
    }
}

fn or_none<T: Default>(tool: &str, told: Result<T, String>) -> T {
    told.unwrap_or_else(|reason| {
        tracing::error!(tool, reason, "GPUs cannot be listed: tasks get none");
        T::default()
    })
}

async fn output(tool: &str, arguments: &[&str]) -> Result<String, String> {
    let run = Command::new(tool)
        .args(arguments)
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(TOOL_TIMEOUT, run).await {
        Ok(Ok(output)) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(Ok(output)) => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", output.status, text.trim()))
        }
        Ok(Err(err)) => Err(err.to_string()),
        Err(_) => Err(format!("no answer within {} s", TOOL_TIMEOUT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(paths: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for path in paths {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn the_vendor_follows_from_device_files() {
        let with = |paths: &[&str]| vendor(machine(paths).path(), false);
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
        assert_eq!(vendor(machine(&["dev/accel"]).path(), true), None);
    }

    #[tokio::test]
    async fn a_missing_tool_means_no_gpus() {
        for (device, vendor) in [
            ("dev/accel", Vendor::Intel),
            ("dev/kfd", Vendor::Amd),
            ("dev/tenstorrent", Vendor::Tenstorrent),
        ] {
            let root = machine(&[device]);
            let found = detect(&Machine {
                root: root.path(),
                engine: None,
                has_tpus: false,
            })
            .await;
            assert_eq!((found.vendor, found.gpus.len()), (Some(vendor), 0));
        }
    }

    #[test]
    fn the_render_node_is_the_target_of_a_link() {
        let root = machine(&["dev/dri/renderD129", "dev/dri/by-path/other"]);
        let link = root.path().join("dev/dri/by-path/pci-0000:c5:00.0-render");
        std::os::unix::fs::symlink("../renderD129", link).unwrap();
        let node = |bdf| render_node(root.path(), bdf);
        assert_eq!(node("0000:c5:00.0").as_deref(), Some("/dev/dri/renderD129"));
        assert_eq!(node("0000:c6:00.0"), None);
    }
}
