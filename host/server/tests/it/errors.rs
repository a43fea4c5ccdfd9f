//! Errors of every operation have the shapes that clients take apart: 400 and 422 a list, 401 a text, 403 and 404 an object.

use std::collections::BTreeMap;

use dstack_server::roles::Class;
use dstack_server::{BodyKind, OperationInfo, operations};
use serde_json::{Value, json};

use crate::client::{ADMIN, Answer, TestServer};
use crate::openapi::validator;

const CODES: [&str; 7] = [
    "error",
    "resource_exists",
    "resource_not_exists",
    "invalid_credentials",
    "backend_not_available",
    "repo_does_not_exist",
    "gateway_error",
];

/// What is wrong with the shape of an error; nothing for other answers.
pub(crate) fn misshapen(answer: &Answer) -> Option<String> {
    let detail = &answer.body["detail"];
    let one = |value: &Value, coded: bool| {
        let keys = value.as_object()?;
        let is_code = match &value["code"] {
            Value::Null => true,
            Value::String(code) => coded && CODES.contains(&code.as_str()),
            _ => false,
        };
        let known = ["msg", "code", "fields"];
        let is_known = keys.keys().all(|key| known.contains(&key.as_str()));
        let has_both = keys.contains_key("code") && value["msg"].is_string();
        (has_both && is_code && is_known).then_some(())
    };
    let is_right = match answer.status {
        400 => detail
            .as_array()
            .is_some_and(|all| !all.is_empty() && all.iter().all(|each| one(each, true).is_some())),
        401 | 405 => detail.is_string(),
        403 | 404 => one(detail, false).is_some(),
        422 => detail.as_array().is_some_and(|all| {
            !all.is_empty()
                && all.iter().all(|each| {
                    let place = each["loc"].get(0).and_then(Value::as_str);
                    each["msg"].is_string()
                        && each["type"].is_string()
                        && matches!(place, Some("body" | "query"))
                })
        }),
        500.. => false,
        _ => return None,
    };
    let has_more = answer.body.as_object().is_some_and(|all| all.len() != 1);
    (!is_right || has_more).then(|| format!("{} {}", answer.status, answer.text))
}

fn path(of: &OperationInfo, project: &str) -> String {
    of.path
        .replace("{project_name}", project)
        .replace("{backend_name}", "nothing")
        .replace("{run_name}", "nothing")
}

fn call(
    server: &TestServer,
    of: &OperationInfo,
    project: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let path = path(of, project);
    if of.method == "GET" {
        return server.get_with(&path, headers);
    }
    let wrong = json!({"no such key": 1});
    let is_json = matches!(of.body, BodyKind::Json | BodyKind::Optional);
    server.send(&path, is_json.then_some(&wrong), headers)
}

#[test]
fn every_operation_tells_errors_in_their_shapes() {
    let server = TestServer::start(&[]);
    let document = dstack_server::api_document();
    let admin = format!("Bearer {ADMIN}");
    let mut known: BTreeMap<String, jsonschema::Validator> = BTreeMap::new();
    let mut wrong = Vec::new();
    for of in operations() {
        let mut check = |what: &str, answer: Answer, status: u16| {
            let method = of.method.as_str().to_ascii_lowercase();
            let told = &document["paths"][of.path][method]["responses"];
            let told = &told[status.to_string()]["$ref"];
            let shape = told.as_str().map(|at| {
                let at = at.strip_prefix('#').unwrap();
                let content = &document.pointer(at).unwrap()["content"];
                let known = known.entry(at.to_owned());
                let validator = known.or_insert_with(|| validator(&document, content).unwrap());
                validator.is_valid(&answer.body)
            });
            if answer.status != status || misshapen(&answer).is_some() || shape != Some(true) {
                wrong.push(format!(
                    "{} {what}: {status} expected, {shape:?} by the document: {} {}",
                    of.path, answer.status, answer.text
                ));
            }
        };
        let is_guarded = of.class != Class::Anyone;
        if is_guarded {
            check("without a token", call(&server, &of, "main", &[]), 401);
            let nobody = [("Authorization", "Bearer nobody")];
            check("with a bad token", call(&server, &of, "main", &nobody), 403);
        }
        if of.class.is_of_project() {
            let mine = [("Authorization", admin.as_str())];
            check("of no project", call(&server, &of, "nowhere", &mine), 404);
        }
        for version in ["abc", "99.0.0"] {
            let headers = [
                ("Authorization", admin.as_str()),
                ("X-API-VERSION", version),
            ];
            check(
                "of a strange client",
                call(&server, &of, "main", &headers),
                400,
            );
        }
        if matches!(of.body, BodyKind::Json | BodyKind::Optional) {
            let torn = server.post_text(&path(&of, "main"), "{\"a\": ", Some(ADMIN));
            check("with half a body", torn, 422);
            if of.class != Class::SshProxy
                && !of.path.ends_with("/backends/create")
                && !of.path.ends_with("/backends/update")
            {
                let mine = [("Authorization", admin.as_str())];
                check("with a strange key", call(&server, &of, "main", &mine), 422);
                let list = server.post_text(&path(&of, "main"), "[1]", Some(ADMIN));
                check("with a list", list, 422);
            }
        }
        if of.body == BodyKind::Multipart {
            let bare = server.post_text(&path(&of, "main"), "no form", Some(ADMIN));
            check("without a form", bare, 422);
        }
        // A method that it does not take.
        let path = path(&of, "main");
        let other = if of.method == "GET" {
            server.post(&path, Value::Null)
        } else {
            server.get(&path)
        };
        if other.status != 405 || misshapen(&other).is_some() {
            wrong.push(format!(
                "{path} by another method: {} {}",
                other.status, other.text
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_misshapen_error_is_told() {
    for (status, body, is_right) in [
        (
            400,
            json!({"detail": [{"msg": "a", "code": "error"}]}),
            true,
        ),
        (400, json!({"detail": [{"msg": "a", "code": null}]}), true),
        (400, json!({"detail": {"msg": "a", "code": "error"}}), false),
        (400, json!({"detail": []}), false),
        (
            400,
            json!({"detail": [{"msg": "a", "code": "other"}]}),
            false,
        ),
        (
            400,
            json!({"detail": [{"msg": "a", "code": null, "x": 1}]}),
            false,
        ),
        (401, json!({"detail": "a"}), true),
        (401, json!({"detail": {"msg": "a", "code": null}}), false),
        (403, json!({"detail": {"msg": "a", "code": null}}), true),
        (403, json!({"detail": {"msg": "a"}}), false),
        (403, json!({"detail": [{"msg": "a", "code": null}]}), false),
        (404, json!({"detail": "a"}), false),
        (
            422,
            json!({"detail": [{"loc": ["body", "a"], "msg": "a", "type": "b"}]}),
            true,
        ),
        (
            422,
            json!({"detail": [{"loc": ["a"], "msg": "a", "type": "b"}]}),
            false,
        ),
        (422, json!({"detail": "a"}), false),
        (500, json!({"detail": "a"}), false),
        (200, json!({}), true),
    ] {
        let answer = Answer {
            status,
            host_version: None,
            text: body.to_string(),
            body,
        };
        assert_eq!(misshapen(&answer).is_none(), is_right, "{answer:?}");
    }
}
