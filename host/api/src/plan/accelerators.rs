//! What is inferred about accelerators, and what the default images support.

use dstack_backend_types::resources::{GpuSpec, ResourcesSpec};
use dstack_backend_types::{AcceleratorVendor, CpuArchitecture, gpus};

use super::PlanError;

/// Where the container's image comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSource {
    /// An image is named.
    pub image: bool,
    /// Docker mode is on.
    pub docker: bool,
}

impl ImageSource {
    /// Whether one of our images is used that has NVIDIA's libraries.
    pub const fn is_default(self) -> bool {
        !self.image && !self.docker
    }
}

/// The GPU spec with null filled in and the vendor inferred.
pub fn infer_vendor(gpu: Option<&GpuSpec>, source: ImageSource) -> GpuSpec {
    let mut gpu = gpu.cloned().unwrap_or_else(GpuSpec::unasked);
    if gpu.vendor.is_some() || gpu.count.max == Some(0) {
        return gpu;
    }
    gpu.vendor = match gpu.name.as_deref() {
        None | Some([]) => source.is_default().then_some(AcceleratorVendor::Nvidia),
        Some(names) => common_vendor(names),
    };
    gpu
}

/// The vendor of all names, if all are known and have the same.
fn common_vendor(names: &[String]) -> Option<AcceleratorVendor> {
    let mut vendors = names.iter().map(|name| gpus::vendor_by_name(name));
    let first = vendors.next()??;
    vendors.all(|vendor| vendor == Some(first)).then_some(first)
}

/// Checks that the image can use what is asked for.
///
/// # Errors
/// An accelerator or a processor that the default images do not support.
pub(super) fn check(resources: &ResourcesSpec, source: ImageSource) -> Result<(), PlanError> {
    if resources.cpu.arch == Some(CpuArchitecture::Arm) {
        if source.docker {
            return Err(PlanError::ArmDocker);
        }
        if !source.image {
            return Err(PlanError::ArmNeedsImage);
        }
    }
    let Some(gpu) = resources
        .gpu
        .as_ref()
        .filter(|gpu| gpu.count.max != Some(0))
    else {
        return Ok(());
    };
    if !source.is_default() {
        return Ok(());
    }
    let named = gpu
        .name
        .iter()
        .flatten()
        .flat_map(|name| gpus::vendors_by_name(name));
    let asked: Vec<_> = match gpu.vendor {
        Some(vendor) => vec![vendor],
        None => named.collect(),
    };
    let supported = [AcceleratorVendor::Nvidia, AcceleratorVendor::Google];
    match asked.into_iter().find(|vendor| !supported.contains(vendor)) {
        Some(vendor) => Err(PlanError::VendorNeedsImage(vendor)),
        None => Ok(()),
    }
}
