use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Blocks, fit_disk, gpu_fits, matches, share_of, smallest_share, total_blocks};
use crate::resources::{GpuSpec, Memory, Range};
use crate::{
    AcceleratorVendor, CpuArchitecture, Disk, Gpu, InstanceOfferWithAvailability, Requirements,
    Resources,
};

fn vectors(name: &str) -> Vec<Value> {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let path = format!("{root}/../../tests/contract/config-corpus/vectors/{name}.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn get<T: DeserializeOwned>(row: &Value, key: &str) -> T {
    serde_json::from_value(row[key].clone()).unwrap()
}

fn offers() -> Vec<(String, InstanceOfferWithAvailability)> {
    vectors("matching-offers")
        .iter()
        .map(|row| (get(row, "id"), get(row, "offer")))
        .collect()
}

fn offer(id: &str) -> InstanceOfferWithAvailability {
    offers()
        .into_iter()
        .find(|(known, _)| known == id)
        .unwrap()
        .1
}

fn asked(resources: Value) -> Requirements {
    serde_json::from_value(json!({ "resources": resources })).unwrap()
}

#[test]
fn requirements_pick_the_recorded_offers() {
    for row in vectors("matching") {
        let requirements: Requirements = get(&row, "requirements");
        let matched: Vec<String> = offers()
            .into_iter()
            .filter(|(_, offer)| matches(offer, &requirements))
            .map(|(id, _)| id)
            .collect();
        assert_eq!(
            matched,
            get::<Vec<String>>(&row, "matched"),
            "{}",
            row["requirements"]
        );
        assert_eq!(serde_json::to_value(&requirements).unwrap(), row["parsed"]);
        let parsed: Requirements = get(&row, "parsed");
        assert_eq!(parsed, requirements);
    }
}

#[test]
fn price_and_spot_limit() {
    let mut requirements = asked(json!({"cpu": "1..", "memory": "1GB.."}));
    requirements.max_price = Some(0.05);
    assert!(
        matches(&offer("c2"), &requirements),
        "the bound itself fits"
    );
    assert!(!matches(&offer("c2-8"), &requirements));
    requirements = asked(json!({}));
    requirements.spot = Some(true);
    assert!(matches(&offer("c4-16-spot"), &requirements));
    assert!(!matches(&offer("c8-32-x86"), &requirements));
}

#[test]
fn the_first_gpu_decides_for_slices_of_a_node() {
    for row in vectors("gpu-matches-spec") {
        let spec: GpuSpec = get(&row, "gpu");
        let matched: Vec<String> = offers()
            .into_iter()
            .filter(|(_, offer)| {
                offer
                    .instance
                    .resources
                    .gpus
                    .first()
                    .is_some_and(|gpu| gpu_fits(gpu, &spec))
            })
            .map(|(id, _)| id)
            .collect();
        assert_eq!(
            matched,
            get::<Vec<String>>(&row, "matched"),
            "{}",
            row["gpu"]
        );
    }
}

fn machine(cpus: u32, gpus: usize, vendor: AcceleratorVendor) -> Resources {
    let gpu = Gpu {
        name: "T4".to_owned(),
        memory_mib: 16384,
        vendor: Some(vendor),
    };
    Resources {
        cpus,
        memory_mib: 1024,
        gpus: vec![gpu; gpus],
        spot: false,
        disk: Disk::default(),
        cpu_arch: Some(CpuArchitecture::X86),
        description: String::new(),
    }
}

#[test]
fn blocks_divide_a_machine_or_do_not() {
    for row in vectors("blocks-divisible") {
        let has = machine(
            get(&row, "cpus"),
            get(&row, "gpus"),
            AcceleratorVendor::Nvidia,
        );
        let total = total_blocks(&has, get::<Blocks>(&row, "blocks"));
        assert_eq!(total.is_some(), get::<bool>(&row, "divisible"), "{row}");
        assert_eq!(
            total.unwrap_or(0),
            get::<u32>(&row, "total_blocks"),
            "{row}"
        );
    }
    assert_eq!(
        total_blocks(&machine(8, 1, AcceleratorVendor::Nvidia), Blocks::Count(0)),
        None
    );
    assert_eq!(
        total_blocks(&machine(8, 4, AcceleratorVendor::Google), Blocks::AUTO),
        Some(1)
    );
}

#[test]
fn a_share_has_its_part_of_the_machine() {
    for row in vectors("shared-offer") {
        let share = share_of(
            &offer(&get::<String>(&row, "offer")),
            get(&row, "blocks"),
            get(&row, "total_blocks"),
        );
        let has = &share.instance.resources;
        let found = json!({
            "offer": row["offer"], "blocks": share.blocks, "total_blocks": share.total_blocks, "cpus": has.cpus,
            "memory_mib": has.memory_mib, "gpus": has.gpus.len(), "disk_mib": has.disk.size_mib, "price": share.price,
        });
        assert_eq!(found, row);
    }
}

#[test]
fn the_smallest_share_that_fits_is_taken() {
    let whole = offer("h100x8");
    let requirements = asked(json!({"gpu": "H100:2.."}));
    assert_eq!(
        smallest_share(&whole, 8, 8, &requirements).map(|share| share.blocks),
        Some(2)
    );
    assert_eq!(
        smallest_share(&whole, 8, 1, &requirements),
        None,
        "one block is free only"
    );
    assert_eq!(
        smallest_share(&whole, 8, 8, &asked(json!({"gpu": "H100:9"}))),
        None
    );
}

#[test]
fn disks_are_fitted() {
    let range = Some(Range::between(Memory(50.0), Memory(500.0)));
    let cases = [
        (json!({}), range, Some(102_400)),
        (json!({"disk": "20GB.."}), range, Some(51_200)),
        (json!({"disk": "600GB.."}), range, None),
        (json!({"disk": null}), range, Some(102_400)),
        (json!({"disk": "..100GB"}), range, Some(51_200)),
        // A fixed disk of 30 GB.
        (json!({"disk": "20GB.."}), None, Some(30_720)),
        (json!({}), None, None),
    ];
    for (spec, configurable, size) in cases {
        let mut instance = offer("smalldisk").instance;
        let spec_value = asked(spec.clone()).resources;
        let fits = fit_disk(&mut instance, &spec_value, configurable);
        assert_eq!(
            fits.then_some(instance.resources.disk.size_mib),
            size,
            "{spec}"
        );
    }
}
