use dstack_backend_sdk::serde_json::{Value, from_value, json};
use dstack_backend_sdk::types::methods::RunJobRequest;
use dstack_backend_sdk::{Backend, Compute, ErrorKind};

use crate::acme::Acme;

fn acme() -> Acme {
    Acme::new(from_value(json!({"creds": {"api_key": "good"}})).unwrap()).unwrap()
}

fn request(zones: Value, volume_zone: Value) -> RunJobRequest {
    let id = "00000000-0000-4000-8000-000000000001";
    from_value(json!({
        "run": {"id": id, "run_name": "r", "project_name": "main", "user": "me", "tags": {"a": "b"}},
        "job": {
            "id": id, "job_name": "r-0-0", "provider_ref": "0123456789abcdef",
            "requirements": {"resources": {}, "reservation": "cr-1"},
        },
        "offer": {
            "backend": "acme", "region": "r1", "price": 1.5, "availability_zones": zones,
            "instance": {"name": "small", "resources": {"cpus": 2, "memory_mib": 8192}},
        },
        "project_key": {"public": "ssh-ed25519 A\n", "private": "hush"},
        "volumes": [{
            "id": id, "name": "v", "project_name": "main", "configuration": {"backend": "acme"},
            "provisioning_data": {"volume_id": "vol-1", "availability_zone": volume_zone},
        }],
    }))
    .unwrap()
}

#[test]
fn a_job_gets_a_machine_named_after_it() {
    let acme = acme();
    let reply = acme.run_job(&request(Value::Null, Value::Null)).unwrap();
    assert_eq!(reply.provisioning_data.instance_id, "i-1");
    let created = acme.created.lock().unwrap();
    let config = &created[0].config;
    assert_eq!(
        (config.instance_name.as_str(), config.project_name.as_str()),
        ("r-0-0", "main")
    );
    assert_eq!(config.provider_ref.as_deref(), Some("0123456789abcdef"));
    assert_eq!(config.reservation.as_deref(), Some("cr-1"));
    assert_eq!(config.tags.as_ref().unwrap()["a"], "b");
    assert_eq!(config.ssh_keys[0].public, "ssh-ed25519 A");
    assert_eq!(
        config.ssh_keys[0].private, None,
        "the private half stays with the host"
    );
    assert_eq!(
        created[0].offer.availability_zones, None,
        "a volume without a zone limits nothing"
    );
}

#[test]
fn the_machine_is_made_in_the_zone_of_its_volumes() {
    for zones in [Value::Null, json!(["a", "b"])] {
        let reply = acme().run_job(&request(zones, json!("b"))).unwrap();
        assert_eq!(
            reply.provisioning_data.availability_zone.as_deref(),
            Some("b")
        );
    }
}

#[test]
fn a_volume_in_another_zone_leaves_no_capacity() {
    let acme = acme();
    let error = acme
        .run_job(&request(json!(["a"]), json!("b")))
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoCapacity);
    assert!(acme.created.lock().unwrap().is_empty());
}
