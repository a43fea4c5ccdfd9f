use super::{cut, gpu_word, merged, of_nodes};
use crate::config::SlurmConfig;
use crate::node::Node;
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::serde_json::{Value, from_value, json};
use dstack_backend_sdk::types::ResourcesSpec;

const NODES: &str = "\
NodeName=c1 Arch=x86_64 CPUEfctv=64 RealMemory=256000 Gres=(null) State=IDLE Partitions=cpu,debug
NodeName=c2 Arch=x86_64 CPUEfctv=64 RealMemory=256000 Gres=(null) State=DOWN* Partitions=cpu
NodeName=d1 Arch=x86_64 CPUEfctv=32 RealMemory=128000 Gres=(null) State=DOWN* Partitions=cpu
NodeName=g1 Arch=x86_64 CPUEfctv=96 RealMemory=1024000 Gres=gpu:a100:8(S:0-1) State=MIXED Partitions=gpu
NodeName=g2 Arch=x86_64 CPUEfctv=96 RealMemory=1024000 Gres=gpu:v100:2,gpu:a100:4 State=MIXED Partitions=gpu
NodeName=g3 Arch=aarch64 CPUEfctv=72 RealMemory=480000 Gres=gpu:1 State=IDLE Partitions=grace
NodeName=g4 Arch=x86_64 CPUEfctv=8 RealMemory=32000 Gres=(null) State=IDLE Partitions=gpu
";

fn offers(parts: Value) -> Vec<InstanceOfferWithAvailability> {
    let mut cluster = json!({
        "name": "hpc", "hostname": "login", "user": "me", "private_key": {"content": "k"},
        "gpu_partitions": [
            {"gpu": "A100:80GB", "partitions": ["gpu"]}, {"gpu": "GH200", "partitions": ["grace"]},
        ],
    });
    for (key, value) in parts.as_object().unwrap() {
        cluster[key] = value.clone();
    }
    let config: SlurmConfig = from_value(json!({"clusters": [cluster]})).unwrap();
    let clusters = config.settle().unwrap();
    let known = ["cpu", "gpu", "grace", "hidden"].map(str::to_owned);
    of_nodes(&clusters[0], &known, &Node::read_all(NODES))
}

fn shown(offers: &[InstanceOfferWithAvailability]) -> Vec<String> {
    let one = |offer: &InstanceOfferWithAvailability| {
        format!(
            "{} {} {} {}",
            offer.instance.name,
            offer
                .availability_zones
                .clone()
                .unwrap_or_default()
                .join("+"),
            offer.availability.as_str(),
            gpu_word(offer).unwrap_or("-"),
        )
    };
    offers.iter().map(one).collect()
}

#[test]
fn nodes_that_are_alike_are_one_offer() {
    assert_eq!(
        shown(&offers(json!({}))),
        [
            "32cpu-125gb cpu not_available -",
            "64cpu-250gb cpu unknown -",
            "1xGH200-72cpu-469gb grace unknown -",
            "4xA100-96cpu-1000gb gpu unknown a100",
            "8xA100-96cpu-1000gb gpu unknown a100",
        ]
    );
}

#[test]
fn only_partitions_of_the_configuration_are_used() {
    let none = offers(json!({"cpu_partitions": [], "gpu_partitions": []}));
    assert!(none.is_empty());
    let both = offers(json!({"cpu_partitions": ["gpu"], "gpu_partitions": null}));
    assert_eq!(
        shown(&both),
        ["8cpu-32gb gpu unknown -", "96cpu-1000gb gpu unknown -"]
    );
}

fn asked(spec: Value) -> ResourcesSpec {
    from_value(spec).unwrap()
}

#[test]
fn an_offer_is_cut_to_what_is_asked_for() {
    let all = offers(json!({}));
    let cut_of = |name: &str, spec: Value| {
        let offer = all
            .iter()
            .find(|offer| offer.instance.name.starts_with(name));
        let mut has = offer.unwrap().instance.resources.clone();
        cut(&mut has, &asked(spec));
        (has.cpus, has.memory_mib, has.gpus.len())
    };
    assert_eq!(
        cut_of("64", json!({"cpu": "4..", "memory": "16GB.."})),
        (4, 16_384, 0)
    );
    assert_eq!(
        cut_of("64", json!({"cpu": 8, "memory": "..16GB"})),
        (8, 16_384, 0)
    );
    assert_eq!(
        cut_of("64", json!({"cpu": "..8", "memory": "..1TB"})),
        (1, 4000, 0)
    );
    assert_eq!(
        cut_of("8x", json!({"gpu": {"count": "2.."}, "memory": "1GB.."})),
        (2, 1024, 2)
    );
    assert_eq!(
        cut_of("8x", json!({"gpu": {"count": "0.."}, "memory": "1GB.."})),
        (2, 1024, 1)
    );
    assert_eq!(
        cut_of(
            "8x",
            json!({"gpu": {"total_memory": "200GB..", "count": "1.."}, "memory": "1GB.."})
        ),
        (2, 1024, 3)
    );
    // Too small: the filter sees it.
    assert_eq!(
        cut_of("4x", json!({"gpu": 8, "cpu": "128..", "memory": "9TB.."})),
        (96, 1_024_000, 4)
    );
}

#[test]
fn equal_slices_of_unlike_nodes_come_together() {
    let mut slices: Vec<_> = offers(json!({})).into_iter().take(2).collect();
    for (slice, zone) in slices.iter_mut().zip(["a", "b"]) {
        slice.instance.name = "same".to_owned();
        slice.availability = InstanceAvailability::Unknown;
        slice.availability_zones = Some(vec![zone.to_owned()]);
        cut(
            &mut slice.instance.resources,
            &asked(json!({"cpu": 2, "memory": "1GB.."})),
        );
    }
    let one = merged(slices);
    assert_eq!(one.len(), 1);
    assert_eq!(
        one[0].availability_zones,
        Some(vec!["a".to_owned(), "b".to_owned()])
    );
}
