//! Choosing and checking disks.

use crate::instances::InstanceType;
use crate::resources::{Memory, Range, ResourcesSpec};

/// What is asked of a disk when nothing is written, GB.
const DEFAULT_DISK_GB: f64 = 100.0;

pub(super) fn has_fitting_disk(instance: &InstanceType, spec: &ResourcesSpec) -> bool {
    let size = instance.resources.disk.size_mib;
    size == 0
        || spec
            .disk
            .is_none_or(|disk| disk.size.contains(Memory::from_mib(size)))
}

/// The smallest disk that fits what is asked and what the provider can do.
///
/// `None` if there is no such size. Nothing asked means 100 GB or more.
pub fn smallest_disk(spec: &ResourcesSpec, configurable: Range<Memory>) -> Option<Memory> {
    let asked = spec.disk.map_or_else(
        || Range::at_least(Memory(DEFAULT_DISK_GB)),
        |disk| disk.size,
    );
    let both = asked.intersect(&configurable)?;
    // Only an upper bound on both sides leaves the choice free.
    both.min.or(both.max)
}

/// Gives a machine the disk it will have: a fixed one (not 0) is kept if it fits, else the smallest that fits is taken.
///
/// `false` if there is none; the machine is then unchanged.
pub fn fit_disk(
    instance: &mut InstanceType,
    spec: &ResourcesSpec,
    configurable: Option<Range<Memory>>,
) -> bool {
    let Some(configurable) = configurable else {
        return has_fitting_disk(instance, spec);
    };
    match smallest_disk(spec, configurable) {
        Some(size) => {
            instance.resources.disk.size_mib = size.mib();
            true
        }
        None => false,
    }
}
