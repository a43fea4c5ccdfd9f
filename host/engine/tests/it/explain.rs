//! Why a run is placed nowhere: each reason, from the fleet down to the offer.

use dstack_api::explain::{Candidate, CandidateKind as Kind};
use dstack_api::instances::{HealthStatus, InstanceStatus};
use dstack_backend_types::InstanceAvailability;
use dstack_engine::explain::{self, Explained};
use serde_json::{Value, json};

use crate::support::{Bed, at, offer, small};

fn explained(bed: &Bed) -> Explained {
    let view = bed.world.job_submitted(bed.job(0), at(1)).unwrap();
    let known = (view.backends.as_slice(), view.volumes.as_slice());
    let mut found = explain::fleets(
        &view.run.spec,
        &view.job.spec,
        &view.fleets,
        known,
        &view.project_name,
    );
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn reason(candidates: &[Candidate], kind: Kind) -> Option<&str> {
    let mut found = candidates.iter().filter(|one| one.kind == kind);
    let reason = found.next().expect("one is there").reason.as_deref();
    assert!(found.next().is_none(), "{candidates:?}");
    reason
}

#[test]
fn fleets_say_why_they_are_out() {
    let gpu = json!({"resources": {"gpu": "H100", "cpu": "1..", "memory": "1GB..", "disk": null}});
    let no_gpu = json!({"resources": {"gpu": 0, "cpu": "1..", "memory": "1GB..", "disk": null}});
    for (fleet, run, why) in [
        (json!({}), json!({}), None),
        (json!({}), json!({"fleets": ["g"]}), Some("other `fleets`")),
        (json!({}), json!({"nodes": 2}), Some("placement: cluster")),
        (no_gpu, gpu, Some("contradict each other in `resources`")),
        (
            json!({"spot_policy": "spot"}),
            json!({"spot_policy": "on-demand"}),
            Some("contradict each other in `spot_policy`"),
        ),
        (json!({"nodes": 0}), json!({}), Some("all of its 0 nodes")),
    ] {
        let found = explained(&Bed::new(fleet.clone(), run.clone()));
        let told = reason(&found.candidates, Kind::Fleet);
        match why {
            None => assert_eq!(told, None),
            Some(why) => assert!(
                told.is_some_and(|told| told.contains(why)),
                "{fleet} {run}: {told:?}"
            ),
        }
    }
}

#[test]
fn instances_say_why_they_are_not_taken() {
    type Change = fn(&mut dstack_engine::model::InstanceRow);
    let cases: [(Value, Change, Option<&str>); 7] = [
        (json!({}), |_| (), None),
        (
            json!({}),
            |it| it.health = HealthStatus::Failure,
            Some("health check"),
        ),
        (
            json!({}),
            |it| it.unreachable = true,
            Some("cannot be reached"),
        ),
        (
            json!({}),
            |it| it.status = InstanceStatus::Provisioning,
            Some("provisioning"),
        ),
        (
            json!({"regions": ["south"]}),
            |_| (),
            Some("other `regions`"),
        ),
        (
            json!({"max_price": 0.5}),
            |_| (),
            Some("above `max_price` of $0.5"),
        ),
        (
            json!({"instances": ["other"]}),
            |_| (),
            Some("other `instances`"),
        ),
    ];
    for (run, change, why) in cases {
        let mut bed = Bed::new(json!({}), run.clone());
        let id = bed.idle_machine(&offer(1.0, false), 0);
        let view = |bed: &Bed| bed.world.job_submitted(bed.job(0), at(1)).unwrap();
        let mut seen = view(&bed);
        let before = seen.fleets[0].pool.len();
        bed.set_instance(id, change);
        // What is out of reach leaves the pool; here it is kept, to see its reason.
        let kept = bed.world.instance_view(id, at(1)).unwrap().instance;
        seen.fleets[0].pool = vec![kept];
        assert_eq!(before, 1);
        let found = explain::fleets(
            &seen.run.spec,
            &seen.job.spec,
            &seen.fleets,
            (&seen.backends, &[]),
            &seen.project_name,
        );
        let told = reason(&found[0].candidates, Kind::Instance);
        match why {
            None => assert_eq!(told, None),
            Some(why) => assert!(
                told.is_some_and(|told| told.contains(why)),
                "{run}: {told:?}"
            ),
        }
    }
}

#[test]
fn backends_say_why_they_are_not_asked() {
    let found = explained(&Bed::new(json!({}), json!({"backends": ["other"]})));
    assert_eq!(
        reason(&found.candidates, Kind::Backend),
        Some("fleet and run name other `backends`")
    );
    let found = explained(&Bed::new(json!({}), json!({})));
    assert!(found.candidates.iter().all(|one| one.kind != Kind::Backend));
}

#[test]
fn offers_are_gathered_by_what_speaks_against_them() {
    let mut run = json!({"max_price": 2, "regions": ["north"], "spot_policy": "on-demand"});
    run["resources"] = small();
    let ask = explained(&Bed::new(json!({}), run)).ask.unwrap();
    let mut elsewhere = offer(0.1, false);
    elsewhere.region = "south".to_owned();
    let mut gone = offer(0.2, false);
    gone.availability = InstanceAvailability::NotAvailable;
    let mut tiny = offer(0.3, false);
    tiny.instance.resources.memory_mib = 512;
    let offers = [
        offer(3.0, false),
        offer(2.5, false),
        offer(1.5, false),
        offer(0.4, true),
        elsewhere,
        gone,
        tiny,
    ];
    let rows: Vec<(u64, f64, Option<String>)> = explain::rejected(Some("f"), "vms", &ask, &offers)
        .into_iter()
        .map(|row| (row.count, row.price.unwrap(), row.reason))
        .collect();
    let because = |count, price, reason: &str| (count, price, Some(reason.to_owned()));
    assert_eq!(rows[0], (1, 1.5, None));
    assert_eq!(rows[1], because(2, 2.5, "above `max_price` of $2"));
    let mut rest = rows[2..].to_vec();
    rest.sort_by(|a, b| a.1.total_cmp(&b.1));
    assert_eq!(
        rest,
        [
            because(1, 0.1, "other `regions` are wanted"),
            because(1, 0.2, "no capacity"),
            because(1, 0.3, "its memory is not what `resources` asks for"),
            because(1, 0.4, "a spot machine"),
        ]
    );
}
