//! Exports and imports: lent fleets are seen by the other project, and only by it.

use serde_json::{Value, json};

use crate::client::TestServer;
use crate::support::code;

fn own_hosts(name: &str) -> Value {
    let pair = dstack_remote::KeyPair::generate("test").unwrap();
    let key = pair.private.expose();
    let hosts =
        json!({"user": "u", "hosts": ["192.0.2.7"], "ssh_key": {"public": "", "private": key}});
    let configuration = json!({"type": "fleet", "name": name, "ssh_config": hosts});
    json!({"configuration": configuration, "profile": {"name": "default"}})
}

fn apply(server: &TestServer, spec: Value) -> Value {
    let body = json!({"plan": {"spec": spec, "current_resource": null}, "force": false});
    server.ok("/api/project/main/fleets/apply", body)
}

struct World {
    server: TestServer,
    fleet: Value,
    /// Member of `other` alone.
    ann: String,
    /// Member of nothing.
    bob: String,
}

fn world() -> World {
    let server = TestServer::start(&[]);
    let token = |name: &str| {
        server.ok(
            "/api/users/create",
            json!({"username": name, "global_role": "user"}),
        );
        let user = server.ok("/api/users/get_user", json!({"username": name}));
        user["creds"]["token"].as_str().unwrap().to_owned()
    };
    let (ann, bob) = (token("ann"), token("bob"));
    server.ok("/api/projects/create", json!({"project_name": "other"}));
    let member = json!({"members": [{"username": "ann", "project_role": "user"}]});
    server.ok("/api/projects/other/add_members", member);
    let fleet = apply(&server, own_hosts("metal"));
    World {
        server,
        fleet,
        ann,
        bob,
    }
}

#[test]
fn a_lent_fleet_is_seen_by_the_other_project() {
    let World {
        server,
        fleet,
        ann,
        bob,
    } = world();
    let get = |token: &str| {
        server.post_as(
            token,
            "/api/project/main/fleets/get",
            json!({"name": "metal"}),
        )
    };
    assert_eq!(get(&ann).status, 403);
    let list = |include: bool| {
        let body = json!({"include_imported": include});
        let answer = server.post_as(&ann, "/api/project/other/fleets/list", body);
        answer.body.as_array().unwrap().len()
    };
    assert_eq!(list(true), 0);
    let create =
        json!({"name": "lend", "importer_projects": ["other"], "exported_fleets": ["metal"]});
    let made = server.ok("/api/project/main/exports/create", create.clone());
    assert_eq!(made["imports"], json!([{"project_name": "other"}]));
    assert_eq!(
        made["exported_fleets"],
        json!([{"id": fleet["id"], "name": "metal"}])
    );
    assert_eq!(
        code(&server.post("/api/project/main/exports/create", create)),
        "resource_exists"
    );

    assert_eq!((list(true), list(false)), (1, 0));
    assert_eq!(get(&ann).status, 200);
    assert_eq!(get(&bob).status, 403);
    let all = server.post_as(&ann, "/api/fleets/list", json!({"include_imported": true}));
    assert_eq!(all.body[0]["project_name"], "main");
    assert_eq!(
        server.post_as(&ann, "/api/fleets/list", json!({})).body,
        json!([])
    );
    let machines = json!({"include_imported": true});
    let machines = server.post_as(&ann, "/api/instances/list", machines).body;
    assert_eq!(machines.as_array().unwrap().len(), 1);
    let machine = json!({"id": machines[0]["id"]});
    let one =
        |token: &str| server.post_as(token, "/api/project/main/instances/get", machine.clone());
    assert_eq!((one(&ann).status, one(&bob).status), (200, 403));
    assert_eq!(
        server
            .post_as(&ann, "/api/project/main/fleets/list", Value::Null)
            .status,
        403,
        "the other fleets stay hidden"
    );
    let imports = server.post_as(&ann, "/api/project/other/imports/list", Value::Null);
    assert_eq!(imports.body["imports"][0]["export"]["project_name"], "main");
    assert_eq!(imports.body["warnings"], json!([]));
    let old = [
        ("Authorization", format!("Bearer {}", crate::client::ADMIN)),
        ("X-API-VERSION", "0.21.0".to_owned()),
    ];
    let old: Vec<(&str, &str)> = old
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    assert!(
        server
            .send("/api/project/main/exports/list", None, &old)
            .body
            .is_array()
    );

    let stop = json!({"export_name": "lend", "export_project_name": "main"});
    server.ok("/api/project/other/imports/delete", stop.clone());
    assert_eq!((get(&ann).status, list(true)), (403, 0), "at once");
    let again = server.post("/api/project/other/imports/delete", stop);
    assert_eq!(
        again.body["detail"][0]["msg"],
        "Import 'main/lend' not found in project 'other'"
    );
    server.ok("/api/project/main/exports/delete", json!({"name": "lend"}));
    assert_eq!(
        code(&server.post("/api/project/main/exports/delete", json!({"name": "lend"}))),
        "resource_not_exists"
    );
}

#[test]
fn what_cannot_be_lent_is_refused() {
    let World { server, ann, .. } = world();
    let cloud = json!({"configuration": {"type": "fleet", "name": "cloud", "nodes": 0}, "profile": {"name": "default"}});
    apply(&server, cloud);
    for (body, wanted) in [
        (
            json!({"name": "e1", "exported_fleets": ["nothing"]}),
            "not found in project 'main'",
        ),
        (
            json!({"name": "e1", "exported_fleets": ["cloud"]}),
            "Can only export SSH fleets",
        ),
        (
            json!({"name": "e1", "importer_projects": ["main"]}),
            "cannot import from itself",
        ),
        (
            json!({"name": "e1", "importer_projects": ["nowhere"]}),
            "not found or you are not allowed",
        ),
        (
            json!({"name": "e1", "is_global": true, "importer_projects": ["other"]}),
            "Do not specify any importer projects",
        ),
        (json!({"name": "E 1"}), "Resource name should match"),
    ] {
        let answer = server.post("/api/project/main/exports/create", body.clone());
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        assert!(answer.text.contains(wanted), "{body}: {}", answer.text);
    }
    assert_eq!(
        server.ok("/api/project/main/exports/list", Value::Null)["exports"],
        json!([])
    );
    // An admin of the lender who is none of the borrower.
    let admin = json!({"members": [{"username": "ann", "project_role": "admin"}]});
    server.ok("/api/projects/main/add_members", admin);
    let body = json!({"name": "e1", "importer_projects": ["other"]});
    assert_eq!(
        code(&server.post_as(&ann, "/api/project/main/exports/create", body)),
        "resource_not_exists"
    );
    let body = json!({"name": "e1", "is_global": true});
    assert_eq!(
        server
            .post_as(&ann, "/api/project/main/exports/create", body)
            .status,
        403
    );
}

#[test]
fn a_global_export_reaches_projects_made_later() {
    let World { server, .. } = world();
    let path = "/api/project/main/exports/update";
    let global = json!({"name": "all", "is_global": true, "exported_fleets": ["metal"]});
    let made = server.ok("/api/project/main/exports/create", global);
    assert_eq!(made["imports"], json!([{"project_name": "other"}]));
    server.ok("/api/projects/create", json!({"project_name": "late"}));
    let fleets = |project: &str| {
        let body = json!({"include_imported": true});
        server
            .ok(&format!("/api/project/{project}/fleets/list"), body)
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(fleets("late"), 1);
    let stop = json!({"export_name": "all", "export_project_name": "main"});
    let stop = server.post("/api/project/late/imports/delete", stop);
    assert!(
        stop.text
            .contains("is a global export, cannot stop importing"),
        "{}",
        stop.text
    );
    for (body, wanted) in [
        (json!({"name": "all"}), "No changes specified"),
        (
            json!({"name": "all", "set_global": true, "unset_global": true}),
            "at the same time",
        ),
        (
            json!({"name": "all", "unset_global": true, "add_importer_projects": ["other"]}),
            "at the same time",
        ),
        (
            json!({"name": "all", "add_exported_fleets": ["metal"], "remove_exported_fleets": ["metal"]}),
            "at the same time",
        ),
        (
            json!({"name": "all", "remove_importer_projects": ["other"]}),
            "is a global export",
        ),
        (
            json!({"name": "all", "add_importer_projects": ["other"]}),
            "already importing",
        ),
        (json!({"name": "none", "set_global": true}), "not found"),
    ] {
        let answer = server.post(path, body.clone());
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        assert!(answer.text.contains(wanted), "{body}: {}", answer.text);
    }
    server.ok(path, json!({"name": "all", "unset_global": true}));
    server.ok("/api/projects/create", json!({"project_name": "later"}));
    assert_eq!((fleets("late"), fleets("later")), (1, 0));
    server.ok(
        path,
        json!({"name": "all", "remove_exported_fleets": ["metal"]}),
    );
    assert_eq!(fleets("late"), 0);
}

#[test]
fn exports_can_be_switched_off() {
    let server = TestServer::start(&[("DSTACK_SERVER_EXPORTS", "0")]);
    for (path, body) in [
        ("/api/project/main/exports/list", Value::Null),
        ("/api/project/main/imports/list", Value::Null),
        ("/api/project/main/exports/create", json!({"name": "e1"})),
    ] {
        let answer = server.post(path, body);
        assert!(
            answer.text.contains("does not support exports"),
            "{path}: {}",
            answer.text
        );
    }
}
