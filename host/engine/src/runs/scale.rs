//! The number of replicas follows the load; see [`scaling`](crate::scaling) for the rule.

use std::collections::BTreeMap;

use dstack_api::jobs::{JobStatus, JobTerminationReason as Reason};
use jiff::Timestamp;

use super::replicas::Replica;
use super::{View, again, rollout};
use crate::admit::AdmitError;
use crate::changes::{Changes, Guard};
use crate::ids::Ids;
use crate::model::{JobRow, Stop};
use crate::scaling::{self, Load};
use crate::spec::{self, Group};

/// Brings every group of replicas to its number and its newest deployment.
pub(super) fn groups(
    view: &View,
    replicas: &[Replica<'_>],
    changes: &mut Changes,
    ids: &mut Ids,
) -> Result<(), AdmitError> {
    let run = &view.run;
    if !spec::is_service(&run.spec) {
        return rollout::take_over(view, replicas.iter(), changes).map(drop);
    }
    let since = since_scaled(view, replicas);
    let mut numbers = Numbers::of(replicas);
    let mut desired = BTreeMap::new();
    for (index, group) in spec::groups(&run.spec).iter().enumerate() {
        let wanted = wanted(view, group, since);
        desired.insert(group.name.clone(), wanted);
        let own: Vec<&Replica<'_>> = replicas
            .iter()
            .filter(|replica| replica.group == Some(index))
            .collect();
        let mut order = Order {
            view,
            group: index,
            wanted,
            numbers: &mut numbers,
        };
        if !rollout::step(&mut order, &own, changes, ids)? {
            order.reach(&own, changes, ids)?;
        }
    }
    for replica in replicas.iter().filter(|replica| replica.group.is_none()) {
        scale_down(replica, changes);
    }
    if desired != run.desired_replicas {
        changes.run(run).desired_replicas = Some(desired);
    }
    Ok(())
}

/// The number of replicas that each group should have now.
pub(super) fn wanted_now(view: &View) -> Vec<u32> {
    let since = since_scaled(view, &super::replicas::of(view));
    spec::groups(&view.run.spec)
        .iter()
        .map(|group| wanted(view, group, since))
        .collect()
}

fn wanted(view: &View, group: &Group<'_>, since_scaled: Option<i64>) -> u32 {
    let current = view
        .run
        .desired_replicas
        .get(&group.name)
        .copied()
        .unwrap_or(group.bounds.0);
    let window = group.scaling.map_or(0, scaling::window);
    let load = Load {
        requests: view.traffic.map(|traffic| traffic.within(window)),
        since_scaled,
    };
    scaling::desired(group.bounds, group.scaling, current, load)
}

/// Seconds since replicas last came or went; one value for all groups.
fn since_scaled(view: &View, replicas: &[Replica<'_>]) -> Option<i64> {
    let at = |replica: &Replica<'_>| -> Option<Timestamp> {
        let is_active = replica.is_active();
        let of = |job: &JobRow| {
            if is_active {
                job.submitted_at
            } else {
                job.finished_at.unwrap_or(job.last_processed_at)
            }
        };
        replica.latest().map(of).max()
    };
    let last = replicas.iter().filter_map(at).max()?;
    Some(crate::job_running::secs(view.now, last))
}

/// Numbers for replicas that are still to come.
pub(super) struct Numbers(u32);

impl Numbers {
    fn of(replicas: &[Replica<'_>]) -> Self {
        Self(
            replicas
                .iter()
                .map(|replica| replica.num + 1)
                .max()
                .unwrap_or(0),
        )
    }

    fn next(&mut self) -> u32 {
        self.0 += 1;
        self.0 - 1
    }
}

/// What one group is to reach.
pub(super) struct Order<'a, 'b> {
    pub(super) view: &'a View,
    pub(super) group: usize,
    pub(super) wanted: u32,
    pub(super) numbers: &'b mut Numbers,
}

impl Order<'_, '_> {
    /// Adds or removes replicas until there are as many as wanted. A replica that waits for its next try is one.
    fn reach(
        &mut self,
        own: &[&Replica<'_>],
        changes: &mut Changes,
        ids: &mut Ids,
    ) -> Result<(), AdmitError> {
        let there = own
            .iter()
            .filter(|replica| replica.is_active() || replica.told.retry)
            .count();
        let there = u32::try_from(there).unwrap_or(u32::MAX);
        if there < self.wanted {
            self.add(self.wanted - there, own, changes, ids)?;
        }
        let surplus = usize::try_from(there.saturating_sub(self.wanted)).unwrap_or(usize::MAX);
        for replica in least_needed_first(self.view, own).into_iter().take(surplus) {
            scale_down(replica, changes);
        }
        Ok(())
    }

    /// New replicas; numbers of replicas that are over are used again first.
    pub(super) fn add(
        &mut self,
        count: u32,
        own: &[&Replica<'_>],
        changes: &mut Changes,
        ids: &mut Ids,
    ) -> Result<(), AdmitError> {
        let mut over = own
            .iter()
            .filter(|replica| !replica.is_active() && !replica.told.retry);
        for _ in 0..count {
            let (num, before) = match over.next() {
                Some(replica) => (replica.num, Some(*replica)),
                None => (self.numbers.next(), None),
            };
            again::submit(
                self.view,
                num,
                before,
                self.group,
                "to reach the number of replicas",
                changes,
                ids,
            )?;
        }
        Ok(())
    }
}

/// Replicas in the order in which they are removed: of an earlier deployment before others, then those that have come
/// less far, then higher numbers.
pub(super) fn least_needed_first<'a, 'b>(
    view: &View,
    own: &[&'b Replica<'a>],
) -> Vec<&'b Replica<'a>> {
    let mut there: Vec<&Replica<'_>> = own
        .iter()
        .filter(|replica| replica.is_active() || replica.told.retry)
        .copied()
        .collect();
    there.sort_by_key(|replica| {
        (
            !replica.is_outdated(view.run.deployment_num),
            replica.importance(),
            std::cmp::Reverse(replica.num),
        )
    });
    there
}

/// Ends a replica; it takes no more requests from now on, and has time for those that it has.
pub(super) fn scale_down(replica: &Replica<'_>, changes: &mut Changes) {
    for job in replica.latest() {
        if job.status.is_finished() || job.status == JobStatus::Terminating {
            if replica.told.retry && job.status.is_finished() {
                // It waits for its next try, which is not wanted any more.
                changes.job(job).termination_reason = Some(Some(Reason::ScaledDown));
            }
            continue;
        }
        changes.guards.push(Guard::JobIs(job.id, vec![job.status]));
        changes.job_ends(job, Reason::ScaledDown, None);
        if job.status == JobStatus::Running {
            changes.job(job).stop = Some(Stop::Requested);
        }
    }
}
