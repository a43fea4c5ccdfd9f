use std::collections::BTreeMap;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;

use super::body::{check_content_type, parse_json};
use super::request::percent_decode;
use super::router::match_path;

#[derive(Debug, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Thing {
    count: u32,
    inner: BTreeMap<String, bool>,
}

fn refusal(body: &str) -> String {
    let err = parse_json::<Thing>(body.as_bytes()).unwrap_err();
    assert_eq!(err.status, StatusCode::BAD_REQUEST);
    err.message
}

#[test]
fn json_refusals_have_the_texts_of_the_api() {
    assert_eq!(refusal(""), "Request body must not be empty");
    assert_eq!(refusal(" \n"), "Request body must not be empty");
    assert_eq!(
        refusal("{"),
        "Request body contains badly-formed JSON (at position 1)"
    );
    assert_eq!(
        refusal("{\n\"count\": oops}"),
        "Request body contains badly-formed JSON (at position 12)"
    );
    assert_eq!(
        refusal(r#"{"count": "x"}"#),
        "Request body contains an invalid value for the \"count\" field (at position 13)"
    );
    assert!(refusal(r#"{"inner": {"a": 1}}"#).contains("for the \"inner.a\" field"));
    assert_eq!(
        refusal("{} {}"),
        "Request body must only contain a single JSON object"
    );
}

#[test]
fn null_is_an_empty_object_and_unknown_fields_are_ignored() {
    assert_eq!(parse_json::<Thing>(b"null").unwrap().count, 0);
    let thing = parse_json::<Thing>(br#"{"count": 2, "inner": {"a": true}, "x": 1}"#).unwrap();
    assert_eq!((thing.count, thing.inner["a"]), (2, true));
}

#[test]
fn only_a_json_content_type_or_none_is_accepted() {
    let with = |value| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]);
    assert!(check_content_type(&HeaderMap::new()).is_ok());
    assert!(check_content_type(&with("Application/JSON; charset=utf-8")).is_ok());
    let err = check_content_type(&with("text/plain")).unwrap_err();
    assert_eq!(err.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(err.message, "Content-Type header is not application/json");
}

#[test]
fn paths_match_whole_segments() {
    assert_eq!(match_path("/api/tasks", "/api/tasks"), Some(vec![]));
    assert_eq!(
        match_path("/api/tasks/{id}", "/api/tasks/a%20b"),
        Some(vec![("id", "a b".into())])
    );
    for path in ["/api/tasks", "/api/tasks/", "/api/tasks/a/b", "/api/task/a"] {
        assert_eq!(match_path("/api/tasks/{id}", path), None, "{path}");
    }
}

#[test]
fn percent_escapes_are_decoded_and_broken_ones_kept() {
    assert_eq!(percent_decode("a%2Fb+c", true), "a/b c");
    assert_eq!(percent_decode("a+b%zz%4", false), "a+b%zz%4");
}
