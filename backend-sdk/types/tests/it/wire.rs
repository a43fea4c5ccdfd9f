//! What the recorded server sent is read without loss and written back alike.

use dstack_backend_types::{
    InstanceOfferWithAvailability, InstanceType, JobProvisioningData, JobRuntimeData, Requirements,
    Volume, VolumeConfiguration, VolumeProvisioningData,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn all_samples() -> Vec<Value> {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let folder = format!("{root}/../../tests/contract/backend-types");
    let mut samples = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        samples.push(
            serde_json::from_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap(),
        );
    }
    samples
}

/// Every value below a key of that name.
fn find<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(object) => {
            for (name, inner) in object {
                if name == key && !inner.is_null() {
                    found.push(inner);
                }
                find(inner, key, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find(item, key, found)),
        _ => {}
    }
}

fn round_trip<T: DeserializeOwned + Serialize>(key: &str) {
    let samples = all_samples();
    let mut found = Vec::new();
    samples
        .iter()
        .for_each(|sample| find(sample, key, &mut found));
    assert!(!found.is_empty(), "no recorded {key}");
    for value in found {
        let read: T = serde_json::from_value(value.clone())
            .unwrap_or_else(|error| panic!("{key} {value}: {error}"));
        assert_eq!(&serde_json::to_value(&read).unwrap(), value, "{key}");
    }
}

#[test]
fn recorded_shapes_are_kept() {
    round_trip::<JobProvisioningData>("job_provisioning_data");
    round_trip::<JobRuntimeData>("job_runtime_data");
    round_trip::<InstanceOfferWithAvailability>("offer");
    round_trip::<InstanceType>("instance_type");
    round_trip::<Requirements>("requirements");
    round_trip::<VolumeProvisioningData>("provisioning_data");
    round_trip::<VolumeConfiguration>("volume_configuration");
}

#[test]
fn unknown_fields_and_words_are_ignored() {
    let mut value = serde_json::to_value(sample_offer()).unwrap();
    value["from_a_newer_plugin"] = json!(1);
    value["availability"] = json!("maybe_tomorrow");
    value["instance"]["resources"]["gpus"] =
        json!([{"name": "X", "memory_mib": 1, "vendor": "newcomer"}]);
    let offer: InstanceOfferWithAvailability = serde_json::from_value(value).unwrap();
    assert!(
        offer.availability.is_available(),
        "an unknown word reads as unknown, which is worth a try"
    );
}

#[test]
fn an_offer_of_an_older_plugin_gets_defaults() {
    let offer: InstanceOfferWithAvailability = serde_json::from_value(json!({
        "backend": "acme", "region": "r", "price": 1,
        "instance": {"name": "n", "resources": {"cpus": 1, "memory_mib": 1}}
    }))
    .unwrap();
    assert_eq!((offer.blocks, offer.total_blocks), (1, 1));
    assert_eq!(offer.instance.resources.disk.size_mib, 102_400);
    assert_eq!(
        serde_json::to_value(&offer)
            .unwrap()
            .get("provisioning_timeout_s"),
        None
    );
}

#[test]
fn a_volume_of_the_api_is_read() {
    let samples = all_samples();
    let mut found = Vec::new();
    samples
        .iter()
        .for_each(|sample| find(sample, "volume", &mut found));
    let volume: Volume = serde_json::from_value(found[0].clone()).unwrap();
    assert_eq!(volume.configuration.region.as_deref(), Some("eu-west-1"));
    assert_eq!(volume.provisioning_data.unwrap().size_gb, Some(100));
}

#[test]
fn private_keys_are_not_printed() {
    let key = dstack_backend_types::SshKey {
        public: "ssh-ed25519 A".to_owned(),
        private: Some("hush".to_owned()),
    };
    assert!(!format!("{key:?}").contains("hush"));
    let secret = dstack_backend_types::Secret::new("hush");
    assert_eq!(format!("{secret:?}"), "***");
    assert_eq!(json!(secret), json!("hush"), "a backend gets the value");
}

fn sample_offer() -> InstanceOfferWithAvailability {
    let samples = all_samples();
    let mut found = Vec::new();
    samples
        .iter()
        .for_each(|sample| find(sample, "offer", &mut found));
    serde_json::from_value(found[0].clone()).unwrap()
}
