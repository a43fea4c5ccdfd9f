//! Our OpenAPI document, made from the table of operations and from the types they take and give.
//!
//! A type that looks otherwise in requests than in answers is there twice, as `…-Input` and `…-Output`: requests may leave
//! out what has a default and are refused with keys that nobody knows, answers have everything.

mod parts;

use std::sync::OnceLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use dstack_api::error::{BadRequestBody, DeniedBody};
use dstack_api::server_info::{
    API_VERSION_HEADER, COMPATIBLE_VERSION, HOST_VERSION_HEADER, HealthcheckResponse,
};
use schemars::SchemaGenerator;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value, json};

use super::table::{BodyKind, OperationInfo, operations};
use crate::roles::{Class, Needs};

/// `GET /api/openapi.json`. Anybody may ask.
pub(super) async fn show() -> Response {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| Bytes::from(document().to_string()));
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, text.clone()).into_response()
}

/// The OpenAPI document of the whole API.
#[must_use]
pub fn document() -> Value {
    let generator = |contract| {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings.contract = contract;
        settings.into_generator()
    };
    let mut made = Made {
        input: generator(Contract::Deserialize),
        output: generator(Contract::Serialize),
    };
    let mut paths = Map::new();
    for operation in operations() {
        let item = made.operation(&operation);
        let method = operation.method.as_str().to_ascii_lowercase();
        put(&mut paths, operation.path, &method, item);
    }
    for (path, item) in made.others() {
        put(&mut paths, path, "get", item);
    }
    let responses = made.responses();
    let schemas = parts::merged(&mut paths, made.input, made.output);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "dstack",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!(
                "Compatible with version {COMPATIBLE_VERSION} of the API. Requests may name the version they speak in `{API_VERSION_HEADER}`; answers have this server's own in `{HOST_VERSION_HEADER}` and an `x-request-id`, which its log has too. Operations under `/api/x/` are this server's own."
            ),
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A user's token, or an extra token of a user."},
                "sshproxy": {"type": "http", "scheme": "bearer", "description": "The token that the server and its SSH proxy share."},
            },
        },
    })
}

fn put(paths: &mut Map<String, Value>, path: &str, method: &str, item: Value) {
    let methods = paths.entry(path).or_insert_with(|| json!({}));
    if let Value::Object(methods) = methods {
        methods.insert(method.to_owned(), item);
    }
}

/// The document in the making: types as requests have them, and as answers do.
struct Made {
    input: SchemaGenerator,
    output: SchemaGenerator,
}

impl Made {
    fn operation(&mut self, of: &OperationInfo) -> Value {
        let mut item = json!({
            "operationId": id(of.path),
            "tags": [tag(of.path)],
            "description": about(of),
            "security": security(of.class),
            "responses": self.answers(of),
        });
        let parameters = self.parameters(of);
        if !parameters.is_empty() {
            item["parameters"] = Value::Array(parameters);
        }
        if let Some(body) = self.body(of) {
            item["requestBody"] = body;
        }
        item
    }

    fn parameters(&mut self, of: &OperationInfo) -> Vec<Value> {
        let mut all: Vec<Value> = names(of.path)
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        let Some(asks) = of.asks else { return all };
        let schema = asks(&mut self.input).to_value();
        let name = schema["$ref"].as_str().and_then(|at| at.rsplit('/').next());
        // Its fields are written where they are used, so the type itself is not.
        let definitions = self.input.definitions_mut();
        let taken = name.and_then(|name| definitions.remove(name));
        let mut schema = taken.unwrap_or(schema);
        let required = schema["required"].take();
        let Value::Object(fields) = schema["properties"].take() else {
            return all;
        };
        for (name, mut schema) in fields {
            let is_required = required
                .as_array()
                .is_some_and(|keys| keys.contains(&json!(name)));
            let about = schema
                .as_object_mut()
                .and_then(|schema| schema.remove("description"));
            let mut one =
                json!({"name": name, "in": "query", "required": is_required, "schema": schema});
            if let Some(about) = about {
                one["description"] = about;
            }
            all.push(one);
        }
        all
    }

    fn body(&mut self, of: &OperationInfo) -> Option<Value> {
        let schema = |made: &mut Self| of.takes.map(|takes| takes(&mut made.input).to_value());
        match of.body {
            BodyKind::None => None,
            BodyKind::Json => Some(
                json!({"required": true, "content": {"application/json": {"schema": schema(self)?}}}),
            ),
            BodyKind::Optional => Some(json!({
                "required": false,
                "content": {"application/json": {"schema": {"anyOf": [schema(self)?, {"type": "null"}]}}},
            })),
            BodyKind::Multipart => Some(json!({
                "required": true,
                "content": {"multipart/form-data": {"schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}},
                }}},
            })),
        }
    }

    fn answers(&mut self, of: &OperationInfo) -> Value {
        let given = of
            .gives
            .map_or_else(|| json!({}), |gives| gives(&mut self.output).to_value());
        let mut all = json!({
            "200": {"description": "Done.", "content": {"application/json": {"schema": given}}},
            "400": common("BadRequest"),
            "500": common("Failed"),
        });
        if of.class != Class::Anyone {
            all["401"] = common("NotAuthenticated");
            all["403"] = common("Denied");
        }
        if of.class.is_of_project() {
            all["404"] = common("NotFound");
        }
        if of.body != BodyKind::None || of.asks.is_some() {
            all["422"] = common("Invalid");
        }
        all
    }

    /// What is answered beside operations.
    fn others(&mut self) -> Vec<(&'static str, Value)> {
        let health = self
            .output
            .subschema_for::<HealthcheckResponse>()
            .to_value();
        let json_of = |schema: Value| json!({"description": "Done.", "content": {"application/json": {"schema": schema}}});
        let plain = json!({"description": "Done.", "content": {"text/plain": {"schema": {"type": "string"}}}});
        vec![
            (
                "/healthcheck",
                json!({
                    "operationId": "healthcheck",
                    "tags": ["server"],
                    "description": "Whether the server runs.",
                    "security": [],
                    "responses": {"200": json_of(health)},
                }),
            ),
            (
                "/metrics",
                json!({
                    "operationId": "metrics",
                    "tags": ["metrics"],
                    "description": "Numbers for Prometheus, if the server is set up for it; with the token that it is set up with.",
                    "security": [{"token": []}, {}],
                    "responses": {
                        "200": plain, "400": common("BadRequest"), "403": common("Denied"), "404": common("NotFound"), "500": common("Failed"),
                    },
                }),
            ),
            (
                "/api/openapi.json",
                json!({
                    "operationId": "openapi",
                    "tags": ["server"],
                    "description": "This document.",
                    "security": [],
                    "responses": {"200": json_of(json!({"type": "object"})), "400": common("BadRequest")},
                }),
            ),
        ]
    }

    /// Answers that many operations have.
    fn responses(&mut self) -> Value {
        let refused = self.output.subschema_for::<BadRequestBody>().to_value();
        let denied = self.output.subschema_for::<DeniedBody>().to_value();
        let one = |about: &str, schema: &Value| json!({"description": about, "content": {"application/json": {"schema": schema}}});
        let unknown = json!({
            "type": "object",
            "required": ["detail"],
            "properties": {"detail": {"type": "string"}},
        });
        let invalid = json!({
            "type": "object",
            "required": ["detail"],
            "properties": {"detail": {"type": "array", "minItems": 1, "items": {
                "type": "object",
                "required": ["type", "loc", "msg"],
                "properties": {
                    "type": {"type": "string"},
                    "loc": {"type": "array", "items": {"type": ["string", "integer"]}},
                    "msg": {"type": "string"},
                    "input": {},
                },
            }}},
        });
        json!({
            "BadRequest": one("The request makes no sense in the present state, or the version of the client is not one this server can serve.", &refused),
            "NotAuthenticated": one("No token was sent.", &unknown),
            "Denied": one("The token is not valid, or its user may not do this.", &denied),
            "NotFound": one("There is no such project.", &denied),
            "Invalid": one("The body or the query is not what the operation takes.", &invalid),
            "Failed": {
                "description": "The server failed; its log says why.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
        })
    }
}

fn common(name: &str) -> Value {
    json!({"$ref": format!("#/components/responses/{name}")})
}

/// The parameters of a path.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The words of a path without its parameters and without `api`.
fn words(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter(|part| !part.is_empty() && *part != "api" && !part.starts_with('{'))
}

fn id(path: &str) -> String {
    words(path).collect::<Vec<_>>().join("_")
}

fn tag(path: &str) -> &str {
    let mut words = words(path).filter(|word| !matches!(*word, "project" | "x"));
    words.next().unwrap_or("server")
}

fn security(class: Class) -> Value {
    match class {
        Class::Anyone => json!([]),
        Class::SshProxy => json!([{"sshproxy": []}]),
        _ => json!([{"token": []}]),
    }
}

/// Who may use an operation, in words.
fn about(of: &OperationInfo) -> String {
    let who = match of.class {
        Class::Anyone => "For anybody, without a token.",
        Class::SshProxy => "For the SSH proxy.",
        Class::Authenticated => "For any user.",
        Class::GlobalAdmin => "For global admins.",
        Class::Member => "For members of the project.",
        Class::MemberOrPublic => "For members; for any user if the project is public.",
        Class::MemberOrImporter => "For members, and for members of projects that import it.",
        Class::MemberPublicOrImporter => {
            "For members, and for members of projects that import it; for any user if the project is public."
        }
        Class::Manager => "For admins and managers of the project.",
        Class::ManagerOrPublic => {
            "For admins and managers of the project; for any user to join a public project."
        }
        Class::ManagerOrSelf => "For admins and managers of the project; for any user to leave it.",
        Class::SecretsManager => {
            "For admins of the project, and for its managers where the server lets them see secrets."
        }
        Class::ProjectAdmin => "For admins of the project.",
    };
    let scope = match of.needs {
        _ if matches!(of.class, Class::Anyone | Class::SshProxy) => return who.to_owned(),
        Needs::Read => "`read`, `runs`, or the one of the project",
        Needs::Runs => "`runs`, or the one of the project",
        Needs::ProjectScope => "the one of the project",
        Needs::Own => "`runs`, or one of any project",
        Needs::Whole => return format!("{who} Extra tokens are not enough."),
    };
    format!("{who} Extra tokens need a scope: {scope}.")
}
