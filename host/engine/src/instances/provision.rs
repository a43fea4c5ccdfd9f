//! From the wish for a machine to the order that held.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::fleets::FleetStatus;
use dstack_api::instances::{InstanceStatus as Status, InstanceTerminationReason as Reason};
use dstack_api::jobs::JobStatus;
use dstack_backend_types::{
    BackendType, InstanceOfferWithAvailability as Offer, JobProvisioningData,
};

use super::{Conclusion, Plan, Provision, View, gone, never_was, own_guard};
use crate::changes::{Changes, CleanupRow, MachineRef};
use crate::combine::Wanted;
use crate::ids::Ids;
use crate::job_submitted::{Attempt, failure_text, lost_rows, new_attempt};
use crate::model::CloudAttempt;
use crate::spec;

pub(super) fn pending(view: &View, ids: &mut Ids) -> Plan {
    let instance = &view.instance;
    if let Some(owner) = instance.owner_job {
        if view
            .jobs
            .iter()
            .any(|job| job.id == owner && job.status != JobStatus::Terminating)
        {
            return Plan::Change(Changes::later(Duration::from_secs(60)));
        }
        if view.jobs.iter().any(|job| job.id == owner) {
            return Plan::Change(Changes::later(Duration::from_secs(10)));
        }
        return Plan::Change(never_was(view, Reason::JobFinished, None));
    }
    if instance.ssh_host.is_some() {
        return super::own_host::pending(view);
    }
    if view.fleet.status != FleetStatus::Active {
        return Plan::Change(never_was(view, Reason::TerminatedByUser, None));
    }
    if spec::is_cluster(&view.fleet.spec) && view.master.is_none() && !view.first_of_cluster {
        // The first machine of the cluster decides where the others go.
        return Plan::Change(Changes::later(Duration::from_secs(5)));
    }
    let wanted = Wanted::of_fleet(view.fleet.id, &view.fleet.spec, view.master.as_ref());
    let Some(offers) = &view.offers else {
        let backends: Vec<BackendType> = view
            .backends
            .iter()
            .filter(|b| b.creates_instances && wanted.accepts_backend(b))
            .map(|b| b.name.clone())
            .collect();
        if backends.is_empty() {
            let why = "no backend of the project can make such instances".to_owned();
            return Plan::Change(never_was(view, Reason::NoOffers, Some(why)));
        }
        return Plan::AskOffers {
            backends,
            wanted: Box::new(wanted),
            sharing: spec::sharing(&view.fleet.spec),
        };
    };
    let usable: Vec<Offer> = offers
        .iter()
        .filter(|offer| offer.availability.is_available())
        .take(view.limits.offers_tried)
        .cloned()
        .collect();
    if usable.is_empty() {
        let why = format!("{} offers found, none available", offers.len());
        return Plan::Change(never_was(view, Reason::NoOffers, Some(why)));
    }
    let attempt = new_attempt(&usable, view.now, ids);
    let mut before = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    if let Some(lost) = &instance.attempt {
        before.cleanup.extend(lost_rows(
            lost,
            &instance.project_id,
            view.now,
            &view.limits,
        ));
    }
    before.instance(instance).attempt = Some(Some(attempt.clone()));
    Plan::Provision(Box::new(Provision {
        before,
        attempt,
        offers: usable,
        wanted,
        refused: Vec::new(),
        total: offers.len(),
    }))
}

/// Turns what the providers answered to an order into changes.
pub fn conclude_provision(
    view: &View,
    order: &Provision,
    attempts: &[Attempt],
    ids: &mut Ids,
) -> Conclusion {
    let instance = &view.instance;
    let mut refused = order.refused.clone();
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    for (tried, (attempt, offer)) in attempts.iter().zip(&order.offers).enumerate() {
        match attempt {
            Attempt::Made(data) => return Conclusion::Done(made(view, order, offer, data)),
            Attempt::Refused(reason) => refused.push(reason.clone()),
            Attempt::Skipped => {}
            Attempt::Unknown(reason) => {
                refused.push(reason.clone());
                let asked = CloudAttempt {
                    places: vec![(offer.backend.clone(), offer.region.clone())],
                    ..order.attempt.clone()
                };
                changes.cleanup.extend(lost_rows(
                    &asked,
                    &instance.project_id,
                    view.now,
                    &view.limits,
                ));
                let rest = order.offers.get(tried + 1..).unwrap_or_default().to_vec();
                if rest.is_empty() {
                    break;
                }
                let attempt = new_attempt(&rest, view.now, ids);
                changes.instance(instance).attempt = Some(Some(attempt.clone()));
                let again = Provision {
                    before: changes,
                    attempt,
                    offers: rest,
                    refused,
                    ..order.clone()
                };
                return Conclusion::Again(Box::new(again));
            }
        }
    }
    let why = failure_text(order.total, &refused);
    gone(view, &mut changes, Reason::NoOffers, Some(why));
    Conclusion::Done(changes)
}

fn made(view: &View, order: &Provision, offer: &Offer, data: &JobProvisioningData) -> Changes {
    let instance = &view.instance;
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    changes.made.push(CleanupRow {
        project_id: instance.project_id,
        backend: data.backend.clone(),
        region: data.region.clone(),
        provider_ref: order.attempt.provider_ref.clone(),
        machine: Some(MachineRef {
            instance_id: data.instance_id.clone(),
            backend_data: data.backend_data.clone(),
        }),
        not_before: view.now,
    });
    changes.instance_becomes(instance, Status::Provisioning);
    let patch = changes.instance(instance);
    patch.started_at = Some(Some(view.now));
    patch.attempt = Some(None);
    patch.provider_ref = Some(Some(order.attempt.provider_ref.clone()));
    patch.provisioning_data = Some(Some(Arc::new(data.clone())));
    patch.offer = Some(Some(Arc::new(offer.clone())));
    patch.total_blocks = Some(Some(offer.total_blocks));
    let from = format!(
        "{} of {} in {}",
        offer.instance.name, offer.backend, offer.region
    );
    changes.event(format!("Instance provisioned: {from}"), &[instance]);
    changes.look_again = Some(Duration::ZERO);
    changes
}
