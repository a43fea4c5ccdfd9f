//! Volumes and gateways over the API, without the loops: rows as requests leave them.

use dstack_api::server_info::CLIENT_HEADER;
use serde_json::{Value, json};

use crate::client::{ADMIN, TestServer};
use crate::wire::{differences, recorded};

fn create(server: &TestServer, name: &str) -> Value {
    let configuration = json!({
        "type": "volume", "backend": "aws", "name": name, "size": 100.0, "region": "eu-west-1",
    });
    server.ok(
        "/api/project/main/volumes/create",
        json!({"configuration": configuration}),
    )
}

fn same_shape(theirs: &Value, ours: &Value) {
    let mut found = Vec::new();
    differences(theirs, ours, "", &mut found);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_volume_is_answered_as_the_official_client_recorded_it() {
    let server = TestServer::start(&[]);
    let path = "/api/project/main/volumes/create";
    let (request, theirs) = recorded("volume_apply.json", path);
    let ours = server.ok(path, request);
    same_shape(&theirs, &ours);
    for key in [
        "name",
        "user",
        "configuration",
        "status",
        "cost",
        "attachments",
    ] {
        assert_eq!(ours[key], theirs[key], "{key}");
    }
    let list = server.ok("/api/project/main/volumes/list", Value::Null);
    assert_eq!(list.as_array().map(Vec::len), Some(1));
    let all = server.ok("/api/volumes/list", json!({"only_active": true}));
    assert_eq!(all[0]["id"], ours["id"]);
}

#[test]
fn a_volume_of_an_unknown_backend_is_hidden_from_the_official_client_alone() {
    let server = TestServer::start(&[]);
    let configuration =
        json!({"type": "volume", "backend": "nimbus", "name": "data", "size": 1, "region": "x"});
    server.ok(
        "/api/project/main/volumes/create",
        json!({"configuration": configuration}),
    );
    let path = "/api/project/main/volumes/get";
    let official = server.post(path, json!({"name": "data"}));
    assert_eq!(official.body["detail"][0]["code"], "resource_not_exists");
    let bearer = format!("Bearer {ADMIN}");
    let headers = [
        ("Authorization", bearer.as_str()),
        (CLIENT_HEADER, "dstack"),
    ];
    let ours = server.send(path, Some(&json!({"name": "data"})), &headers);
    assert_eq!(ours.body["configuration"]["backend"], "nimbus");
}

#[test]
fn names_are_checked_generated_and_taken_once() {
    let server = TestServer::start(&[]);
    create(&server, "data");
    let path = "/api/project/main/volumes/create";
    let configuration = |name: Value, size: Value| {
        json!({"configuration": {
            "type": "volume", "backend": "gcp", "name": name, "size": size, "region": "eu",
        }})
    };
    let code = |body: Value| server.post(path, body).body["detail"][0]["code"].clone();
    assert_eq!(
        code(configuration(json!("data"), json!(1))),
        "resource_exists"
    );
    assert_eq!(code(configuration(json!("Not-good"), json!(1))), "error");
    assert_eq!(code(configuration(json!("ok"), Value::Null)), "error");
    let made = server.ok(path, configuration(Value::Null, json!(1)));
    assert!(made["name"].as_str().unwrap().contains('-'));
    assert_eq!(made["configuration"]["name"], made["name"]);
}

#[test]
fn deletion_is_asked_for_and_unknown_names_are_ignored() {
    let server = TestServer::start(&[]);
    create(&server, "data");
    let names = json!({"names": ["data", "nobody"]});
    let path = "/api/project/main/volumes/delete";
    assert_eq!(server.ok(path, names.clone()), Value::Null);
    // Its row stays until the loop has deleted the disk; asking again is no second event.
    server.ok(path, names);
    let volume = server.ok("/api/project/main/volumes/get", json!({"name": "data"}));
    let events = server.ok(
        "/api/events/list",
        json!({"target_volumes": [volume["id"]]}),
    );
    let messages: Vec<_> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["message"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        messages,
        [
            "Volume marked for deletion",
            "Volume created. Status: SUBMITTED"
        ]
    );
    assert!(events[0]["actor_user"].is_string(), "{events}");
}

#[test]
fn a_run_is_refused_when_its_volume_surely_cannot_be_mounted() {
    let server = TestServer::start(&[]);
    let configuration = json!({
        "type": "task", "commands": ["true"], "image": "scratch", "user": "root", "volumes": ["data:/data"],
    });
    let plan = json!({"run_spec": {
        "run_name": "run", "configuration": configuration, "ssh_key_pub": "ssh-ed25519 AAAA",
    }});
    let answer = server.post(
        "/api/project/main/runs/apply",
        json!({"plan": plan, "force": false}),
    );
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(
        answer.text.contains("volume data does not exist"),
        "{}",
        answer.text
    );
}

#[test]
fn a_gateway_is_planned_and_refused_without_its_backend_as_recorded() {
    let server = TestServer::start(&[]);
    let path = "/api/project/main/gateways/get_plan";
    let (request, theirs) = recorded("gateway_apply.json", path);
    let ours = server.ok(path, request);
    same_shape(&theirs, &ours);
    assert_eq!(ours["spec"], theirs["spec"]);
    assert_eq!(ours["action"], "create");
    let path = "/api/project/main/gateways/apply";
    let (request, theirs) = recorded("gateway_apply.json", path);
    assert_eq!(server.post(path, request).body, theirs);
    assert_eq!(
        server.ok("/api/project/main/gateways/list", json!({})),
        json!([])
    );
    let unknown = server.post(
        "/api/project/main/gateways/set_default",
        json!({"name": "gw"}),
    );
    assert_eq!(unknown.body["detail"][0]["code"], "resource_not_exists");
    let spec = json!({"configuration": {
        "type": "gateway", "name": "gw", "backend": "lambda", "region": "x",
    }});
    let unable = server.post("/api/project/main/gateways/get_plan", json!({"spec": spec}));
    assert_eq!(unable.status, 400, "{}", unable.text);
}
