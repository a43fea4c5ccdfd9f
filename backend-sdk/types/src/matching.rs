//! Which offers fit which requirements, and how a machine is shared.
//!
//! Both sides use it: a backend to filter what its provider returns, the host to filter the machines it has.

mod blocks;
mod disk;
#[cfg(test)]
mod tests;

pub use blocks::{Blocks, share_of, smallest_share, total_blocks};
pub use disk::{fit_disk, smallest_disk};

use crate::gpus;
use crate::instances::{AcceleratorVendor, CpuArchitecture, Gpu, InstanceType};
use crate::offers::InstanceOfferWithAvailability;
use crate::requirements::Requirements;
use crate::resources::{ComputeCapability, GpuSpec, Memory, ResourcesSpec};

/// Whether an offer has what is required, costs no more, and is spot or not as asked.
///
/// Reservation, multinode and backend options are not looked at: only the backend can judge them. A disk of size 0 is an
/// unknown one and fits.
pub fn matches(offer: &InstanceOfferWithAvailability, requirements: &Requirements) -> bool {
    matches_without_disk(offer, requirements)
        && disk::has_fitting_disk(&offer.instance, &requirements.resources)
}

/// As [`matches()`], for offers whose disk is still to be chosen.
pub fn matches_without_disk(
    offer: &InstanceOfferWithAvailability,
    requirements: &Requirements,
) -> bool {
    requirements.max_price.is_none_or(|max| offer.price <= max)
        && requirements
            .spot
            .is_none_or(|spot| offer.instance.resources.spot == spot)
        && machine_fits(&offer.instance, &requirements.resources)
}

/// Whether a machine has the processors, memory and accelerators asked for.
pub fn machine_fits(instance: &InstanceType, spec: &ResourcesSpec) -> bool {
    let has = &instance.resources;
    let arch = has.cpu_arch.unwrap_or(CpuArchitecture::X86);
    spec.cpu.arch.is_none_or(|asked| asked == arch)
        && spec.cpu.count.contains(has.cpus)
        && spec.memory.contains(Memory::from_mib(has.memory_mib))
        && spec.gpu.as_ref().is_none_or(|gpu| gpus_fit(&has.gpus, gpu))
}

/// Whether the accelerators of one machine fit. All of a machine are alike, so the first stands for all.
pub fn gpus_fit(has: &[Gpu], spec: &GpuSpec) -> bool {
    let first = has.first();
    // `0..` of anything: a machine without accelerators will do.
    if first.is_none() && spec.count.min == Some(0) {
        return true;
    }
    let memory = Memory::from_mib(first.map_or(0, |gpu| gpu.memory_mib));
    let total = Memory::from_mib(has.iter().map(|gpu| gpu.memory_mib).sum());
    u32::try_from(has.len()).is_ok_and(|count| spec.count.contains(count))
        && spec.memory.is_none_or(|asked| asked.contains(memory))
        && spec.total_memory.is_none_or(|asked| asked.contains(total))
        && model_fits(first, spec)
}

/// Whether one accelerator fits, without regard to how many there are.
pub fn gpu_fits(gpu: &Gpu, spec: &GpuSpec) -> bool {
    spec.memory
        .is_none_or(|asked| asked.contains(Memory::from_mib(gpu.memory_mib)))
        && model_fits(Some(gpu), spec)
}

fn model_fits(gpu: Option<&Gpu>, spec: &GpuSpec) -> bool {
    let vendor = gpu.map(Gpu::vendor);
    spec.vendor.is_none_or(|asked| vendor == Some(asked))
        && spec.name.as_ref().is_none_or(|names| {
            gpu.is_some_and(|gpu| {
                names
                    .iter()
                    .any(|name| name.eq_ignore_ascii_case(&gpu.name))
            })
        })
        && spec.compute_capability.is_none_or(|least| {
            vendor == Some(AcceleratorVendor::Nvidia)
                && gpu.is_some_and(|gpu| {
                    gpus::compute_capability(&gpu.name)
                        .is_some_and(|(major, minor)| ComputeCapability(major, minor) >= least)
                })
        })
}
