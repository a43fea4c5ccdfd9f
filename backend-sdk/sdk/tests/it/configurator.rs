use dstack_backend_sdk::serde_json::{from_value, json};
use dstack_backend_sdk::types::methods::{
    CreateConfigRequest, DescribeConfigRequest, PublicViewRequest, ValidateConfigRequest,
    WithCredsRequest,
};
use dstack_backend_sdk::{Configurator, ErrorKind};

use crate::acme::AcmeConfigurator;

#[test]
fn wrong_credentials_name_their_field() {
    let request: ValidateConfigRequest =
        from_value(json!({"config": {"creds": {"api_key": "bad"}}})).unwrap();
    let error = AcmeConfigurator.validate(&request).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Auth);
    assert_eq!(error.details["fields"], json!(["creds.api_key"]));
}

#[test]
fn a_misshapen_configuration_is_invalid() {
    let request: ValidateConfigRequest = from_value(json!({"config": {"creds": {}}})).unwrap();
    let error = AcmeConfigurator.validate(&request).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("api_key"), "{error}");
}

#[test]
fn a_configuration_is_stored_completed_shown_and_given_back() {
    let request: CreateConfigRequest =
        from_value(json!({"project_name": "main", "config": {"regions": ["r1"], "creds": {"api_key": "good"}}})).unwrap();
    let record = AcmeConfigurator.create(&request).unwrap().record;
    assert_eq!(json!(record.auth), json!({"creds": {"api_key": "good"}}));

    let shown = AcmeConfigurator
        .public_view(&PublicViewRequest {
            record: record.clone(),
        })
        .unwrap()
        .config;
    assert_eq!(
        json!(shown),
        json!({"regions": ["r1"], "account": "account-of-main"})
    );

    let full = AcmeConfigurator
        .with_creds(&WithCredsRequest { record })
        .unwrap()
        .config;
    assert_eq!(
        json!(full),
        json!({"regions": ["r1"], "account": "account-of-main", "creds": {"api_key": "good"}})
    );
}

#[test]
fn the_description_is_a_schema_with_marked_secrets() {
    let schema = AcmeConfigurator
        .describe(&DescribeConfigRequest {})
        .unwrap()
        .schema;
    assert!(schema["properties"]["creds"].is_object());
    assert!(schema.to_string().contains("writeOnly"));
}
