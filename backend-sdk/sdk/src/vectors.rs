//! Test vectors of the repository.

use serde_json::Value;

/// Rows of a vector file.
pub(crate) fn rows(name: &str) -> Vec<Value> {
    contract(&format!("config-corpus/vectors/{name}"))
}

/// Rows of a file of the contract tests.
pub(crate) fn contract(path: &str) -> Vec<Value> {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let path = format!("{root}/../../tests/contract/{path}.json");
    let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(!rows.is_empty(), "no rows in {path}");
    rows
}
