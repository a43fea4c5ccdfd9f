//! What a person reads when something is wrong: the place and what to do.

use serde_json::json;

use crate::world::{World, recorded};

#[test]
fn no_project_is_configured() {
    let world = World::new();
    world.write("home/.dstack/config.yml", "projects: []\n");
    insta::assert_snapshot!(world.run(&["ps"]), @"");
}

#[test]
fn the_project_is_not_configured() {
    insta::assert_snapshot!(World::new().run(&["ps", "--project", "other"]), @"");
}

#[test]
fn the_client_file_is_broken() {
    let world = World::new();
    world.write("home/.dstack/config.yml", "projects: [\n");
    insta::assert_snapshot!(world.run(&["ps"]), @"");
}

#[test]
fn the_server_is_not_there() {
    let world = World::new();
    world.write(
        "home/.dstack/config.yml",
        "projects: [{name: main, url: 'http://127.0.0.1:1', token: t, default: true}]\n",
    );
    insta::assert_snapshot!(world.run(&["ps"]), @"");
}

#[test]
fn the_token_is_wrong() {
    let world = World::new();
    let denied = recorded("project_add_bad_token").remove(0);
    world
        .server
        .on_status("/api/runs/list", 403, denied["response"].clone());
    let screen = world.run(&["ps"]);
    assert!(!screen.err.contains("secret-token"));
    insta::assert_snapshot!(screen, @"");
    assert_eq!(
        world.server.requests()[0].headers["authorization"],
        "Bearer secret-token"
    );
}

#[test]
fn the_server_does_not_know_the_project() {
    let world = World::new();
    world.server.play(&recorded("project_add_unknown"));
    insta::assert_snapshot!(
        world.run(&["project", "add", "--name", "nope", "--url", &world.server.url, "--token", "t"]),
        @""
    );
}

#[test]
fn the_run_is_unknown() {
    let world = World::new();
    world.server.play(&recorded("missing_run"));
    insta::assert_snapshot!(world.run(&["logs", "nosuchrun"]), @"");
    insta::assert_snapshot!(world.run(&["stop", "-y", "nosuchrun"]), @"");
}

#[test]
fn the_yaml_is_broken() {
    let world = World::new();
    world.write("work/task.yml", "type: task\ncommands: [make\nname: x\n");
    insta::assert_snapshot!(world.run(&["apply", "-f", "task.yml"]), @"");
}

#[test]
fn a_key_is_unknown() {
    let world = World::new();
    world.write(
        "work/task.yml",
        "type: task\ncommands: [make]\nresources:\n  gpus: 1\n",
    );
    insta::assert_snapshot!(world.run(&["apply", "-f", "task.yml"]), @"");
    assert!(world.server.paths().is_empty());
}

#[test]
fn there_is_no_file() {
    insta::assert_snapshot!(World::new().run(&["apply"]), @"");
    insta::assert_snapshot!(World::new().run(&["apply", "-f", "nope.yml"]), @"");
}

#[test]
fn an_option_does_not_fit_the_type() {
    let world = World::new();
    world.write("work/fleet.yml", "type: fleet\nnodes: 1\n");
    insta::assert_snapshot!(world.run(&["apply", "-f", "fleet.yml", "--gpu", "1"]), @"");
}

#[test]
fn an_option_has_a_wrong_value() {
    insta::assert_snapshot!(World::new().run(&["offer", "--cpu", "x86_64"]), @"");
}

#[test]
fn a_variable_is_not_set() {
    let world = World::new();
    world.write(
        "work/.dstack.yml",
        "type: task\ncommands: [make]\nenv: [HF_TOKEN]\n",
    );
    insta::assert_snapshot!(world.run(&["apply", "-y"]), @"");
}

#[test]
fn nobody_can_answer_a_question() {
    let world = World::new();
    world.server.play(&recorded("fleet_delete"));
    insta::assert_snapshot!(world.run(&["fleet", "delete", "f1"]), @"");
}

#[test]
fn the_server_answers_nonsense() {
    let world = World::new();
    world.server.on("/api/runs/list", json!({"hello": 1}));
    insta::assert_snapshot!(world.run(&["ps"]), @"");
}
