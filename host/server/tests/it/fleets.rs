//! Who may do what with fleets.

use serde_json::{Value, json};

use crate::client::{ADMIN, TestServer};

/// What `default_permissions` takes from members.
#[test]
fn ssh_fleets_are_the_admins_where_the_settings_say_so() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("config.yml"),
        "projects: []\nencryption:\n  keys: []\ndefault_permissions:\n  allow_non_admins_manage_ssh_fleets: false\n",
    )
    .unwrap();
    let server = TestServer::start(&[("DSTACK_SERVER_DIR", folder.path().to_str().unwrap())]);
    server.ok(
        "/api/users/create",
        json!({"username": "ann", "global_role": "user"}),
    );
    let user = server.ok("/api/users/get_user", json!({"username": "ann"}));
    let member = user["creds"]["token"].as_str().unwrap().to_owned();
    server.ok(
        "/api/projects/main/add_members",
        json!({"members": [{"username": "ann", "project_role": "user"}]}),
    );
    let key = dstack_remote::KeyPair::generate("k").unwrap();
    let own = json!({"configuration": {"type": "fleet", "name": "own", "ssh_config": {
        "user": "u", "identity_file": "k", "hosts": ["192.0.2.1"],
        "ssh_key": {"public": key.public, "private": key.private.expose()},
    }}, "profile": {"name": "default"}});
    let cloud = |name: &str| json!({"configuration": {"type": "fleet", "name": name, "nodes": "0..1"}, "profile": {"name": "default"}});
    let apply = |token: &str, spec: &Value, force: bool| {
        let plan = json!({"plan": {"spec": spec, "current_resource": null}, "force": force});
        server.post_as(token, "/api/project/main/fleets/apply", plan)
    };
    assert_eq!(apply(&member, &own, false).status, 403);
    let made = apply(ADMIN, &own, false);
    assert_eq!(made.status, 200, "{}", made.text);
    for (path, body) in [
        ("delete", json!({"names": ["own"]})),
        (
            "delete_instances",
            json!({"name": "own", "instance_nums": [0]}),
        ),
    ] {
        let path = format!("/api/project/main/fleets/{path}");
        let refused = server.post_as(&member, &path, body);
        assert_eq!(refused.status, 403, "{path}: {}", refused.text);
    }
    // Nor by putting another one in its place.
    assert!(apply(&member, &cloud("own"), true).status >= 400);
    let still = server.ok("/api/project/main/fleets/get", json!({"name": "own"}));
    assert_eq!(still["status"], "active");
    // Fleets of clouds are everybody's.
    let made = apply(&member, &cloud("cloud"), false);
    assert_eq!(made.status, 200, "{}", made.text);
    let names = json!({"names": ["cloud"]});
    let gone = server.post_as(&member, "/api/project/main/fleets/delete", names);
    assert_eq!(gone.status, 200, "{}", gone.text);
    server.ok("/api/project/main/fleets/delete", json!({"names": ["own"]}));
}
