use dstack_backend_sdk::capabilities::{CreateInstance, ResourceListing};
use dstack_backend_sdk::types::methods::{
    CreateInstanceRequest, DeleteResourceGroupRequest, GetOffersRequest, HealthRequest,
    ListResourceGroupsRequest, TerminateInstanceRequest, UpdateProvisioningDataRequest,
};
use dstack_backend_sdk::types::{JobProvisioningData, SshKey};
use dstack_backend_sdk::{Backend, Compute, Configurator, ErrorKind};
use serde_json::{Value, from_value, json};

use crate::{Hello, HelloConfigurator};

fn hello(regions: &[&str]) -> Hello {
    Hello::new(from_value(json!({"regions": regions, "creds": {"api_key": "hello-1"}})).unwrap())
        .unwrap()
}

fn offers(hello: &Hello, resources: Value) -> Vec<String> {
    let request: GetOffersRequest =
        from_value(json!({"requirements": {"resources": resources}})).unwrap();
    let offers = hello.get_offers(&request).unwrap().offers;
    offers
        .into_iter()
        .map(|offer| format!("{}/{}", offer.region, offer.instance.name))
        .collect()
}

fn create(hello: &Hello, provider_ref: &str) -> JobProvisioningData {
    let request: GetOffersRequest = from_value(json!({"requirements": {"resources": {}}})).unwrap();
    let offer = hello.get_offers(&request).unwrap().offers.remove(0);
    let request: CreateInstanceRequest = from_value(json!({
        "offer": offer,
        "config": {"project_name": "main", "instance_name": "run-0-0", "user": "me", "provider_ref": provider_ref},
    }))
    .unwrap();
    hello.create_instance(&request).unwrap().provisioning_data
}

fn update(hello: &Hello, data: &JobProvisioningData) -> JobProvisioningData {
    let request = UpdateProvisioningDataRequest {
        provisioning_data: data.clone(),
        project_key: SshKey::public("ssh-ed25519 A"),
    };
    hello
        .update_provisioning_data(&request)
        .unwrap()
        .provisioning_data
}

#[test]
fn credentials_and_regions_are_checked() {
    let check = |config| {
        HelloConfigurator
            .check(&from_value(config).unwrap())
            .map_err(|error| error.kind)
    };
    assert_eq!(check(json!({"creds": {"api_key": "hello-1"}})), Ok(()));
    assert_eq!(
        check(json!({"creds": {"api_key": "other"}})),
        Err(ErrorKind::Auth)
    );
    assert_eq!(
        check(json!({"regions": ["sun"], "creds": {"api_key": "hello-1"}})),
        Err(ErrorKind::Invalid)
    );
    assert!(
        !format!("{:?}", hello(&[])).contains("hello-1"),
        "the key is not printed"
    );
}

#[test]
fn offers_are_filtered_by_requirements_and_regions() {
    assert_eq!(
        offers(&hello(&["mars"]), json!({})),
        ["mars/small", "mars/large", "mars/gpu"]
    );
    assert_eq!(
        offers(&hello(&[]), json!({"gpu": "24GB"})),
        ["moon/gpu", "mars/gpu"]
    );
    assert!(offers(&hello(&[]), json!({"disk": "5TB.."})).is_empty());
}

#[test]
fn a_machine_boots_and_is_deleted_in_steps() {
    let hello = hello(&[]);
    let data = create(&hello, "0123456789abcdef");
    let data = update(&hello, &data);
    assert_eq!(data.hostname, None, "still booting");
    let data = update(&hello, &data);
    assert_eq!(
        (data.hostname.as_deref(), data.ssh_port),
        (Some("203.0.113.1"), Some(22))
    );

    let terminate = TerminateInstanceRequest {
        instance_id: data.instance_id,
        region: data.region,
        backend_data: data.backend_data,
    };
    assert_eq!(
        hello.terminate_instance(&terminate).unwrap_err().kind,
        ErrorKind::NotYetTerminated
    );
    for _ in 0..2 {
        hello.terminate_instance(&terminate).unwrap();
    }
}

#[test]
fn a_repeated_call_makes_no_second_machine() {
    let hello = hello(&[]);
    let first = create(&hello, "0123456789abcdef");
    assert_eq!(
        create(&hello, "0123456789abcdef").instance_id,
        first.instance_id
    );
    assert_ne!(
        create(&hello, "fedcba9876543210").instance_id,
        first.instance_id
    );
    assert_eq!(
        hello.health(&HealthRequest {}).unwrap().message.as_deref(),
        Some("2 machines")
    );
}

#[test]
fn orphans_are_found_by_their_reference_and_deleted() {
    let hello = hello(&[]);
    create(&hello, "0123456789abcdef");
    let list = || {
        hello
            .list_resource_groups(&ListResourceGroupsRequest::default())
            .unwrap()
            .groups
    };
    let group = list().remove(0);
    assert_eq!(group.provider_ref, "0123456789abcdef");
    let delete = DeleteResourceGroupRequest { group };
    assert_eq!(
        hello.delete_resource_group(&delete).unwrap_err().kind,
        ErrorKind::NotYetTerminated
    );
    assert!(list().is_empty(), "what is being deleted is not listed");
    hello.delete_resource_group(&delete).unwrap();
    hello.delete_resource_group(&delete).unwrap();
}
