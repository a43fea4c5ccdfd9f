//! The ledger of side resources.

use dstack_api::instances::InstanceStatus;
use dstack_backend_types::BackendType;
use dstack_backend_types::services::SideResource;
use dstack_engine::model::CloudAttempt;
use dstack_store::{cleanups, instances, side_resources};
use serde_json::json;

use crate::rows;
use crate::support::{at, open};

fn disk(provider_ref: &str) -> SideResource {
    SideResource {
        provider_ref: provider_ref.to_owned(),
        kind: "disk".to_owned(),
        name: format!("disk-r{provider_ref}"),
        region: "north".to_owned(),
        id: None,
        attributes: rows::parsed(json!({"zone": "a"})),
    }
}

#[tokio::test]
async fn entries_are_kept_until_they_are_settled() {
    let test = open();
    let world = test.write(rows::small_world).await.unwrap();
    let (project, acme) = (world.project, BackendType::new("acme"));
    let known = SideResource {
        id: Some("d-1".to_owned()),
        ..disk("one")
    };
    let expected = known.clone();
    test.write(move |tx| {
        side_resources::declare(tx, project, &acme, &disk("one"), at(100), at(280))?;
        side_resources::declare(tx, project, &acme, &known, at(110), at(290))?;
        // Declaring it once more without the id does not forget the id.
        side_resources::declare(tx, project, &acme, &disk("one"), at(120), at(300))?;
        side_resources::declare(tx, project, &acme, &disk("two"), at(120), at(300))
    })
    .await
    .unwrap();
    let all = test.read(side_resources::all).await.unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((&all[0].resource, all[0].declared_at), (&expected, at(100)));
    assert_eq!(
        test.read(|tx| side_resources::due(tx, at(299), 9))
            .await
            .unwrap(),
        []
    );
    let due = test
        .read(|tx| side_resources::due(tx, at(300), 9))
        .await
        .unwrap();
    assert_eq!(due, all);
    let first = due[0].clone();
    test.write(move |tx| {
        side_resources::later(tx, &first, at(400), true)?;
        let acme = BackendType::new("acme");
        // Another backend's entry of the same name is another one.
        side_resources::settle(
            tx,
            project,
            &BackendType::new("b"),
            "two",
            "disk",
            "disk-rtwo",
        )?;
        side_resources::settle(tx, project, &acme, "two", "disk", "disk-rtwo")
    })
    .await
    .unwrap();
    let left = test.read(side_resources::all).await.unwrap();
    assert_eq!((left.len(), left[0].attempts), (1, 1));
    assert_eq!(
        test.read(|tx| side_resources::due(tx, at(399), 9))
            .await
            .unwrap(),
        []
    );
}

#[tokio::test]
async fn an_owner_is_a_machine_that_lives_is_made_or_waits_for_its_end() {
    let test = open();
    let world = test.write(rows::small_world).await.unwrap();
    let mut living = world.instance.clone();
    living.provider_ref = Some("living".to_owned());
    let mut made = living.clone();
    made.id = dstack_engine::ids::InstanceId(uuid::Uuid::from_u128(77));
    made.instance_num = 1;
    made.provider_ref = None;
    made.attempt = Some(CloudAttempt {
        provider_ref: "making".to_owned(),
        places: Vec::new(),
        started_at: at(100),
    });
    let mut gone = living.clone();
    gone.id = dstack_engine::ids::InstanceId(uuid::Uuid::from_u128(78));
    gone.instance_num = 2;
    gone.provider_ref = Some("gone".to_owned());
    gone.status = InstanceStatus::Terminated;
    let queued = rows::cleanup(&world.job, "queued");
    test.write(move |tx| {
        for instance in [&living, &made, &gone] {
            instances::insert(tx, instance, at(100))?;
        }
        cleanups::add(tx, &queued, at(100))
    })
    .await
    .unwrap();
    let expected = [
        ("living", true),
        ("making", true),
        ("queued", true),
        ("gone", false),
        ("never", false),
        ("mak", false),
    ];
    for (provider_ref, is_owned) in expected {
        let found = test
            .read(move |tx| side_resources::is_owned(tx, provider_ref))
            .await
            .unwrap();
        assert_eq!(found, is_owned, "{provider_ref}");
    }
}
