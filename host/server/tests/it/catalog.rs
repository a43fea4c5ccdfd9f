//! Prices of the catalog over the API.

use serde_json::{Value, json};

use crate::client::TestServer;

#[test]
fn prices_are_for_everybody_who_is_known() {
    let server = TestServer::start(&[]);
    let search = json!({"filter": {"gpu_name": "H100", "spot": false}, "max_items": 2});
    let found = server.post("/api/x/catalog/search", search.clone());
    assert_eq!(found.status, 200, "{}", found.text);
    assert_eq!(found.body["items"].as_array().unwrap().len(), 2);
    assert!(found.body["total"].as_u64().unwrap() > 2);
    assert!(found.body["editions"][0]["as_of"].is_string());
    assert_eq!(server.send("/api/x/catalog/status", None, &[]).status, 401);
    let status = server.post("/api/x/catalog/status", Value::Null);
    assert!(
        status.body.as_array().unwrap().len() >= 8,
        "{}",
        status.text
    );
    let unknown = server.post(
        "/api/x/catalog/search",
        json!({"filter": {"provider": "acme"}}),
    );
    assert_eq!(unknown.status, 400);
    assert!(unknown.text.contains("acme"), "{}", unknown.text);
    // Nothing is asked of anybody: no source is published.
    let refreshed = server.post("/api/x/catalog/refresh", Value::Null);
    assert_eq!(refreshed.body["updated"], json!([]));
}
