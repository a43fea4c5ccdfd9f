//! Test vectors of the repository.

use serde_json::Value;

/// Rows of a vector file.
pub(crate) fn rows(name: &str) -> Vec<Value> {
    #[expect(
        clippy::disallowed_methods,
        reason = "cargo tells a test where its crate is"
    )]
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let path = format!("{root}/../../tests/contract/config-corpus/vectors/{name}.json");
    let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(!rows.is_empty(), "no rows in {name}");
    rows
}
