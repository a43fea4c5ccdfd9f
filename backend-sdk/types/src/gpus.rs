//! Accelerator models by name. Names are compared ignoring case.

mod names;
#[cfg(test)]
mod tests;

use crate::instances::AcceleratorVendor;

pub use names::{amd_model, intel_model, nvidia_model};

/// A known model. A name may come with several memory sizes; everything else is the same for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownGpu {
    /// Maker.
    pub vendor: AcceleratorVendor,
    /// Model, e.g. `A100`.
    pub name: &'static str,
    /// Memory sizes in GiB.
    pub memory_gib: &'static [u32],
    /// NVIDIA only: compute capability.
    pub compute_capability: Option<(u32, u32)>,
}

/// TPU generations; a TPU's name is one of them, a hyphen and the number of cores.
pub const TPU_VERSIONS: &[&str] = &["v2", "v3", "v4", "v5p", "v5litepod", "v6e"];

/// NVIDIA models before Turing, which the open kernel modules do not support.
const PROPRIETARY_MODULES: &[&str] = &[
    "v100", "p100", "p40", "p4", "m60", "m40", "m4", "k80", "k40", "k20",
];

/// The first model of that name.
pub fn find(name: &str) -> Option<&'static KnownGpu> {
    KNOWN_GPUS
        .iter()
        .find(|gpu| gpu.name.eq_ignore_ascii_case(name))
}

/// The makers that have a model of that name; a TPU by its generation.
pub fn vendors_by_name(name: &str) -> Vec<AcceleratorVendor> {
    let mut vendors: Vec<_> = KNOWN_GPUS
        .iter()
        .filter(|gpu| gpu.name.eq_ignore_ascii_case(name))
        .map(|gpu| gpu.vendor)
        .collect();
    if is_tpu(name) {
        vendors.push(AcceleratorVendor::Google);
    }
    vendors.sort_unstable();
    vendors.dedup();
    vendors
}

/// The maker of a model, if the name is known and only one has it.
pub fn vendor_by_name(name: &str) -> Option<AcceleratorVendor> {
    match vendors_by_name(name).as_slice() {
        [vendor] => Some(*vendor),
        _ => None,
    }
}

/// Whether the name is that of a TPU: a known generation, with or without the number of cores.
pub fn is_tpu(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    TPU_VERSIONS.iter().any(|version| {
        lower
            .strip_prefix(version)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

/// Compute capability of an NVIDIA model.
pub fn compute_capability(name: &str) -> Option<(u32, u32)> {
    find(name)?.compute_capability
}

/// Whether a machine image with NVIDIA's proprietary kernel modules is needed.
pub fn needs_proprietary_modules(name: &str) -> bool {
    PROPRIETARY_MODULES
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
}

/// The models, by maker.
pub const KNOWN_GPUS: &[KnownGpu] = &[
    nvidia("A10", &[24], (8, 6)),
    nvidia("A16", &[16], (8, 6)),
    nvidia("A40", &[48], (8, 6)),
    nvidia("A100", &[40, 80], (8, 0)),
    nvidia("A10G", &[24], (8, 6)),
    nvidia("A4000", &[16], (8, 6)),
    nvidia("A4500", &[20], (8, 6)),
    nvidia("A5000", &[24], (8, 6)),
    nvidia("A6000", &[48], (8, 6)),
    nvidia("H100", &[80], (9, 0)),
    nvidia("H100NVL", &[94], (9, 0)),
    nvidia("H200", &[141], (9, 0)),
    nvidia("H200NVL", &[141], (9, 0)),
    nvidia("B200", &[180], (10, 0)),
    nvidia("GB200", &[186], (10, 0)),
    nvidia("B300", &[270], (10, 0)),
    nvidia("GB300", &[270], (10, 0)),
    nvidia("L4", &[24], (8, 9)),
    nvidia("L40", &[48], (8, 9)),
    nvidia("L40S", &[48], (8, 9)),
    nvidia("P100", &[16], (6, 0)),
    nvidia("RTX2060", &[6, 12], (7, 5)),
    nvidia("RTX2060SUPER", &[8], (7, 5)),
    nvidia("RTX2070", &[8], (7, 5)),
    nvidia("RTX2070SUPER", &[8], (7, 5)),
    nvidia("RTX2080", &[8], (7, 5)),
    nvidia("RTX2080SUPER", &[8], (7, 5)),
    nvidia("RTX2080Ti", &[11], (7, 5)),
    nvidia("RTX3050", &[6, 8], (8, 6)),
    nvidia("RTX3060", &[8, 12], (8, 6)),
    nvidia("RTX3060Ti", &[8], (8, 6)),
    nvidia("RTX3070", &[8], (8, 6)),
    nvidia("RTX3070Ti", &[8], (8, 6)),
    nvidia("RTX3080", &[10], (8, 6)),
    nvidia("RTX3080Ti", &[12], (8, 6)),
    nvidia("RTX3090", &[24], (8, 6)),
    nvidia("RTX3090Ti", &[24], (8, 6)),
    nvidia("RTX4060", &[8], (8, 9)),
    nvidia("RTX4060Ti", &[8, 16], (8, 9)),
    nvidia("RTX4070", &[12], (8, 9)),
    nvidia("RTX4070SUPER", &[12], (8, 9)),
    nvidia("RTX4070Ti", &[12], (8, 9)),
    nvidia("RTX4070TiSUPER", &[16], (8, 9)),
    nvidia("RTX4080", &[16], (8, 9)),
    nvidia("RTX4080SUPER", &[16], (8, 9)),
    nvidia("RTX4090", &[24], (8, 9)),
    nvidia("RTX5060", &[8], (12, 0)),
    nvidia("RTX5060Ti", &[8, 16], (12, 0)),
    nvidia("RTX5070", &[12], (12, 0)),
    nvidia("RTX5070Ti", &[16], (12, 0)),
    nvidia("RTX5080", &[16], (12, 0)),
    nvidia("RTX5090", &[32], (12, 0)),
    nvidia("RTX6000", &[24], (7, 5)),
    nvidia("RTX2000Ada", &[16], (8, 9)),
    nvidia("RTX4000Ada", &[20], (8, 9)),
    nvidia("RTX6000Ada", &[48], (8, 9)),
    nvidia("RTXPRO4500", &[32], (12, 0)),
    nvidia("RTXPRO6000", &[96], (12, 0)),
    nvidia("T4", &[16], (7, 5)),
    nvidia("V100", &[16, 32], (7, 0)),
    nvidia("GH200", &[96], (9, 0)),
    other(AcceleratorVendor::Amd, "MI100", &[32]),
    other(AcceleratorVendor::Amd, "MI210", &[64]),
    other(AcceleratorVendor::Amd, "MI250", &[128]),
    other(AcceleratorVendor::Amd, "MI250X", &[128]),
    other(AcceleratorVendor::Amd, "MI300A", &[128]),
    other(AcceleratorVendor::Amd, "MI300X", &[192]),
    other(AcceleratorVendor::Amd, "MI308X", &[128]),
    other(AcceleratorVendor::Amd, "MI325X", &[288]),
    other(AcceleratorVendor::Amd, "MI350X", &[288]),
    other(AcceleratorVendor::Amd, "MI355X", &[288]),
    other(AcceleratorVendor::Intel, "Gaudi", &[32]),
    other(AcceleratorVendor::Intel, "Gaudi2", &[96]),
    other(AcceleratorVendor::Intel, "Gaudi3", &[128]),
    other(AcceleratorVendor::Tenstorrent, "n150", &[12]),
    other(AcceleratorVendor::Tenstorrent, "n300", &[24]),
    other(AcceleratorVendor::Tenstorrent, "tt-galaxy-wh", &[12]),
    other(AcceleratorVendor::Tenstorrent, "p100a", &[28]),
    other(AcceleratorVendor::Tenstorrent, "p150", &[32]),
    other(AcceleratorVendor::Tenstorrent, "p300", &[32, 64]),
    other(AcceleratorVendor::Tenstorrent, "tt-galaxy-bh", &[32]),
];

const fn nvidia(
    name: &'static str,
    memory_gib: &'static [u32],
    capability: (u32, u32),
) -> KnownGpu {
    KnownGpu {
        vendor: AcceleratorVendor::Nvidia,
        name,
        memory_gib,
        compute_capability: Some(capability),
    }
}

const fn other(
    vendor: AcceleratorVendor,
    name: &'static str,
    memory_gib: &'static [u32],
) -> KnownGpu {
    KnownGpu {
        vendor,
        name,
        memory_gib,
        compute_capability: None,
    }
}
