//! Configuration: schema, credentials, the four views, what is refused.

use dstack_backend_types::methods::{
    ConfigWithCreds, CreateConfigRequest, DescribeConfigRequest, GetOffersRequest,
    PublicViewRequest, StoredConfig, ValidateConfigRequest, WithCredsRequest,
};
use dstack_backend_types::{BackendError, ErrorKind, Requirements, ResourcesSpec};
use serde_json::{Map, Value, json};

use super::{Check, Stop, Verdict};
use crate::calls::Caller;
use crate::cx::{Cx, ensure, fail, show, show_error};
use crate::schema::{self, Property};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "config.schema",
        title: "the configuration has a JSON schema",
        why: "the server checks a user's section against it and names file, line and field",
        needs: None,
        run: schema_is_valid,
    },
    Check {
        id: "config.secrets",
        title: "credentials are marked `writeOnly`",
        why: "what is not marked is stored in the clear and shown to every member of a project",
        needs: None,
        run: secrets_are_marked,
    },
    Check {
        id: "config.unconfigured",
        title: "without a configuration only the configurator works",
        why: "the server asks for the schema before there is any configuration",
        needs: None,
        run: unconfigured,
    },
    Check {
        id: "config.accepted",
        title: "a good configuration is accepted",
        why: "else nobody can use the backend",
        needs: None,
        run: accepted,
    },
    Check {
        id: "config.round_trip",
        title: "stored and read back, a configuration is the same, credentials apart",
        why: "the database keeps two parts, one encrypted; a credential in the other part is in the clear",
        needs: None,
        run: round_trip,
    },
    Check {
        id: "config.public_view",
        title: "the public view has no credentials",
        why: "every member of the project sees it",
        needs: None,
        run: public_view,
    },
    Check {
        id: "config.refused",
        title: "a missing or wrong field is refused by its name",
        why: "the user must know which line to correct",
        needs: None,
        run: refused,
    },
    Check {
        id: "config.unknown_fields",
        title: "a field that the plugin does not know is no error",
        why: "a record written by a newer version of the plugin must open in an older one",
        needs: None,
        run: unknown_fields,
    },
];

const FROM_TYPE: &str = "one struct with `Secret` fields as `Configurator::Config` gives all views; override none of them";

fn describe(caller: &Caller) -> Result<Value, Stop> {
    let reply = caller.call(&DescribeConfigRequest {}).map_err(|error| {
        fail(
            "a JSON schema from `configurator.describe`",
            show_error(&error),
            FROM_TYPE,
        )
    })?;
    Ok(reply.schema)
}

fn schema_is_valid(cx: &Cx<'_>) -> Verdict {
    let schema = describe(&cx.unconfigured()?)?;
    ensure(
        schema.get("type") == Some(&json!("object"))
            || schema.get("properties").is_some()
            || schema.get("oneOf").is_some(),
        "a schema of an object",
        || schema.to_string().chars().take(200).collect(),
        "make `Configurator::Config` a struct",
    )?;
    let mut dangling = Vec::new();
    references(&schema, &schema, &mut dangling);
    ensure(
        dangling.is_empty(),
        "references that lead somewhere",
        || dangling.join(", "),
        FROM_TYPE,
    )
}

fn references(root: &Value, value: &Value, dangling: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(target)) = object.get("$ref") {
                let found = target
                    .strip_prefix('#')
                    .and_then(|pointer| root.pointer(pointer));
                if found.is_none() {
                    dangling.push(target.clone());
                }
            }
            object
                .values()
                .for_each(|inner| references(root, inner, dangling));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|inner| references(root, inner, dangling)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn secrets_are_marked(cx: &Cx<'_>) -> Verdict {
    /// Words that end the name of a credential.
    const WORDS: &[&str] = &[
        "token",
        "secret",
        "password",
        "passphrase",
        "api_key",
        "apikey",
        "private_key",
        "secret_key",
        "access_key",
        "client_secret",
        "auth_key",
        "credentials_json",
    ];
    let schema = describe(&cx.unconfigured()?)?;
    for property in schema::properties(&schema) {
        let name = property
            .path
            .last()
            .cloned()
            .unwrap_or_default()
            .to_ascii_lowercase();
        ensure(
            property.is_secret
                || !WORDS
                    .iter()
                    .any(|word| name == *word || name.ends_with(&format!("_{word}"))),
            "`writeOnly: true` on every credential",
            || {
                format!(
                    "`{}` has a credential's name and no mark",
                    property.path.join(".")
                )
            },
            "give the field the type `Secret<String>`",
        )?;
    }
    Ok(())
}

fn unconfigured(cx: &Cx<'_>) -> Verdict {
    let caller = cx.unconfigured()?;
    describe(&caller)?;
    let request = GetOffersRequest {
        requirements: Requirements::of(ResourcesSpec::unconstrained()),
        full_offers: false,
        unallocated_resources: false,
        image: None,
    };
    let answer = caller.call(&request);
    ensure(
        matches!(&answer, Err(error) if error.kind == ErrorKind::Invalid),
        "error `invalid` from `get_offers`",
        || show(&answer),
        "export the backend by `export_backend!`",
    )
}

fn validate(caller: &Caller, config: &Map<String, Value>) -> Result<(), BackendError> {
    let request = ValidateConfigRequest {
        config: ConfigWithCreds(config.clone()),
        default_creds_enabled: false,
    };
    caller.call(&request).map(|_| ())
}

fn needs_config(cx: &Cx<'_>) -> Result<(), Stop> {
    if cx.plan.is_config_given {
        return Ok(());
    }
    Err(Stop::Skip(
        "needs a configuration: use --config or `.config(…)`".to_owned(),
    ))
}

fn accepted(cx: &Cx<'_>) -> Verdict {
    let caller = cx.unconfigured()?;
    if let Err(error) = validate(&caller, &cx.plan.config) {
        needs_config(cx)?;
        return Err(fail(
            "success from `configurator.validate`",
            show_error(&error),
            "correct the configuration given to the suite, or `Configurator::check`; the fake provider must accept its credentials",
        ));
    }
    cx.open().map(drop)
}

fn store(cx: &Cx<'_>, caller: &Caller) -> Result<StoredConfig, Stop> {
    let request = CreateConfigRequest {
        project_name: "main".to_owned(),
        config: ConfigWithCreds(cx.plan.config.clone()),
    };
    match caller.call(&request) {
        Ok(reply) => Ok(reply.record),
        Err(error) => {
            needs_config(cx)?;
            Err(fail(
                "a record from `configurator.create`",
                show_error(&error),
                FROM_TYPE,
            ))
        }
    }
}

fn has_secret(cx: &Cx<'_>, value: &Map<String, Value>) -> bool {
    let text = serde_json::to_string(value).unwrap_or_default();
    cx.plan.secrets.iter().any(|secret| {
        let escaped = serde_json::to_string(secret).unwrap_or_default();
        text.contains(escaped.trim_matches('"'))
    })
}

fn round_trip(cx: &Cx<'_>) -> Verdict {
    let caller = cx.unconfigured()?;
    let record = store(cx, &caller)?;
    ensure(
        !has_secret(cx, &record.config),
        "credentials in `auth` only",
        || {
            format!(
                "a credential in the clear part, whose keys are {:?}",
                record.config.keys().collect::<Vec<_>>()
            )
        },
        FROM_TYPE,
    )?;
    let back = caller
        .call(&WithCredsRequest { record })
        .map_err(|error| {
            fail(
                "the configuration from `configurator.with_creds`",
                show_error(&error),
                FROM_TYPE,
            )
        })?
        .config
        .0;
    for (key, given) in cx.plan.config.iter().filter(|(key, _)| *key != "type") {
        ensure(
            back.get(key).is_some_and(|found| contains(found, given)),
            "every field as it was given",
            || format!("`{key}` is missing or differs"),
            FROM_TYPE,
        )?;
    }
    let opened = cx.open_with(&back);
    ensure(
        opened.is_ok(),
        "a backend opened with what `with_creds` returns",
        || show(&opened),
        "the server opens backends with exactly that",
    )
}

/// Whether everything given is found again; defaults may have come along.
fn contains(found: &Value, given: &Value) -> bool {
    match (found, given) {
        (Value::Object(found), Value::Object(given)) => given.iter().all(|(key, value)| {
            found.get(key).is_some_and(|found| contains(found, value)) || value.is_null()
        }),
        (Value::Number(found), Value::Number(given)) => found.as_f64() == given.as_f64(),
        _ => found == given,
    }
}

fn public_view(cx: &Cx<'_>) -> Verdict {
    let caller = cx.unconfigured()?;
    let record = store(cx, &caller)?;
    let config = caller
        .call(&PublicViewRequest { record })
        .map_err(|error| fail("the public view", show_error(&error), FROM_TYPE))?
        .config;
    ensure(
        !has_secret(cx, &config),
        "a view without credentials",
        || format!("a credential among {:?}", config.keys().collect::<Vec<_>>()),
        FROM_TYPE,
    )
}

/// Whether an error tells which field it means.
fn names_field(error: &BackendError, property: &Property) -> bool {
    let name = property.path.last().cloned().unwrap_or_default();
    let fields = error
        .details
        .get("fields")
        .map(Value::to_string)
        .unwrap_or_default();
    error.message.contains(&name) || fields.contains(&name)
}

/// The configuration with one field changed; `None` if the field is not in it.
fn changed(
    config: &Map<String, Value>,
    path: &[String],
    value: Option<Value>,
) -> Option<Map<String, Value>> {
    let mut whole = Value::Object(config.clone());
    let (last, folders) = path.split_last()?;
    let mut at = &mut whole;
    for folder in folders {
        at = at.get_mut(folder)?;
    }
    let object = at.as_object_mut()?;
    object.get(last)?;
    match value {
        Some(value) => object.insert(last.clone(), value),
        None => object.remove(last),
    };
    match whole {
        Value::Object(config) => Some(config),
        _ => None,
    }
}

fn refused(cx: &Cx<'_>) -> Verdict {
    const MARK: &str = "conformance-wrong-value";
    let caller = cx.unconfigured()?;
    let properties = schema::properties(&describe(&caller)?);
    if validate(&caller, &cx.plan.config).is_err() {
        needs_config(cx)?;
    }
    let mut tried = 0;
    for property in properties.iter().filter(|property| property.is_required) {
        let path = property.path.join(".");
        if path == "type" {
            continue;
        }
        for (what, value) in [
            ("missing", None),
            ("a list of the wrong sort", Some(json!([[MARK]]))),
        ] {
            let Some(config) = changed(&cx.plan.config, &property.path, value) else {
                continue;
            };
            tried += 1;
            let answer = validate(&caller, &config);
            let is_good = matches!(&answer, Err(error)
                if matches!(error.kind, ErrorKind::Invalid | ErrorKind::Auth) && names_field(error, property));
            ensure(
                is_good,
                &format!("error `invalid` that names `{path}` when it is {what}"),
                || show(&answer),
                "read the configuration by `config::read`, or say the field's path in the message",
            )?;
            ensure(
                !matches!(&answer, Err(error) if error.message.contains(MARK)),
                "no value in the message",
                || show(&answer),
                "a wrong value may be a credential in the wrong place: name the field only",
            )?;
        }
    }
    if tried == 0 {
        return Err(Stop::Skip(
            "no required field stands in the configuration".to_owned(),
        ));
    }
    Ok(())
}

fn unknown_fields(cx: &Cx<'_>) -> Verdict {
    needs_config(cx)?;
    let mut config = cx.plan.config.clone();
    config.insert("x_conformance_unknown".to_owned(), json!({"a": [1]}));
    let opened = cx.open_with(&config);
    ensure(
        opened.is_ok(),
        "a backend opened with an unknown field",
        || show(&opened),
        "no `deny_unknown_fields`: the server refuses misspelt fields by the schema",
    )
}
