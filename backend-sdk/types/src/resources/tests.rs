use std::path::PathBuf;

use serde_json::Value;

use super::{ComputeCapability, CpuSpec, DiskSpec, GpuSpec, Memory, Range, ResourcesSpec};
use crate::reading::{FromValue, Mode, read};

/// Compares as JSON where 1 and 1.0 are the same.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|b| same(v, b)))
        }
        (a, b) => a == b,
    }
}

fn check<T: FromValue + serde::Serialize>(name: &str) {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let file = PathBuf::from(root)
        .join("../../tests/contract/config-corpus/vectors")
        .join(format!("{name}.json"));
    let rows: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("vector file")).expect("json");
    assert!(!rows.is_empty());
    for row in rows {
        let got = read::<T>(&row["input"], Mode::Strict);
        if row["quirk"] == true && got.is_err() {
            continue;
        }
        match got {
            Ok(got) => {
                let json = serde_json::to_value(&got.value).expect("serializes");
                assert!(same(&json, &row["output"]), "{name}: {row} gave {json}");
                let again = read::<T>(&json, Mode::Strict).expect("canonical form is read");
                assert_eq!(serde_json::to_value(again.value).expect("serializes"), json);
            }
            Err(problems) => assert_eq!(row["error"], true, "{name}: {row} gave {problems}"),
        }
    }
}

#[test]
fn vectors_of_every_grammar_hold() {
    check::<Range<i64>>("range-int");
    check::<Range<Memory>>("range-memory");
    check::<Memory>("memory");
    check::<CpuSpec>("cpu-spec");
    check::<GpuSpec>("gpu-spec");
    check::<DiskSpec>("disk-spec");
    check::<ComputeCapability>("compute-capability");
}

#[test]
fn absent_resources_have_the_documented_defaults() {
    let spec: ResourcesSpec = serde_json::from_str("{}").expect("empty resources are fine");
    assert_eq!(spec.to_string(), "cpu=2.. mem=8GB.. disk=100GB.. gpu=0..");
}

#[test]
fn short_texts_read_back() {
    for text in [
        "nvidia:H100,H200:80GB..:8",
        "24GB:1..",
        "google:v5litepod-8:1",
    ] {
        let value = Value::String(text.to_owned());
        let spec = read::<GpuSpec>(&value, Mode::Strict).expect("valid").value;
        assert_eq!(spec.to_string(), text);
    }
    for (gb, text) in [
        (0.5, "512MB"),
        (16.0, "16GB"),
        (1536.0, "1536GB"),
        (2048.0, "2TB"),
    ] {
        assert_eq!(Memory(gb).to_string(), text);
        assert_eq!(Memory::parse(text), Some(Memory(gb)));
    }
}

#[test]
fn intersection_is_none_when_ranges_do_not_meet() {
    let range = |min, max| Range::<u32> { min, max };
    let both = range(Some(2), None).intersect(&range(None, Some(4)));
    assert_eq!(both, Some(range(Some(2), Some(4))));
    assert_eq!(range(Some(5), None).intersect(&range(None, Some(4))), None);
}
