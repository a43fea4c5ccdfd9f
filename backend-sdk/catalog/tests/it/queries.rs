//! What fits.

use std::sync::Arc;

use dstack_backend_catalog::{
    Catalog, CatalogConfig, CatalogError, Filter, NoWeb, Table, select, write_csv,
};
use dstack_backend_types::services::CatalogQuery;
use dstack_backend_types::{CatalogItem, InstanceOfferWithAvailability, Requirements};
use serde_json::{Value, json};

use crate::support::{at, folder, rows, snapshot};

fn vectors(name: &str) -> Vec<Value> {
    let root = env!("CARGO_MANIFEST_DIR");
    let path = format!("{root}/../../tests/contract/config-corpus/vectors/{name}.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The row that becomes a recorded offer.
fn row(offer: &InstanceOfferWithAvailability, id: &str) -> CatalogItem {
    let has = &offer.instance.resources;
    let gib = |mib: u64| f64::from(u32::try_from(mib).unwrap()) / 1024.0;
    let gpu = has.gpus.first();
    CatalogItem {
        instance_name: id.to_owned(),
        location: offer.region.clone(),
        price: offer.price,
        cpu: has.cpus,
        memory: gib(has.memory_mib),
        gpu_count: u32::try_from(has.gpus.len()).unwrap(),
        gpu_name: gpu.map(|gpu| gpu.name.clone()),
        gpu_memory: gpu.map(|gpu| gib(gpu.memory_mib)),
        spot: has.spot,
        disk_size: Some(gib(has.disk.size_mib)).filter(|size| *size > 0.0),
        gpu_vendor: gpu.map(|gpu| gpu.vendor()),
        flags: Vec::new(),
        cpu_arch: has
            .cpu_arch
            .unwrap_or(dstack_backend_types::CpuArchitecture::X86),
        provider_data: serde_json::Map::new(),
    }
}

#[test]
fn requirements_find_the_recorded_rows() {
    let table: Table = vectors("matching-offers")
        .into_iter()
        .map(|one| {
            let offer = serde_json::from_value(one["offer"].clone()).unwrap();
            row(&offer, one["id"].as_str().unwrap())
        })
        .collect();
    for vector in vectors("matching") {
        let query = CatalogQuery {
            requirements: Some(serde_json::from_value(vector["requirements"].clone()).unwrap()),
            ..CatalogQuery::default()
        };
        let found: Vec<String> = select(&table, &query)
            .into_iter()
            .map(|item| item.instance_name)
            .collect();
        assert_eq!(
            json!(found),
            vector["matched"],
            "{}",
            vector["requirements"]
        );
    }
}

#[test]
fn columns_are_searched_as_single_rows_are() {
    let items: Vec<CatalogItem> = rows().into_iter().map(|one| one.item).collect();
    let table: Table = items.iter().cloned().collect();
    assert!(table.items().eq(items.iter().cloned()));
    let specs = [
        json!({}),
        json!({"cpu": "arm:4..", "memory": "16GB..64GB"}),
        json!({"gpu": "A100:80GB:1..8"}),
        json!({"gpu": {"vendor": "nvidia", "count": "0..4"}, "disk": "20GB..500GB"}),
        json!({"gpu": {"total_memory": "100GB..", "compute_capability": "8.0"}}),
        json!({"gpu": {"memory": "0GB..", "count": {"min": 0, "max": 8}}}),
        json!({"cpu": {"count": "1..2"}, "memory": "0.5GB..4GB", "gpu": 0}),
        json!({"gpu": {"name": [], "count": "1.."}}),
        json!({"gpu": {"memory": "..40GB", "count": "..4"}, "disk": null}),
    ];
    for spec in specs {
        for (spot, max_price) in [
            (None, None),
            (Some(true), Some(0.5)),
            (Some(false), Some(9.0)),
        ] {
            for is_disk_configurable in [true, false] {
                let mut needs: Requirements =
                    serde_json::from_value(json!({ "resources": spec })).unwrap();
                (needs.spot, needs.max_price) = (spot, max_price);
                let flags = Some(vec!["oci-spot".to_owned()]);
                let query = CatalogQuery {
                    requirements: Some(needs.clone()),
                    is_disk_configurable,
                    flags: flags.clone(),
                    ..CatalogQuery::default()
                };
                let one_by_one = items.iter().filter(|item| {
                    item.fits(&needs, is_disk_configurable)
                        && item.has_only_flags(flags.as_ref().unwrap())
                });
                let found = select(&table, &query);
                assert!(found.iter().eq(one_by_one), "{spec} {spot:?} {max_price:?}");
            }
        }
    }
}

#[test]
fn locations_are_compared_in_any_case() {
    let query = CatalogQuery {
        provider: "AWS".to_owned(),
        locations: Some(vec!["EU-West-1".to_owned()]),
        ..CatalogQuery::default()
    };
    let reply = snapshot().select(&query, at(0)).unwrap();
    assert!(!reply.items.is_empty());
    assert!(reply.items.iter().all(|item| item.location == "eu-west-1"));
    assert_eq!(reply.version.as_deref(), Some("snapshot-2026"));
}

#[test]
fn lists_are_merged_by_price_and_keep_their_order() {
    let place = tempfile::tempdir().unwrap();
    let put = |provider: &str, prices: &[f64]| {
        let item = rows().remove(0).item;
        let items: Vec<CatalogItem> = prices
            .iter()
            .map(|price| CatalogItem {
                price: *price,
                ..item.clone()
            })
            .collect();
        let path = place.path().join(format!("{provider}.csv"));
        std::fs::write(path, write_csv(&items)).unwrap();
    };
    put("zeta", &[2.0, 1.0]);
    put("acme", &[1.0, 3.0]);
    let config = CatalogConfig {
        sources: vec![folder(place.path())],
        ..CatalogConfig::default()
    };
    let catalog = Catalog::new(config, Arc::new(NoWeb));
    let found = catalog.query(&Filter::default(), at(0)).unwrap();
    let prices: Vec<f64> = found.iter().map(|one| one.item.price).collect();
    assert_eq!(prices, [1.0, 2.0, 1.0, 3.0]);
}

#[test]
fn a_filter_that_makes_no_sense_is_refused() {
    for text in [
        "[]",
        r#"{"min_cpus": 1}"#,
        r#"{"cpu_arch": "mips"}"#,
        r#"{"gpu_vendor": "acme"}"#,
        r#"{"min_compute_capability": "eight"}"#,
        r#"{"min_cpu": "4"}"#,
    ] {
        assert!(Filter::from_json(text).is_err(), "{text}");
    }
    let asked = |provider: &str| {
        let filter = Filter::from_json(&json!({ "provider": provider }).to_string()).unwrap();
        snapshot().query(&filter, at(0)).unwrap_err()
    };
    assert!(matches!(asked("acme"), CatalogError::Unknown(_)));
    assert!(matches!(asked("vultr"), CatalogError::Missing(_)));
    assert!(matches!(asked("cloudrift"), CatalogError::Missing(_)));
}

#[test]
fn files_are_written_as_they_are_read() {
    let items: Vec<CatalogItem> = rows().into_iter().map(|one| one.item).collect();
    let text = write_csv(&items);
    let (again, bad) = dstack_backend_types::catalog::read_csv(&text);
    assert_eq!(bad, []);
    assert!(again == items);
    let line = text.lines().find(|line| line.contains("fabric")).unwrap();
    assert!(line.contains(r#""{""fabrics"": ["#), "{line}");
    assert!(line.contains("False"), "{line}");
}
