//! Why a job is placed nowhere: every candidate that was turned down, with its reason.
//!
//! It looks at what [`preview`](crate::preview) looks at. A plan shows what is left; this shows what was taken away.

mod offers;

use std::borrow::Cow;

use dstack_api::config::ProfileParams;
use dstack_api::explain::{Candidate, CandidateKind};
use dstack_api::instances::HealthStatus;
use dstack_api::jobs::JobSpec;
use dstack_api::plan::combine;
use dstack_api::runs::RunSpec;
use dstack_backend_types::Requirements;

use crate::combine::Wanted;
use crate::model::InstanceRow;
use crate::placement;
use crate::preview::{self, Ask};
use crate::spec;
use crate::view::{BackendAbilities, FleetFacts};
use crate::volumes::mounts::Named;

pub use offers::rejected;

/// What was found about one fleet.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The fleet, its instances and the backends that are not asked for it.
    pub candidates: Vec<Candidate>,
    /// What to ask for it; `None` if the fleet is out.
    pub ask: Option<Ask>,
}

/// Each fleet of a project, in the order given.
pub fn fleets(
    run: &RunSpec,
    job: &JobSpec,
    fleets: &[FleetFacts],
    (backends, volumes): (&[BackendAbilities], &[Named]),
    project: &str,
) -> Vec<Explained> {
    let profile = spec::run_profile(run);
    fleets
        .iter()
        .map(|facts| {
            let one = std::slice::from_ref(facts);
            let ask = preview::asks(run, job, one, (backends, volumes), project).pop();
            let out = out(facts, &profile, job, project);
            let room = room(facts, spec::required_nodes(run));
            let mut candidates = vec![Candidate {
                reason: out.or_else(|| room.clone()),
                ..Candidate::new(CandidateKind::Fleet, &facts.fleet.name)
            }];
            if let Some(ask) = &ask {
                candidates.extend(instances(facts, &profile, ask));
                if room.is_none() {
                    candidates.extend(unasked(&facts.fleet.name, ask, backends));
                }
            }
            Explained { candidates, ask }
        })
        .collect()
}

/// Why the fleet is out, whatever it has.
fn out(
    facts: &FleetFacts,
    profile: &ProfileParams,
    job: &JobSpec,
    project: &str,
) -> Option<String> {
    let fleet = &facts.fleet;
    if !spec::fleet_is_named(profile, &fleet.name, &facts.project_name, project) {
        return Some("the run names other `fleets`".to_owned());
    }
    if job.jobs_per_replica > 1 && !spec::is_cluster(&fleet.spec) {
        return Some(
            "the run has several nodes, and the fleet has no `placement: cluster`".to_owned(),
        );
    }
    Wanted::combine(fleet.id, &fleet.spec, profile, job, None)
        .is_none()
        .then(|| {
            format!(
                "fleet and run contradict each other in {}",
                contradiction(facts, profile, job)
            )
        })
}

/// The first key in which a fleet and a run cannot agree.
fn contradiction(facts: &FleetFacts, profile: &ProfileParams, job: &JobSpec) -> &'static str {
    let fleet = &facts.fleet.spec;
    if combine::profiles(&spec::fleet_profile(fleet), profile).is_none() {
        return "`spot_policy`";
    }
    let (own, run) = (spec::fleet_requirements(fleet), &job.requirements);
    let only = |needs: &Requirements| Requirements::of(needs.resources.clone());
    if combine::requirements(&only(&own), &only(run)).is_none() {
        return "`resources`";
    }
    if own.spot.zip(run.spot).is_some_and(|(a, b)| a != b) {
        return "`spot_policy`";
    }
    if own.reservation.is_some() && run.reservation.is_some() && own.reservation != run.reservation
    {
        return "`reservation`";
    }
    "`backend_options`"
}

/// Why the fleet gets no new instance.
fn room(facts: &FleetFacts, required: u32) -> Option<String> {
    let spec = &facts.fleet.spec;
    if spec::is_ssh(spec) {
        return None;
    }
    let max = spec::nodes_max(spec)?;
    if facts.living >= max {
        return Some(format!(
            "it has all of its {max} nodes: no new instance is made"
        ));
    }
    (max.saturating_sub(facts.taken) < required).then(|| {
        format!(
            "{} of its {max} nodes are taken, and the run needs {required}",
            facts.taken
        )
    })
}

fn instances<'a>(
    facts: &'a FleetFacts,
    profile: &'a ProfileParams,
    ask: &'a Ask,
) -> impl Iterator<Item = Candidate> + 'a {
    facts.pool.iter().map(move |instance| Candidate {
        fleet: Some(facts.fleet.name.to_string()),
        region: instance
            .provisioning_data
            .as_deref()
            .map(|data| data.region.clone()),
        price: instance.offer.as_deref().map(|offer| offer.price),
        reason: unfit(instance, profile, facts, &ask.reuse).map(Cow::into_owned),
        ..Candidate::new(CandidateKind::Instance, &instance.name)
    })
}

/// Why a machine that is there is not taken.
fn unfit(
    instance: &InstanceRow,
    profile: &ProfileParams,
    facts: &FleetFacts,
    wanted: &Wanted,
) -> Option<Cow<'static, str>> {
    if !placement::is_named(profile.instances.as_deref(), instance, &facts.fleet) {
        return Some("the run names other `instances`".into());
    }
    if placement::fit(instance, wanted).is_some() {
        return None;
    }
    let (Some(offer), Some(data)) = (
        instance.offer.as_deref(),
        instance.provisioning_data.as_deref(),
    ) else {
        return Some("it is not ready yet".into());
    };
    Some(if instance.unreachable {
        "it cannot be reached".into()
    } else if instance.health == HealthStatus::Failure {
        "its health check fails".into()
    } else if !instance.status.is_available() {
        format!("it is {}", instance.status).into()
    } else if !wanted.accepts_machine(offer, data) {
        offers::elsewhere(offer, wanted)
            .unwrap_or_else(|| "it stands where the run does not want it".into())
    } else if let Some(why) = offers::lacking(offer, &wanted.requirements) {
        why
    } else {
        let (free, total) = (instance.free_blocks(), instance.total_blocks.unwrap_or(1));
        format!("{free} of its {total} blocks are free, too few").into()
    })
}

/// The backends that are not asked for machines of a fleet.
fn unasked<'a>(
    fleet: &'a str,
    ask: &'a Ask,
    backends: &'a [BackendAbilities],
) -> impl Iterator<Item = Candidate> + 'a {
    backends.iter().filter_map(move |backend| {
        let reason = refusal(backend, &ask.wanted)?;
        Some(Candidate {
            fleet: Some(fleet.to_owned()),
            reason: Some(reason.to_owned()),
            ..Candidate::new(CandidateKind::Backend, backend.name.as_str())
        })
    })
}

/// Why it makes no sense to ask a backend; `None` if it does.
fn refusal(backend: &BackendAbilities, wanted: &Wanted) -> Option<&'static str> {
    if wanted.accepts_backend(backend) {
        return None;
    }
    let (params, needs) = (&wanted.profile.params, &wanted.requirements);
    let named = params
        .backends
        .as_ref()
        .is_none_or(|list| list.contains(&backend.name));
    Some(if !named {
        "fleet and run name other `backends`"
    } else if !backend.multinode && needs.multinode == Some(true) {
        "its machines do not reach each other, and the run or the fleet wants a cluster"
    } else if !backend.privileged && wanted.privileged {
        "its containers are never `privileged`"
    } else if !backend.instance_mounts && wanted.instance_mounts {
        "its jobs cannot mount folders of the machine"
    } else if !backend.reservations && needs.reservation.is_some() {
        "it knows no reservations"
    } else if wanted
        .fixed
        .as_ref()
        .is_some_and(|fixed| fixed.backend != backend.name)
    {
        "the other machines of the cluster are elsewhere"
    } else {
        "the run's volumes are elsewhere"
    })
}
