//! The rows of a new fleet, and what an update of one changes.

use std::sync::Arc;

use dstack_api::fleets::{FleetSpec, FleetStatus};
use jiff::Timestamp;

use crate::changes::{Actor, Changes, FleetPatch, NewInstance, Pipeline};
use crate::combine::Wanted;
use crate::ids::{FleetId, Ids, InstanceId, ProjectId, UserId};
use crate::model::{FleetRow, InstanceRow};
use crate::{idle, spec, ssh_hosts};

/// A fleet that is active at once, with as many pending instances as its target says, or one for each own host.
pub fn create(
    project_id: ProjectId,
    user_id: UserId,
    name: &str,
    fleet: FleetSpec,
    now: Timestamp,
    ids: &mut Ids,
) -> (FleetId, Changes) {
    let row = FleetRow {
        id: FleetId(ids.uuid()),
        project_id,
        name: name.into(),
        spec: Arc::new(fleet),
        status: FleetStatus::Active,
        status_message: None,
        created_at: now,
        last_processed_at: now,
        consolidation_attempt: 0,
        consolidated_at: None,
        deleted: false,
    };
    let mut changes = Changes::default();
    changes.event("Fleet created. Status: ACTIVE", &[&row]);
    for _ in 0..spec::nodes_target(&row.spec) {
        let instance = pending(&row, now, InstanceId(ids.uuid()));
        changes.hint(Pipeline::Instances, instance.id);
        changes.new_instances.push(NewInstance {
            row: instance,
            number_it: true,
        });
    }
    for host in ssh_hosts::hosts(&row.spec) {
        let instance = ssh_hosts::pending(&row, &host, now, InstanceId(ids.uuid()));
        changes.hint(Pipeline::Instances, instance.id);
        changes.new_instances.push(NewInstance {
            row: instance,
            number_it: true,
        });
    }
    let id = row.id;
    changes.hint(Pipeline::Fleets, id);
    changes.new_fleets.push(row);
    by(&mut changes, user_id);
    (id, changes)
}

/// A changed specification; consolidation begins anew.
pub fn update(fleet: &FleetRow, new: FleetSpec, changed: &[String], user_id: UserId) -> Changes {
    let mut changes = Changes::default();
    changes.fleets.push(FleetPatch {
        spec: Some(Arc::new(new)),
        consolidation_attempt: Some(0),
        consolidated_at: Some(None),
        ..FleetPatch::of(fleet.id)
    });
    changes.event(
        format!("Fleet updated. Changed fields: {}", changed.join(", ")),
        &[fleet],
    );
    changes.hint(Pipeline::Fleets, fleet.id);
    by(&mut changes, user_id);
    changes
}

fn pending(fleet: &FleetRow, now: Timestamp, id: InstanceId) -> InstanceRow {
    let wanted = Wanted::of_fleet(fleet.id, &fleet.spec, None);
    InstanceRow {
        idle_limit: idle::limit(spec::fleet_idle(&fleet.spec), idle::FLEET_DEFAULT),
        requirements: Some(Arc::new(wanted.requirements)),
        profile: Some(Arc::new(wanted.profile)),
        ..InstanceRow::pending(id, fleet, now)
    }
}

fn by(changes: &mut Changes, user_id: UserId) {
    for event in &mut changes.events {
        event.actor = Actor::User(user_id);
    }
}
