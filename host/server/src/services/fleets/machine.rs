//! A machine as answers show it.

use dstack_api::instances::Instance;
use dstack_backend_types::BackendType;
use dstack_engine::model::InstanceRow;
use dstack_store::{Tx, fleets, projects};

use crate::error::ApiError;

/// With the names of its project and fleet.
pub(super) fn labelled(tx: &mut dyn Tx, row: &InstanceRow) -> Result<Instance, ApiError> {
    let project = projects::get(tx, row.project_id)?
        .map(|project| project.name)
        .unwrap_or_default();
    let fleet = fleets::get(tx, row.fleet_id)?
        .map(|fleet| fleet.name.to_string())
        .unwrap_or_default();
    Ok(view(row, &project, &fleet))
}

/// With these names.
pub(super) fn view(row: &InstanceRow, project: &str, fleet: &str) -> Instance {
    let machine = row.provisioning_data.as_deref();
    let offer = row.offer.as_deref();
    // What is known of a machine of one's own before it was entered.
    let own = row.ssh_host.as_deref();
    let own_name = own
        .and_then(|own| own.rsplit_once(':'))
        .map(|(name, _)| name.to_owned());
    Instance {
        id: row.id.0,
        project_name: project.to_owned(),
        backend: machine
            .map(|machine| machine.backend.clone())
            .or_else(|| offer.map(|offer| offer.backend.clone()))
            .or_else(|| own.map(|_| BackendType::REMOTE)),
        instance_type: machine
            .map(|machine| machine.instance_type.clone())
            .or_else(|| offer.map(|offer| offer.instance.clone())),
        name: row.name.to_string(),
        fleet_id: Some(row.fleet_id.0),
        fleet_name: Some(fleet.to_owned()),
        instance_num: row.instance_num,
        job_name: None,
        hostname: machine.map_or(own_name, |machine| machine.hostname.clone()),
        status: row.status,
        unreachable: row.unreachable,
        health_status: row.health,
        termination_reason: row
            .termination_reason
            .map(|reason| reason.as_str().to_owned()),
        termination_reason_message: row.termination_reason_message.clone(),
        created: row.created_at,
        finished_at: row.finished_at,
        region: machine
            .map(|machine| machine.region.clone())
            .or_else(|| offer.map(|offer| offer.region.clone()))
            .or_else(|| own.map(|_| "remote".to_owned())),
        availability_zone: machine.and_then(|machine| machine.availability_zone.clone()),
        price: machine
            .map(|machine| machine.price)
            .or_else(|| offer.map(|offer| offer.price))
            .or_else(|| own.map(|_| 0.0)),
        total_blocks: row.total_blocks,
        busy_blocks: row.busy_blocks,
        gpu_driver: machine.and_then(|machine| machine.gpu_driver.clone()),
    }
}
