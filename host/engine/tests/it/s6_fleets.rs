//! `lifecycles`, section 6: fleets.

use dstack_api::fleets::FleetStatus;
use dstack_api::instances::{InstanceStatus as S, InstanceTerminationReason as Reason};
use dstack_engine::changes::Changes;
use dstack_engine::fleets;
use serde_json::{Value, json};

use crate::support::{Bed, at, offer};

fn bed(fleet: Value) -> Bed {
    Bed::new(fleet, json!({"fleets": ["other"]}))
}

fn step(bed: &mut Bed, now: i64) -> Changes {
    let view = bed.world.fleet_view(bed.fleet, at(now)).unwrap();
    let changes = fleets::plan(&view, &mut bed.ids);
    bed.world.request(changes.clone(), at(now)).unwrap();
    changes
}

fn living(bed: &Bed) -> usize {
    bed.world
        .instances_of(bed.fleet)
        .filter(|row| row.is_living())
        .count()
}

#[test]
fn s6_create_makes_the_target() {
    for (nodes, count) in [
        (json!("0..4"), 0),
        (json!(2), 2),
        (json!({"min": 1, "target": 3, "max": 4}), 3),
    ] {
        let mut bed = bed(json!({"nodes": nodes}));
        assert_eq!(living(&bed), count, "{nodes}");
        step(&mut bed, 1);
        assert_eq!(living(&bed), count, "{nodes}: consolidation adds nothing");
    }
}

#[test]
fn s6_target_counts_at_creation_only() {
    let mut bed = bed(json!({"nodes": {"min": 1, "target": 3, "max": 4}}));
    let gone: Vec<_> = bed
        .world
        .instances_of(bed.fleet)
        .skip(1)
        .map(|row| row.id)
        .collect();
    for id in gone {
        bed.set_instance(id, |row| {
            row.status = S::Terminated;
            row.deleted = true;
        });
    }
    step(&mut bed, 1);
    assert_eq!(living(&bed), 1);
}

#[test]
fn s6_consolidation_below_min_above_max_and_mismatch() {
    let mut below = bed(json!({"nodes": "2..4"}));
    let first = below.world.instances_of(below.fleet).next().unwrap().id;
    below.set_instance(first, |row| {
        row.status = S::Terminated;
        row.deleted = true;
    });
    step(&mut below, 1);
    assert_eq!(living(&below), 2, "the difference is created");

    let mut above = bed(json!({"nodes": "0..1"}));
    let ids = [0, 1, 2].map(|number| above.idle_machine(&offer(1.0, false), number));
    above.set_instance(ids[2], |row| {
        row.status = S::Busy;
        row.busy_blocks = 1;
    });
    let changes = step(&mut above, 1);
    let ended: Vec<_> = changes
        .instances
        .iter()
        .map(|patch| (patch.id, patch.termination_reason.flatten()))
        .collect();
    assert_eq!(
        ended,
        [
            (ids[1], Some(Reason::MaxInstancesLimit)),
            (ids[0], Some(Reason::MaxInstancesLimit))
        ],
        "idle ones only"
    );

    for (status, ends) in [(S::Idle, true), (S::Provisioning, true), (S::Busy, false)] {
        let mut other = bed(json!({"regions": ["south"]}));
        let id = other.idle_machine(&offer(1.0, false), 0);
        other.set_instance(id, |row| {
            row.status = status;
            row.busy_blocks = u32::from(status == S::Busy);
        });
        let changes = step(&mut other, 1);
        let reason = changes
            .instances
            .first()
            .and_then(|patch| patch.termination_reason)
            .flatten();
        assert_eq!(
            reason,
            ends.then_some(Reason::FleetSpecMismatch),
            "{status}"
        );
    }
}

#[test]
fn s6_consolidation_delays_attempts_and_the_end() {
    let mut bed = bed(json!({"nodes": "1..1"}));
    let mut now = 1;
    step(&mut bed, now);
    for (attempt, delay) in [60, 120, 300, 600, 1800, 1800].into_iter().enumerate() {
        let ids: Vec<_> = bed
            .world
            .instances_of(bed.fleet)
            .map(|row| row.id)
            .collect();
        for id in ids {
            bed.set_instance(id, |row| {
                row.status = S::Terminated;
                row.deleted = true;
            });
        }
        if attempt > 0 || delay > 1 {
            step(&mut bed, now + delay - 1);
            assert_eq!(living(&bed), 0, "attempt {attempt}: not before {delay} s");
        }
        now += delay;
        step(&mut bed, now);
        assert_eq!(living(&bed), 1, "attempt {attempt}: after {delay} s");
    }
    now += 1800;
    step(&mut bed, now);
    assert_eq!(
        bed.world.fleet(bed.fleet).unwrap().consolidation_attempt,
        0,
        "nothing to change"
    );
    let fleet = bed.fleet;
    let mut last = Changes::default();
    for _ in 0..20 {
        let ids: Vec<_> = bed.world.instances_of(fleet).map(|row| row.id).collect();
        for id in ids {
            bed.set_instance(id, |row| {
                row.status = S::Terminated;
                row.deleted = true;
            });
        }
        now += 1800;
        let changes = step(&mut bed, now);
        if !changes.events.is_empty() {
            last = changes;
        }
    }
    assert_eq!(bed.world.fleet(fleet).unwrap().consolidation_attempt, 15);
    assert!(
        last.events
            .iter()
            .any(|event| event.message.contains("consolidation stopped"))
    );
    assert_eq!(last.look_again, None, "only an update resumes");
}

#[test]
fn s6_delete_is_refused_while_in_use() {
    let mut used = bed(json!({}));
    let id = used.idle_machine(&offer(1.0, false), 0);
    used.set_instance(id, |row| row.busy_blocks = 1);
    let view = used.world.fleet_view(used.fleet, at(1)).unwrap();
    assert!(fleets::delete(&view, None).is_err());
    let mut waited = bed(json!({}));
    let fleet = waited.fleet;
    waited.set_run(|run| run.fleet_id = Some(fleet));
    let view = waited.world.fleet_view(fleet, at(1)).unwrap();
    assert!(matches!(
        fleets::delete(&view, None),
        Err(fleets::InUse::Runs(1))
    ));
}

#[test]
fn s6_gone_when_empty() {
    let mut bed = bed(json!({"nodes": "0..2"}));
    let id = bed.idle_machine(&offer(1.0, false), 0);
    let view = bed.world.fleet_view(bed.fleet, at(1)).unwrap();
    let changes = fleets::delete(&view, None).unwrap();
    bed.world.request(changes, at(1)).unwrap();
    assert_eq!(
        bed.world.fleet(bed.fleet).unwrap().status,
        FleetStatus::Terminating
    );
    step(&mut bed, 2);
    assert_eq!(
        bed.world.fleet(bed.fleet).unwrap().status,
        FleetStatus::Terminating
    );
    bed.set_instance(id, |row| {
        row.status = S::Terminated;
        row.deleted = true;
    });
    step(&mut bed, 3);
    let fleet = bed.world.fleet(bed.fleet).unwrap();
    assert_eq!(
        (fleet.status, fleet.deleted),
        (FleetStatus::Terminated, true)
    );
}

#[test]
fn s6_fleets_of_deleted_projects_go() {
    let mut bed = bed(json!({}));
    bed.world
        .projects
        .values_mut()
        .for_each(|project| project.deleted = true);
    step(&mut bed, 1);
    assert_eq!(
        bed.world.fleet(bed.fleet).unwrap().status,
        FleetStatus::Terminating
    );
}
