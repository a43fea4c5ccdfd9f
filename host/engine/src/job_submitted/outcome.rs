//! What the answers of the providers mean for a job.

use std::sync::Arc;

use dstack_api::instances::InstanceStatus;
use dstack_api::jobs::{JobStatus, JobTerminationReason};
use dstack_backend_types::{
    InstanceOfferWithAvailability as Offer, InstanceRuntime, JobProvisioningData,
};

use super::{
    Attempt, Conclusion, Provision, View, abandon, after_placement, new_attempt, own_guards,
    patch_of, runtime,
};
use crate::changes::{Changes, CleanupRow, Guard, MachineRef, Pipeline};
use crate::ids::{FleetId, Ids};
use crate::model::CloudAttempt;
use crate::volumes::mounts;

/// Turns what the providers answered into changes. `attempts` are in the order of `order.offers`, as many as were
/// tried.
pub fn conclude(view: &View, order: &Provision, attempts: &[Attempt], ids: &mut Ids) -> Conclusion {
    let mut refused = order.refused.clone();
    for (tried, (attempt, offer)) in attempts.iter().zip(&order.offers).enumerate() {
        match attempt {
            Attempt::Made(data) => return Conclusion::Done(made(view, order, offer, data)),
            Attempt::Refused(reason) => refused.push(reason.clone()),
            Attempt::Skipped => {}
            Attempt::Unknown(reason) => {
                refused.push(reason.clone());
                let rest = order.offers.get(tried + 1..).unwrap_or_default().to_vec();
                let asked = CloudAttempt {
                    places: vec![(offer.backend.clone(), offer.region.clone())],
                    ..order.attempt.clone()
                };
                let mut before = Changes {
                    guards: own_guards(view),
                    ..Changes::default()
                };
                abandon(view, &asked, &mut before);
                if rest.is_empty() {
                    return Conclusion::Done(nothing_held(view, order, &refused, before));
                }
                let attempt = new_attempt(&rest, view.now, ids);
                patch_of(&mut before, order.instance_id).attempt = Some(Some(attempt.clone()));
                let again = Provision {
                    before,
                    attempt,
                    offers: rest,
                    refused,
                    ..order.clone()
                };
                return Conclusion::Again(Box::new(again));
            }
        }
    }
    let changes = Changes {
        guards: own_guards(view),
        ..Changes::default()
    };
    Conclusion::Done(nothing_held(view, order, &refused, changes))
}

fn made(view: &View, order: &Provision, offer: &Offer, data: &JobProvisioningData) -> Changes {
    let job = &view.job;
    let mut changes = Changes {
        guards: own_guards(view),
        ..Changes::default()
    };
    let data = Arc::new(data.clone());
    changes.made.push(CleanupRow {
        project_id: job.project_id,
        backend: data.backend.clone(),
        region: data.region.clone(),
        provider_ref: order.attempt.provider_ref.clone(),
        machine: Some(MachineRef {
            instance_id: data.instance_id.clone(),
            backend_data: data.backend_data.clone(),
        }),
        not_before: view.now,
    });
    changes.guards.push(Guard::InstanceIs(
        order.instance_id,
        vec![InstanceStatus::Pending],
    ));
    let patch = patch_of(&mut changes, order.instance_id);
    patch.status = Some(InstanceStatus::Provisioning);
    patch.started_at = Some(Some(view.now));
    patch.attempt = Some(None);
    patch.provider_ref = Some(Some(order.attempt.provider_ref.clone()));
    patch.provisioning_data = Some(Some(Arc::clone(&data)));
    patch.total_blocks = Some(Some(offer.total_blocks));
    patch.busy_blocks_delta = i32::try_from(offer.blocks).unwrap_or(i32::MAX);
    patch.offer = Some(Some(Arc::new(offer.clone())));
    if offer.instance_runtime == InstanceRuntime::Runner {
        // The container is the machine: there is nothing to reuse.
        patch.idle_limit = Some(Some(0));
    }
    let zone = data.availability_zone.as_deref();
    let volumes = mounts::choose(&order.volumes, &data.backend, &data.region, zone);
    let volumes = volumes.unwrap_or_default();
    mounts::hold(&mut changes, job.id, order.instance_id, &volumes);
    changes.job_becomes(job, JobStatus::Provisioning);
    let patch = changes.job(job);
    patch.instance_id = Some(Some(order.instance_id));
    patch.provisioning_data = Some(Some(data));
    patch.runtime_data = Some(Some(Arc::new(runtime(view, offer, &volumes))));
    patch.blocks = Some(offer.blocks);
    let what = &offer.instance.name;
    let message = format!(
        "instance {what} of {} in {} provisioned for the job",
        offer.backend, offer.region
    );
    changes.event(message, &[job]);
    if let Some(fleet) = view
        .fleets
        .iter()
        .find(|f| f.fleet.id == fleet_of(view, order))
    {
        after_placement(view, fleet.fleet.id, &mut changes);
    }
    changes.hint(Pipeline::Instances, order.instance_id);
    changes
}

fn fleet_of(view: &View, order: &Provision) -> FleetId {
    view.instance
        .as_ref()
        .map(|i| i.fleet_id)
        .or_else(|| order.before.new_instances.first().map(|n| n.row.fleet_id))
        .unwrap_or(order.wanted.fleet_id)
}

/// Every offer failed: the placeholder goes, and the job ends with the reasons.
fn nothing_held(
    view: &View,
    order: &Provision,
    refused: &[String],
    mut changes: Changes,
) -> Changes {
    let patch = patch_of(&mut changes, order.instance_id);
    patch.status = Some(InstanceStatus::Terminated);
    patch.attempt = Some(None);
    patch.finished_at = Some(Some(view.now));
    patch.deleted = Some(true);
    changes.guards.push(Guard::InstanceIs(
        order.instance_id,
        vec![InstanceStatus::Pending],
    ));
    changes.job(&view.job).instance_id = Some(None);
    let message = failure_text(order.total, refused);
    changes.job_ends(
        &view.job,
        JobTerminationReason::FailedToStartDueToNoCapacity,
        Some(message),
    );
    changes
}

/// Totals, and the first three distinct reasons of up to 200 characters each.
pub(crate) fn failure_text(total: usize, refused: &[String]) -> String {
    let mut reasons: Vec<String> = Vec::new();
    for reason in refused {
        let short: String = reason.chars().take(200).collect();
        if reasons.len() < 3 && !reasons.contains(&short) {
            reasons.push(short);
        }
    }
    let tried = refused.len();
    let why = if reasons.is_empty() {
        "none could be tried".into()
    } else {
        reasons.join("; ")
    };
    format!("{total} offers found, {tried} tried: {why}")
}
