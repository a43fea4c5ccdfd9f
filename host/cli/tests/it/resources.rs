//! Secrets, events, tokens, exports, users, metrics: what is asked, and what is shown.

use serde_json::{Value, json};

use crate::world::{World, recorded};

#[test]
fn secrets_are_listed_without_values() {
    let world = World::new();
    world.server.play(&recorded("secret_list"));
    let screen = world.run(&["secret"]);
    assert_eq!(screen.code, 0, "{}", screen.err);
    assert!(
        screen.out.contains("my_secret") && screen.out.contains("******"),
        "{}",
        screen.out
    );
    let list: Value = serde_json::from_str(&world.run(&["secret", "list", "--json"]).out).unwrap();
    assert_eq!(list, recorded("secret_list")[0]["response"]);
    world.server.on(
        "/api/project/main/secrets/create_or_update",
        json!({"id": "00000000-0000-4000-8000-000000000012", "name": "a", "value": "b"}),
    );
    assert_eq!(world.run(&["secret", "set", "a", "b"]).out, "OK\n");
    let sent = world
        .server
        .bodies("/api/project/main/secrets/create_or_update");
    assert_eq!(sent, [json!({"name": "a", "value": "b"})]);
    let refusal = json!({"detail": [{"msg": "Resource not found", "code": "resource_not_exists"}]});
    world
        .server
        .on_status("/api/project/main/secrets/get", 400, refusal);
    let screen = world.run(&["secret", "get", "gone"]);
    assert_eq!(
        (screen.code, screen.err.trim()),
        (1, "Secret gone does not exist")
    );
}

#[test]
fn events_are_shown_oldest_first() {
    let world = World::new();
    world.server.play(&recorded("event_list"));
    let screen = world.run(&["event"]);
    assert_eq!(screen.code, 0, "{}", screen.err);
    let lines: Vec<&str> = screen.out.lines().collect();
    let events = &recorded("event_list")[1]["response"];
    assert_eq!(lines.len(), events.as_array().unwrap().len());
    let newest = events[0]["message"].as_str().unwrap();
    assert!(lines.last().unwrap().ends_with(newest), "{}", screen.out);
    let sent = world.server.bodies("/api/events/list");
    assert_eq!(
        sent[0]["within_projects"],
        json!([recorded("event_list")[0]["response"]["project_id"]])
    );
    assert_eq!(
        world
            .run(&["event", "list", "--target-run", "a", "--target-fleet", "b"])
            .code,
        2
    );
    assert_eq!(
        world
            .run(&["event", "list", "--include-target-type", "planet"])
            .code,
        2
    );
}

#[test]
fn a_new_token_is_alone_on_its_line() {
    let world = World::new();
    let made = json!({
        "id": "00000000-0000-4000-8000-000000000012", "name": "ci", "scopes": ["runs"],
        "created_at": "2026-01-01T00:00:00Z", "expires_at": null, "token": "abc",
    });
    world.server.on("/api/x/tokens/create", made);
    let screen = world.run(&["token", "create", "ci", "--scope", "runs"]);
    assert_eq!(
        (screen.code, screen.out.as_str()),
        (0, "abc\n"),
        "{}",
        screen.err
    );
    assert_eq!(
        world.server.bodies("/api/x/tokens/create"),
        [json!({"name": "ci", "scopes": ["runs"], "expires_at": null})]
    );
    assert_eq!(
        world.run(&["token", "create", "ci", "--scope", "all"]).code,
        2
    );
    assert_eq!(
        world.run(&["token", "create", "ci"]).code,
        2,
        "a scope is needed"
    );
}

#[test]
fn exports_and_imports_are_tables() {
    let world = World::new();
    let fleet = json!([{"id": "00000000-0000-4000-8000-000000000012", "name": "metal"}]);
    let export = json!({
        "id": "00000000-0000-4000-8000-000000000013", "name": "lend", "is_global": false,
        "imports": [{"project_name": "other"}], "exported_fleets": fleet, "exported_gateways": [],
    });
    world.server.on(
        "/api/project/main/exports/list",
        json!({"exports": [export], "warnings": []}),
    );
    let screen = world.run(&["export"]);
    for word in ["IMPORTERS", "lend", "metal", "other"] {
        assert!(screen.out.contains(word), "{}{}", screen.out, screen.err);
    }
    world
        .server
        .on("/api/project/main/imports/delete", Value::Null);
    assert_eq!(world.run(&["import", "delete", "a/b", "-y"]).out, "OK\n");
    assert_eq!(
        world.server.bodies("/api/project/main/imports/delete"),
        [json!({"export_name": "b", "export_project_name": "a"})]
    );
    assert_eq!(world.run(&["import", "delete", "b", "-y"]).code, 2);
}
