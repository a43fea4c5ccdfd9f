//! What users of the simulated server do.

use std::sync::Arc;

use dstack_api::fleets::{FleetSpec, FleetStatus};
use dstack_engine::admit::{self, NewRun};
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::{FleetId, Ids, ProjectId, UserId};
use dstack_engine::model::FleetRow;
use dstack_engine::world::World;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

/// The one project.
pub const PROJECT: ProjectId = ProjectId(Uuid::from_u128(1));
/// The one user.
pub const USER: UserId = UserId(Uuid::from_u128(2));

/// The fleets of the simulation; `size` is the greatest number of machines of the big one.
pub fn fleets(size: u32) -> Vec<(&'static str, Value)> {
    let no_disk = json!({"cpu": "1..", "memory": "1GB..", "disk": null});
    vec![
        (
            "main",
            json!({"nodes": format!("0..{}", size * 2), "resources": no_disk, "spot_policy": "auto", "idle_duration": 120}),
        ),
        (
            "shared",
            json!({"nodes": format!("0..{}", size / 2 + 4), "blocks": 8, "spot_policy": "auto",
            "resources": {"gpu": "1..", "disk": null}, "idle_duration": 300}),
        ),
        (
            "cluster",
            json!({"nodes": format!("0..{}", size + 8), "placement": "cluster", "resources": no_disk,
            "idle_duration": 60}),
        ),
        (
            "kept",
            json!({"nodes": format!("2..{}", size / 4 + 6), "resources": no_disk, "idle_duration": 60}),
        ),
    ]
}

/// Makes a fleet, as the server's service does.
///
/// # Panics
/// When the configuration is not one of a fleet.
pub fn create_fleet(
    world: &mut World,
    ids: &mut Ids,
    name: &str,
    mut configuration: Value,
    now: Timestamp,
) -> FleetId {
    configuration["type"] = json!("fleet");
    configuration["name"] = json!(name);
    let spec = json!({"configuration": configuration, "profile": {"name": "default"}});
    let spec: FleetSpec = serde_json::from_value(spec).expect("a fleet of this file reads");
    let row = FleetRow {
        id: FleetId(ids.uuid()),
        project_id: PROJECT,
        name: name.into(),
        spec: Arc::new(spec),
        status: FleetStatus::Active,
        status_message: None,
        created_at: now,
        last_processed_at: now,
        consolidation_attempt: 0,
        consolidated_at: None,
        deleted: false,
    };
    let id = row.id;
    let mut changes = Changes::default();
    changes.hint(Pipeline::Fleets, id);
    changes.new_fleets.push(row);
    world
        .request(changes, now)
        .expect("a new fleet has no guards");
    id
}

/// One of several kinds of runs.
pub fn configuration(ids: &mut Ids) -> Value {
    let small = json!({"cpu": "1..", "memory": "1GB..", "disk": null});
    let retry = json!({"on_events": ["no-capacity", "interruption"], "duration": "20m"});
    let mut run = match ids.below(20) {
        0..9 => json!({"fleets": ["main"], "resources": small}),
        9..11 => {
            json!({"fleets": ["main"], "resources": small, "spot_policy": "spot", "retry": retry})
        }
        11..13 => json!({"fleets": ["main"], "resources": small, "backends": ["pods"]}),
        13..16 => {
            json!({"fleets": ["shared"], "resources": {"gpu": ids.below(4) + 1, "disk": null}, "retry": retry})
        }
        16..18 => {
            json!({"fleets": ["cluster"], "resources": small, "nodes": ids.below(3) + 2, "retry": true})
        }
        18 => json!({"fleets": ["kept"], "resources": small, "max_price": 0.25}),
        _ => json!({"resources": small, "max_duration": "5m"}),
    };
    run["type"] = json!("task");
    run["commands"] = json!(["work"]);
    run
}

/// Submits a run, as the server's service does.
///
/// # Panics
/// When the configuration is not one of a run.
pub fn submit(
    world: &mut World,
    ids: &mut Ids,
    name: &str,
    mut configuration: Value,
    now: Timestamp,
) -> dstack_engine::ids::RunId {
    configuration["name"] = json!(name);
    let spec = json!({"run_name": name, "configuration": configuration});
    let spec = serde_json::from_value(spec).expect("a run of this file reads");
    let new = NewRun {
        project_id: PROJECT,
        user_id: USER,
        name: name.into(),
        spec: Arc::new(spec),
        service: None,
        images: None,
    };
    let defaults = Arc::clone(&world.defaults);
    let (id, changes) =
        admit::run(&new, &defaults, now, ids).expect("a run of this file is admitted");
    world
        .request(changes, now)
        .expect("a new run has no guards");
    id
}
