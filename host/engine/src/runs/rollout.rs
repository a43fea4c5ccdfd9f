//! Rolling deployments: replicas of an earlier deployment are taken over if nothing of them changes, else replaced one
//! after the other, with one more than wanted at a time.

use super::View;
use super::again::is_same;
use super::replicas::Replica;
use super::scale::{Order, least_needed_first, scale_down};
use crate::admit::{self, AdmitError};
use crate::changes::Changes;
use crate::ids::Ids;

/// Gives replicas that the newest deployment does not change its number; answers those that it does change.
pub(super) fn take_over<'a, 'b: 'a>(
    view: &View,
    replicas: impl Iterator<Item = &'b Replica<'a>>,
    changes: &mut Changes,
) -> Result<Vec<&'b Replica<'a>>, AdmitError> {
    let run = &view.run;
    let mut others = Vec::new();
    for replica in
        replicas.filter(|replica| replica.is_active() && replica.is_outdated(run.deployment_num))
    {
        let Some(group) = replica.group else { continue };
        let specs = admit::replica(run, &view.defaults, replica.num, group)?;
        let same = specs.len() == replica.jobs.len()
            && replica.latest().all(|job| {
                specs
                    .iter()
                    .any(|spec| spec.job_num == job.job_num && is_same(&job.spec, spec))
            });
        if same {
            for job in replica.latest() {
                changes.job(job).deployment_num = Some(run.deployment_num);
            }
        } else {
            others.push(replica);
        }
    }
    Ok(others)
}

/// The next step of a group's rollout; false when there is nothing to roll out.
pub(super) fn step(
    order: &mut Order<'_, '_>,
    own: &[&Replica<'_>],
    changes: &mut Changes,
    ids: &mut Ids,
) -> Result<bool, AdmitError> {
    let view = order.view;
    let outdated = take_over(view, own.iter().copied(), changes)?;
    if outdated.is_empty() {
        return Ok(false);
    }
    let is_outdated = |num: u32| outdated.iter().any(|replica| replica.num == num);
    let count = |test: &dyn Fn(&Replica<'_>) -> bool| {
        let count = own.iter().filter(|replica| test(replica)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let unfinished = count(&|replica| replica.is_unfinished() || replica.told.retry);
    let new =
        count(&|replica| (replica.is_active() || replica.told.retry) && !is_outdated(replica.num));
    let missing = order.wanted.saturating_sub(new);
    let room = (order.wanted + 1).saturating_sub(unfinished);
    if missing.min(room) > 0 {
        order.add(missing.min(room), own, changes, ids)?;
    }
    let with_traffic = count(&|replica| replica.has_traffic());
    let mut surplus = with_traffic.saturating_sub(order.wanted);
    for replica in least_needed_first(view, &outdated) {
        if replica.has_traffic() {
            if surplus == 0 {
                continue;
            }
            surplus -= 1;
        }
        scale_down(replica, changes);
    }
    Ok(true)
}
