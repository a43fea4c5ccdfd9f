//! What several tests need.

use serde_json::{Value, json};

use crate::client::TestServer;

pub(crate) fn task(name: &str) -> Value {
    json!({"run_name": name, "configuration": {"type": "task", "name": name, "commands": ["echo hello"], "image": "scratch", "user": "root"}})
}

pub(crate) fn apply(
    server: &TestServer,
    spec: &Value,
    current: &Value,
    force: bool,
) -> crate::client::Answer {
    let plan = json!({"run_spec": spec, "current_resource": current});
    server.post(
        "/api/project/main/runs/apply",
        json!({"plan": plan, "force": force}),
    )
}

pub(crate) fn code(answer: &crate::client::Answer) -> &str {
    answer.body["detail"][0]["code"]
        .as_str()
        .unwrap_or_default()
}
