//! Programs of the machine that the shim runs, and where they come from.

use std::path::{Path, PathBuf};

use crate::gpu::Vendor;

/// Searched after `PATH`, which service managers and plain accounts set without them.
const SYSTEM_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program, the Debian package that has it, and what does not work without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Needed {
    program: &'static str,
    package: &'static str,
    purpose: &'static str,
}

const fn needed(program: &'static str, package: &'static str, purpose: &'static str) -> Needed {
    Needed {
        program,
        package,
        purpose,
    }
}

const VOLUMES: &str = "network volumes";
const ALWAYS: [Needed; 5] = [
    needed("mount", "mount", VOLUMES),
    needed("umount", "mount", VOLUMES),
    needed("lsblk", "util-linux", VOLUMES),
    needed("blkid", "util-linux", VOLUMES),
    needed("mkfs.ext4", "e2fsprogs", VOLUMES),
];
const NVIDIA: [Needed; 2] = [
    needed("nvidia-smi", "nvidia-smi", "NVIDIA GPUs"),
    needed(
        "nvidia-container-runtime-hook",
        "nvidia-container-toolkit",
        "NVIDIA GPUs in containers",
    ),
];
const INTEL: [Needed; 1] = [needed(
    "hl-smi",
    "habanalabs-firmware-tools",
    "Intel Gaudi GPUs",
)];

fn needed_with(vendor: Option<Vendor>) -> impl Iterator<Item = Needed> {
    let for_gpus: &[Needed] = match vendor {
        Some(Vendor::Nvidia) => &NVIDIA,
        Some(Vendor::Intel) => &INTEL,
        // Their tools come in images.
        Some(Vendor::Amd | Vendor::Tenstorrent) | None => &[],
    };
    ALWAYS.into_iter().chain(for_gpus.iter().copied())
}

/// The file of a program, looked for as a shell of the administrator would.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRS.map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// What to do about a program that is not there.
pub(crate) fn remedy(program: &str) -> String {
    let known = ALWAYS.iter().chain(&NVIDIA).chain(&INTEL);
    match known.into_iter().find(|it| it.program == program) {
        Some(it) => format!(
            "it is not installed; on Debian it is in package {}",
            it.package
        ),
        None => "it is not installed".to_owned(),
    }
}

/// Says which programs are missing, before the first task needs them; gives their number.
pub(crate) fn check(vendor: Option<Vendor>) -> usize {
    report(needed_with(vendor).filter(|it| find(it.program).is_none()))
}

fn report(missing: impl Iterator<Item = Needed>) -> usize {
    missing
        .map(|it| {
            tracing::warn!(
                "{} is missing, so {} will not work: install the Debian package {}",
                it.program,
                it.purpose,
                it.package
            );
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_also_where_only_administrators_look() {
        assert!(find("sh").is_some());
        assert!(
            find("mkfs.ext4").is_some(),
            "this test needs package e2fsprogs"
        );
        assert_eq!(find("no-such-program"), None);
        assert!(!is_executable(Path::new("/etc/passwd")) && !is_executable(Path::new("/etc")));
    }

    #[test]
    fn what_is_missing_is_told_with_its_package() {
        assert_eq!(
            remedy("mkfs.ext4"),
            "it is not installed; on Debian it is in package e2fsprogs"
        );
        assert_eq!(remedy("x"), "it is not installed");
        assert_eq!(needed_with(Some(Vendor::Nvidia)).count(), 7);
        assert_eq!(check(None), 0, "this test needs what volumes need");
    }
}
