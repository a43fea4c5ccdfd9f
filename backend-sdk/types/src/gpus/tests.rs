use serde_json::{Value, json};

use super::{amd_model, intel_model, needs_proprietary_modules, nvidia_model, vendors_by_name};

fn check(name: &str, apply: impl Fn(&str) -> Value) {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let path = format!("{root}/../../tests/contract/config-corpus/vectors/{name}.json");
    let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(
            apply(row["input"].as_str().unwrap()),
            row["output"],
            "{name}: {}",
            row["input"]
        );
    }
}

#[test]
fn printed_names_give_models() {
    check("nvidia-gpu-name", |printed| json!(nvidia_model(printed)));
    check("amd-gpu-name", |printed| json!(amd_model(printed)));
    check("intel-name", |printed| json!(intel_model(printed)));
}

#[test]
fn models_have_makers() {
    check("gpu-vendor-by-name", |model| json!(vendors_by_name(model)));
}

#[test]
fn old_models_need_proprietary_modules() {
    check("nvidia-proprietary-kernel-modules", |model| {
        json!(needs_proprietary_modules(model))
    });
}
