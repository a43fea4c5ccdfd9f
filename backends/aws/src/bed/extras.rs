//! Volumes, placement groups, reservations, gateways.

use dstack_backend_sdk::prelude::*;
use serde_json::{Value, json};

use super::machines::{offer, order};
use super::{Bed, REGION, read};

const REF: &str = "fedcba9876543210";

fn volume(reference: &str) -> Volume {
    read(json!({
        "id": "00000000-0000-4000-8000-000000000001", "name": "data", "project_name": "main", "user": "me",
        "configuration": {"backend": "aws", "region": REGION, "size": 100}, "provider_ref": reference,
    }))
}

fn made(bed: &Bed, reference: &str) -> Volume {
    let mut volume = volume(reference);
    let request = CreateVolumeRequest {
        volume: volume.clone(),
    };
    let reply = bed.aws.create_volume(&request).unwrap();
    volume.provisioning_data = Some(reply.provisioning_data);
    volume
}

#[test]
fn volumes_are_made_attached_detached_and_deleted() {
    let bed = Bed::new(&json!({}));
    bed.lose("CreateVolume");
    let request = CreateVolumeRequest {
        volume: volume(REF),
    };
    let lost = bed.aws.create_volume(&request).unwrap_err();
    assert_eq!(lost.kind, ErrorKind::Transport);
    let first = made(&bed, REF);
    let data = first.provisioning_data.clone().unwrap();
    assert_eq!(bed.count("CreateVolume"), 1, "the lost one was found");
    assert_eq!(data.size_gb, Some(100));
    assert!((data.price.unwrap() - 8.0).abs() < 1e-9, "{data:?}");
    let kept = data.backend_data.clone().unwrap();
    assert_eq!(
        kept,
        json!({"volume_type": "gp3", "iops": 3000}).to_string()
    );

    let registered = RegisterVolumeRequest {
        volume: first.clone(),
    };
    let registered = bed.aws.register_volume(&registered).unwrap();
    assert_eq!(registered.provisioning_data, data);
    let mut unknown = volume(REF);
    unknown.configuration.volume_id = Some("vol-0123456789abcdef0".to_owned());
    let error = bed
        .aws
        .register_volume(&RegisterVolumeRequest { volume: unknown });
    assert_eq!(error.unwrap_err().kind, ErrorKind::NotFound);

    let zone = data.availability_zone.clone().unwrap();
    let mut offer = offer("m5.large", false);
    offer["availability_zones"] = json!([zone]);
    let machine = bed.complete(bed.make_of(offer, "machine000000000").unwrap());
    let attach = |volume: &Volume| {
        let request = json!({"volume": volume, "provisioning_data": machine});
        let reply = bed.aws.attach_volume(&read(request)).unwrap();
        reply.attachment_data.device_name.unwrap()
    };
    assert_eq!(attach(&first), "/dev/sdf");
    assert_eq!(attach(&first), "/dev/sdf", "attached already");
    assert_eq!(bed.count("AttachVolume"), 1);
    let second = made(&bed, "second0000000000");
    assert_eq!(attach(&second), "/dev/sdg", "the next free name");

    let about = |volume: &Volume| json!({"volume": volume, "provisioning_data": machine});
    let is_off = |volume: &Volume| {
        let reply = bed.aws.is_volume_detached(&read(about(volume)));
        reply.unwrap().detached
    };
    assert!(!is_off(&first));
    for force in [false, true] {
        let mut request = about(&first);
        request["force"] = json!(force);
        bed.aws.detach_volume(&read(request)).unwrap();
    }
    assert!(is_off(&first) && !is_off(&second));
    for _ in 0..2 {
        let volume = first.clone();
        bed.aws
            .delete_volume(&DeleteVolumeRequest { volume })
            .unwrap();
    }
}

#[test]
fn placement_groups_end_after_their_machines() {
    let bed = Bed::new(&json!({}));
    let group = json!({
        "name": "dstack-group-1", "project_name": "main", "provider_ref": REF,
        "configuration": {"backend": "aws", "region": REGION, "placement_strategy": "cluster"},
    });
    let make = |name: &str| {
        let request = json!({"placement_group": group, "master_offer": offer(name, false)});
        bed.aws.create_placement_group(&read(request))
    };
    let error = make("t3.large").unwrap_err();
    assert_eq!(error.kind, ErrorKind::PlacementGroupNotSupported);
    make("m5.large").unwrap();
    let mut request = order(offer("m5.large", false), "placed0000000000", &json!({}));
    request.placement_group = Some(read(group.clone()));
    let machine = bed.aws.create_instance(&request).unwrap().provisioning_data;
    let delete = || {
        let request = json!({"placement_group": group});
        bed.aws.delete_placement_group(&read(request))
    };
    assert_eq!(delete().unwrap_err().kind, ErrorKind::PlacementGroupInUse);
    bed.end(&machine);
    delete().unwrap();
    delete().unwrap();
}

#[test]
fn a_reservation_is_used_in_its_zone() {
    let bed = Bed::new(&json!({}));
    let reserved = |id: &str, reference: &str| {
        let more = json!({"reservation": id});
        let request = order(offer("m5.large", false), reference, &more);
        let made = bed.aws.create_instance(&request);
        made.map(|reply| reply.provisioning_data)
    };
    let error = reserved("cr-none", "r100000000000000").unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoCapacity);
    bed.control("reservation?id=cr-1&type=m5.large&zone=us-east-1b&count=1");
    let data = reserved("cr-1", "r200000000000000").unwrap();
    assert_eq!(data.availability_zone.as_deref(), Some("us-east-1b"));
    assert_eq!(data.reservation.as_deref(), Some("cr-1"));
    let request = json!({"offer": offer("m5.large", false), "reservation": "cr-1"});
    let reply = bed
        .aws
        .placement_groups_compatible_with_reservation(&read(request));
    assert!(reply.unwrap().compatible);
}

fn gateway(certificate: &Value, reference: &str) -> Value {
    json!({
        "project_name": "main", "instance_name": "gw-0", "backend": "aws", "region": REGION, "ssh_key_pub": "ssh-ed25519 AAAA gw",
        "certificate": certificate, "provider_ref": reference,
    })
}

#[test]
fn gateways_stand_behind_load_balancers() {
    let bed = Bed::new(&json!({}));
    let domain = json!({"DomainName": "*.example.com"});
    let made = bed.json("acm", "CertificateManager.RequestCertificate", &domain);
    let acm = json!({"type": "acm", "arn": made["CertificateArn"]});
    for (certificate, listeners, reference) in [
        (Value::Null, 1, "plain00000000000"),
        (acm, 2, "acm0000000000000"),
    ] {
        let config = gateway(&certificate, reference);
        let request = json!({"config": config});
        let replica = bed
            .aws
            .create_gateway_replica(&read(request.clone()))
            .unwrap();
        let replica = replica.provisioning_data;
        assert!(!replica.ip_address.is_empty());
        let again = bed
            .aws
            .create_gateway_replica(&read(request.clone()))
            .unwrap();
        assert_eq!(again.provisioning_data, replica);
        let before = bed.count("CreateListener");
        let balancer = bed
            .aws
            .create_gateway_load_balancer(&read(request))
            .unwrap();
        let balancer = balancer.load_balancer;
        assert_eq!(bed.count("CreateListener") - before, listeners);
        assert!(!balancer.hostname.is_empty());
        let about = json!({"config": config, "load_balancer": balancer, "replica": replica});
        for _ in 0..2 {
            bed.aws
                .register_gateway_replica(&read(about.clone()))
                .unwrap();
        }
        for _ in 0..2 {
            bed.aws
                .deregister_gateway_replica(&read(about.clone()))
                .unwrap();
        }
        for _ in 0..2 {
            bed.aws
                .terminate_gateway_load_balancer(&read(about.clone()))
                .unwrap();
        }
        let end = json!({"instance_id": replica.instance_id, "config": config});
        let ended = (0..5).any(|_| {
            bed.aws
                .terminate_gateway_replica(&read(end.clone()))
                .is_ok()
        });
        assert!(ended, "{} does not end", replica.instance_id);
    }
}

#[test]
fn a_load_balancer_whose_answer_was_lost_is_deleted_by_the_ledger() {
    let bed = Bed::new(&json!({}));
    let request = json!({"config": gateway(&Value::Null, REF)});
    bed.lose("CreateTargetGroup");
    let lost = bed.aws.create_gateway_load_balancer(&read(request));
    assert_eq!(lost.unwrap_err().kind, ErrorKind::Transport);
    let entry = bed.host.ledger()[0]["resource"].clone();
    let group = json!({
        "provider_ref": REF, "region": REGION, "resources": [{"kind": entry["kind"], "id": entry["name"]}],
    });
    for _ in 0..2 {
        let request = json!({"group": group});
        bed.aws.delete_resource_group(&read(request)).unwrap();
    }
    assert_eq!(bed.count("DeleteLoadBalancer"), 1);
    assert_eq!(bed.count("DeleteTargetGroup"), 1);
}
