use dstack_backend_types::Secret;
use dstack_backend_types::methods::ConfigWithCreds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{public_view, read, schema, store, with_creds};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Acme {
    #[serde(default)]
    regions: Vec<String>,
    creds: Creds,
    #[serde(default)]
    clusters: Vec<Cluster>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Creds {
    ApiKey { api_key: Secret<String> },
    Default,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Cluster {
    name: String,
    key: Option<Secret<String>>,
}

fn written(value: &Value) -> ConfigWithCreds {
    ConfigWithCreds(value.as_object().unwrap().clone())
}

#[test]
fn credentials_are_stored_apart_and_come_back() {
    let config =
        json!({"regions": ["a"], "creds": {"type": "api_key", "api_key": "hush"}, "clusters": []});
    let record = store(&read::<Acme>(&written(&config)).unwrap()).unwrap();
    assert_eq!(
        json!(record.config),
        json!({"regions": ["a"], "creds": {"type": "api_key"}, "clusters": []})
    );
    assert_eq!(json!(record.auth), json!({"creds": {"api_key": "hush"}}));
    assert_eq!(Value::Object(with_creds(&record).0), config);
    assert!(
        !json!(public_view::<Acme>(&record))
            .to_string()
            .contains("hush")
    );
    assert!(!format!("{record:?}").contains("hush"));
}

#[test]
fn a_configuration_without_credentials_stores_none() {
    let config = json!({"regions": [], "creds": {"type": "default"}, "clusters": [{"name": "c", "key": null}]});
    let record = store(&read::<Acme>(&written(&config)).unwrap()).unwrap();
    assert!(!json!(record.auth).to_string().contains("default"));
    assert_eq!(Value::Object(with_creds(&record).0), config);
}

#[test]
fn credentials_in_lists_never_stay_in_the_clear() {
    let config = json!({"regions": [], "creds": {"type": "default"}, "clusters": [{"name": "c", "key": "hush"}]});
    let record = store(&read::<Acme>(&written(&config)).unwrap()).unwrap();
    assert!(!json!(record.config).to_string().contains("hush"));
    assert_eq!(Value::Object(with_creds(&record).0), config);
}

#[test]
fn an_error_names_the_field_but_not_the_value() {
    let config = json!({"regions": "hush", "creds": {"type": "default"}});
    let message = read::<Acme>(&written(&config)).err().unwrap().message;
    assert!(
        message.contains("at regions: ") && message.contains("expected a sequence"),
        "{message}"
    );
    assert!(!message.contains("hush"), "{message}");
}

#[test]
fn the_schema_marks_credentials() {
    let text = schema::<Acme>().to_string();
    assert!(text.contains("\"writeOnly\":true"), "{text}");
}
