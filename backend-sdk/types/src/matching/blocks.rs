//! Sharing a machine: it is cut into equal blocks, and a job takes one or more.

use serde::{Deserialize, Serialize};

use super::matches;
use crate::instances::{AcceleratorVendor, Resources};
use crate::offers::InstanceOfferWithAvailability;
use crate::requirements::Requirements;

/// Into how many blocks a machine is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Blocks {
    /// So many.
    Count(u32),
    /// As many as possible.
    Auto(AutoWord),
}

/// The word `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AutoWord {
    /// As many as possible.
    Auto,
}

impl Blocks {
    /// As many as possible.
    pub const AUTO: Self = Self::Auto(AutoWord::Auto);
}

impl Default for Blocks {
    fn default() -> Self {
        Self::Count(1)
    }
}

/// Number of blocks of a machine, or `None` if it cannot be cut so: processors and accelerators must divide evenly.
///
/// `auto` is the number of processors without accelerators, else the smaller of both numbers. A TPU counts as one.
pub fn total_blocks(has: &Resources, blocks: Blocks) -> Option<u32> {
    let gpus = gpu_count(has);
    let count = match blocks {
        Blocks::Count(count) => count,
        Blocks::Auto(_) if gpus == 0 => has.cpus,
        Blocks::Auto(_) => gpus.min(has.cpus),
    };
    (count >= 1 && has.cpus.is_multiple_of(count) && gpus.is_multiple_of(count)).then_some(count)
}

fn gpu_count(has: &Resources) -> u32 {
    if has
        .gpus
        .first()
        .is_some_and(|gpu| gpu.vendor() == AcceleratorVendor::Google)
    {
        return 1;
    }
    u32::try_from(has.gpus.len()).unwrap_or(u32::MAX)
}

/// `blocks` of `total` blocks of a machine: a share of processors, memory and accelerators; all of the disk and the price.
///
/// A `total` of 0 counts as 1.
pub fn share_of(
    whole: &InstanceOfferWithAvailability,
    blocks: u32,
    total: u32,
) -> InstanceOfferWithAvailability {
    let total = total.max(1);
    let mut share = whole.clone();
    let has = &mut share.instance.resources;
    has.cpus = has.cpus / total * blocks;
    has.memory_mib = has.memory_mib / u64::from(total) * u64::from(blocks);
    let gpus = has.gpus.len() / usize::try_from(total).unwrap_or(usize::MAX);
    has.gpus
        .truncate(gpus.saturating_mul(usize::try_from(blocks).unwrap_or(usize::MAX)));
    share.blocks = blocks;
    share.total_blocks = total;
    share
}

/// The smallest share of at most `free` blocks that fits the requirements.
pub fn smallest_share(
    whole: &InstanceOfferWithAvailability,
    total: u32,
    free: u32,
    requirements: &Requirements,
) -> Option<InstanceOfferWithAvailability> {
    (1..=free.min(total))
        .map(|blocks| share_of(whole, blocks, total))
        .find(|share| matches(share, requirements))
}
