//! Many queries, each compared with the answer of the reference library, which comes from PyPI with the official clients.

use std::path::PathBuf;
use std::process::Command;

use dstack_backend_catalog::{
    Catalog, CatalogConfig, Filter, NoWeb, ProviderItem, Source, publish,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

use crate::support::{at, rows};

const QUERIES: usize = 500;

#[derive(Deserialize)]
struct Reference {
    rows: Vec<ProviderItem>,
    answers: Vec<Vec<usize>>,
}

/// Where `cargo xtask test` keeps the official clients: in the folder that is built into.
fn python() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program
        .ancestors()
        .map(|dir| dir.join("official-clients/bin/python"))
        .find(|python| python.exists())
        .expect("the official clients; `cargo xtask test` installs them")
}

/// Numbers that look like chance and are always the same.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

/// One property of a filter, with bounds that rows really have: so equal bounds occur often.
fn property(chance: &mut Chance, items: &[ProviderItem], query: &mut Map<String, Value>) {
    let row = chance.of(items).item;
    let gpu = loop {
        let item = chance.of(items).item;
        if item.gpu_count > 0 {
            break item;
        }
    };
    let memory = gpu.gpu_memory.unwrap();
    let name = gpu.gpu_name.clone().unwrap();
    let end = chance.of(&["min", "max"]);
    let mut put = |key: &str, value: Value| {
        query.insert(key.to_owned(), value);
    };
    let bound = |key: &str| format!("{end}_{key}");
    match chance.below(17) {
        0 => put(
            "provider",
            json!(chance.of(&[
                json!("AWS"),
                json!("gcp"),
                json!(["nebius", "Oci", "verda"]),
                json!(["lambdalabs", "runpod"]),
                json!(["azure", "aws"])
            ])),
        ),
        1 => put("cpu_arch", json!(chance.of(&["x86", "arm"]))),
        2 | 3 => put(&bound("cpu"), json!(row.cpu)),
        4 | 5 => put(&bound("memory"), json!(row.memory)),
        6 => put(&bound("gpu_count"), json!(gpu.gpu_count)),
        7 => put("min_gpu_count", json!(chance.below(2))),
        8 => put("max_gpu_count", json!(0)),
        9 => put("gpu_vendor", json!(chance.of(&["nvidia", "amd", "google"]))),
        10 => put(
            "gpu_name",
            json!(chance.of(&[
                json!(name.to_lowercase()),
                json!([name, "a100", "nothing"]),
                json!(["H100", "h200"]),
                json!([])
            ])),
        ),
        11 => put(&bound("gpu_memory"), json!(memory)),
        12 => put(
            &bound("total_gpu_memory"),
            json!(memory * f64::from(gpu.gpu_count)),
        ),
        13 => put(
            &bound("compute_capability"),
            chance.of(&[json!("8.0"), json!([8, 6]), json!("9.0"), json!([7, 0])]),
        ),
        14 => put(&bound("price"), json!(row.price)),
        15 => put(
            "allowed_flags",
            json!(chance.of(&[vec![], vec!["oci-spot"], vec!["lambda-arm", "gcp-g4"]])),
        ),
        _ => put(chance.of(&["spot", "min_disk_size"]), Value::Null),
    }
    if chance.below(6) == 0 {
        query.insert("spot".to_owned(), json!(chance.below(2) == 0));
    }
    if chance.below(8) == 0 {
        let size = json!(chance.of(&[10, 100, 1000]));
        query.insert(format!("{end}_disk_size"), size);
    }
}

/// Queries with up to five properties each, and those whose answers are known to be easy to get wrong.
fn queries(items: &[ProviderItem]) -> Vec<Map<String, Value>> {
    let fixed = [
        json!({}),
        json!({"min_gpu_count": 0, "min_gpu_memory": 24}),
        json!({"max_gpu_count": 0}),
        json!({"min_gpu_count": 0, "max_gpu_count": 1, "gpu_name": "A10"}),
        json!({"gpu_name": ["A10"], "provider": "AWS"}),
        json!({"allowed_flags": []}),
        json!({"min_compute_capability": "8.9", "max_compute_capability": "8.9"}),
    ];
    let mut chance = Chance(20_261_130);
    let mut all: Vec<Map<String, Value>> = fixed
        .iter()
        .map(|query| query.as_object().unwrap().clone())
        .collect();
    while all.len() < QUERIES {
        let mut query = Map::new();
        for _ in 0..=chance.below(5) {
            property(&mut chance, items, &mut query);
        }
        all.push(query);
    }
    all
}

#[test]
fn five_hundred_queries_are_answered_as_the_reference_answers_them() {
    let place = tempfile::tempdir().unwrap();
    let items = rows();
    assert_eq!(items.len(), 8770);
    let mut names: Vec<&str> = items.iter().map(|one| one.provider.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for provider in names {
        let own = items
            .iter()
            .filter(|one| one.provider == provider)
            .map(|one| &one.item);
        publish(place.path(), provider, "20261130-1", own).unwrap();
    }
    let queries = queries(&items);
    let file = place.path().join("queries.json");
    std::fs::write(&file, json!(queries).to_string()).unwrap();
    let base = format!("file://{}", place.path().display());
    let output = Command::new(python())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/oracle.py"))
        .arg(&file)
        .env("GPUHUNT_CATALOG_URL", &base)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let reference: Reference = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reference.rows.len(), items.len());

    let config = CatalogConfig {
        sources: vec![Source::parse(&base).unwrap()],
        ..CatalogConfig::default()
    };
    let catalog = Catalog::new(config, Arc::new(NoWeb));
    let mut compared = 0;
    for (query, answer) in queries.iter().zip(reference.answers) {
        let filter = Filter::from_json(&json!(query).to_string()).unwrap();
        let mut ours = catalog.query(&filter, at(0)).unwrap();
        ours.sort_by(|a, b| {
            let price = a.item.price.total_cmp(&b.item.price);
            price.then_with(|| a.provider.cmp(&b.provider))
        });
        let theirs: Vec<&ProviderItem> = answer
            .iter()
            .map(|number| &reference.rows[*number])
            .collect();
        assert_eq!(ours.len(), theirs.len(), "{query:?}");
        let is_same = ours.iter().zip(&theirs).all(|(one, other)| one == *other);
        assert!(is_same, "{query:?}");
        compared += usize::from(!ours.is_empty());
    }
    assert!(
        compared > QUERIES / 3,
        "only {compared} queries find something"
    );
}
