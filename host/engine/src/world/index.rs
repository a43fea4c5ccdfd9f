//! What is known of a fleet without looking at all its instances.

use std::collections::BTreeSet;

use dstack_api::instances::{HealthStatus, InstanceStatus};

use jiff::Timestamp;

use crate::ids::InstanceId;
use crate::model::InstanceRow;

/// Kept up to date with every change of an instance.
#[derive(Debug, Clone, Default)]
pub(super) struct FleetIndex {
    /// Not deleted.
    pub(super) all: BTreeSet<InstanceId>,
    /// Ready, reachable, not failing, with a free block; by price (its bits sort like the number), then number.
    pub(super) pool: BTreeSet<(u64, u32, InstanceId)>,
    /// Living with a known machine, oldest first: the first one leads a cluster.
    pub(super) made: BTreeSet<(Timestamp, u32, InstanceId)>,
    /// Numbers of living instances.
    pub(super) numbers: BTreeSet<u32>,
    /// Neither terminating nor terminated.
    pub(super) living: u32,
    /// Living, and busy or a placeholder.
    pub(super) taken: u32,
    /// Living, with jobs, or made for one and not ready.
    pub(super) used: u32,
}

fn pool_key(instance: &InstanceRow) -> Option<(u64, u32, InstanceId)> {
    let ready = instance.status.is_available()
        && !instance.deleted
        && !instance.unreachable
        && instance.health != HealthStatus::Failure
        && instance.free_blocks() > 0;
    let price = instance
        .offer
        .as_ref()
        .map_or(0.0, |offer| offer.price)
        .max(0.0);
    ready.then(|| (price.to_bits(), instance.instance_num, instance.id))
}

fn made_key(instance: &InstanceRow) -> Option<(Timestamp, u32, InstanceId)> {
    let made = instance.is_living() && instance.provisioning_data.is_some();
    made.then_some((instance.created_at, instance.instance_num, instance.id))
}

fn is_taken(instance: &InstanceRow) -> bool {
    instance.is_living()
        && ((instance.status == InstanceStatus::Busy && instance.busy_blocks > 0)
            || (instance.owner_job.is_some()
                && matches!(
                    instance.status,
                    InstanceStatus::Pending | InstanceStatus::Provisioning
                )))
}

fn is_used(instance: &InstanceRow) -> bool {
    instance.is_living()
        && (instance.busy_blocks > 0
            || (instance.owner_job.is_some() && instance.status == InstanceStatus::Pending))
}

impl FleetIndex {
    pub(super) fn add(&mut self, instance: &InstanceRow) {
        if instance.deleted {
            return;
        }
        self.all.insert(instance.id);
        self.pool.extend(pool_key(instance));
        self.made.extend(made_key(instance));
        if instance.is_living() {
            self.numbers.insert(instance.instance_num);
            self.living += 1;
        }
        self.taken += u32::from(is_taken(instance));
        self.used += u32::from(is_used(instance));
    }

    pub(super) fn remove(&mut self, instance: &InstanceRow) {
        if instance.deleted {
            return;
        }
        self.all.remove(&instance.id);
        if let Some(key) = pool_key(instance) {
            self.pool.remove(&key);
        }
        if let Some(key) = made_key(instance) {
            self.made.remove(&key);
        }
        if instance.is_living() {
            self.numbers.remove(&instance.instance_num);
            self.living -= 1;
        }
        self.taken -= u32::from(is_taken(instance));
        self.used -= u32::from(is_used(instance));
    }

    /// The lowest number that no living instance has.
    pub(super) fn free_number(&self) -> u32 {
        let count = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        if count == 0 || self.numbers.last().is_some_and(|last| *last < count) {
            return count;
        }
        crate::names::lowest_unused(&self.numbers)
            .next()
            .unwrap_or(count)
    }
}
