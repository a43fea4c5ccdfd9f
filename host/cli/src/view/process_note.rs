//! What a plan says when the best offer runs jobs without a container.

use dstack_api::runs::{RunPlan, RunSpec};
use dstack_backend_types::{BackendType, InstanceAvailability, InstanceOfferWithAvailability};

/// One line if the run would be a process of the machine; `None` for containers and for what other servers offer.
pub(crate) fn process_note(plan: &RunPlan) -> Option<String> {
    let offers = &plan.job_plans.first()?.offers;
    let best = offers
        .iter()
        .find(|offer| offer.availability.is_available())?;
    // An idle machine's own offer is from the time when it was made; the backend's answer is about this run.
    let asked = offers.iter().find(|offer| {
        offer.backend == best.backend && offer.availability != InstanceAvailability::Idle
    });
    if !is_process(asked.unwrap_or(best)) {
        return None;
    }
    let unused = unused(plan.effective_run_spec.as_ref().unwrap_or(&plan.run_spec));
    let unused = if unused.is_empty() {
        String::new()
    } else {
        format!(" Not used: {}.", unused.join(", "))
    };
    Some(format!(
        "Runs as a process of the machine, not in a container: with its programs, files and network, and without SSH.{unused}"
    ))
}

fn is_process(offer: &InstanceOfferWithAvailability) -> bool {
    offer.backend == BackendType::LOCAL
        && offer
            .backend_data
            .get("runtime")
            .is_some_and(|word| word == "process")
}

/// The keys of the configuration that only a container can honour.
fn unused(spec: &RunSpec) -> Vec<&'static str> {
    let base = spec.configuration.base();
    let keys = [
        ("image", base.image.is_some()),
        ("registry_auth", base.registry_auth.is_some()),
        ("docker", base.docker == Some(true)),
        ("privileged", base.privileged),
        ("resources.shm_size", base.resources.shm_size.is_some()),
    ];
    keys.into_iter()
        .filter_map(|(key, is_set)| is_set.then_some(key))
        .collect()
}
