//! What a person reads when something is wrong: the place and what to do.

use serde_json::json;

use crate::world::{World, recorded};

#[test]
fn no_project_is_configured() {
    let world = World::new();
    world.write("home/.dstack/config.yml", "projects: []\n");
    insta::assert_snapshot!(world.run(&["ps"]), @r"
    --- standard error
    no project is configured; add one with `dstack project add --name NAME --url URL --token TOKEN`
    --- exit code 1
    ");
}

#[test]
fn the_project_is_not_configured() {
    insta::assert_snapshot!(World::new().run(&["ps", "--project", "other"]), @r"
    --- standard error
    project other is not configured; known: main. Add it with `dstack project add`
    --- exit code 1
    ");
}

#[test]
fn the_client_file_is_broken() {
    let world = World::new();
    world.write("home/.dstack/config.yml", "projects: [\n");
    insta::assert_snapshot!(world.run(&["ps"]), @r"
    --- standard error
    /person/home/.dstack/config.yml is taken as empty: config.yml:1:11: not valid YAML: unclosed bracket '['
    no project is configured; add one with `dstack project add --name NAME --url URL --token TOKEN`
    --- exit code 1
    ");
}

#[test]
fn the_server_is_not_there() {
    let world = World::new();
    world.write(
        "home/.dstack/config.yml",
        "projects: [{name: main, url: 'http://127.0.0.1:1', token: t, default: true}]\n",
    );
    insta::assert_snapshot!(world.run(&["ps"]), @r"
    --- standard error
    cannot reach the server at http://127.0.0.1:1: io: Connection refused (os error 111)
    Is it running? Start one with `dstack server`, or check the address with `dstack project list`.
    --- exit code 1
    ");
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
    insta::assert_snapshot!(screen, @r"
    --- standard error
    Access to http://SERVER/api/runs/list is denied. Please check your server token: Invalid token
    --- exit code 1
    ");
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
        @r"
    --- standard error
    http://SERVER has no project nope that your token may see; `dstack project list` shows what is configured, `dstack project add` corrects it
    --- exit code 1
    "
    );
}

#[test]
fn the_run_is_unknown() {
    let world = World::new();
    world.server.play(&recorded("missing_run"));
    insta::assert_snapshot!(world.run(&["logs", "nosuchrun"]), @r"
    --- standard error
    Run nosuchrun not found
    --- exit code 1
    ");
    insta::assert_snapshot!(world.run(&["stop", "-y", "nosuchrun"]), @r"
    --- standard error
    Run nosuchrun not found
    --- exit code 1
    ");
}

#[test]
fn the_yaml_is_broken() {
    let world = World::new();
    world.write("work/task.yml", "type: task\ncommands: [make\nname: x\n");
    insta::assert_snapshot!(world.run(&["apply", "-f", "task.yml"]), @r"
    --- standard error
    task.yml:3:5: not valid YAML: illegal placement of ':' indicator; close the bracket or brace that was opened before
     3 | name: x
       |     ^
    --- exit code 1
    ");
}

#[test]
fn a_key_is_unknown() {
    let world = World::new();
    world.write(
        "work/task.yml",
        "type: task\ncommands: [make]\nresources:\n  gpus: 1\n",
    );
    insta::assert_snapshot!(world.run(&["apply", "-f", "task.yml"]), @r"
    --- standard error
    task.yml:4:3: resources.gpus: the key `gpus` is not known here, did you mean `gpu`?
     4 |   gpus: 1
       |   ^
    --- exit code 1
    ");
    assert!(world.server.paths().is_empty());
}

#[test]
fn there_is_no_file() {
    insta::assert_snapshot!(World::new().run(&["apply"]), @r"
    --- standard error
    there is no .dstack.yml in /person/work; name the file with -f FILE
    --- exit code 1
    ");
    insta::assert_snapshot!(World::new().run(&["apply", "-f", "nope.yml"]), @r"
    --- standard error
    cannot read /person/work/nope.yml: No such file or directory (os error 2)
    --- exit code 1
    ");
}

#[test]
fn the_file_has_no_end() {
    let screen = World::new().run(&["apply", "-f", "/dev/zero"]);
    assert_eq!(screen.code, 1);
    assert!(
        screen.err.contains("more than 524288 bytes"),
        "{}",
        screen.err
    );
}

#[test]
fn the_address_of_a_server_is_no_address() {
    let add = ["project", "add", "--name", "main", "--token", "t", "--url"];
    for url in [
        "127.0.0.1:3000",
        "example.com",
        "ftp://example.com",
        "http://",
    ] {
        let screen = World::new().run(&[&add[..], &[url]].concat());
        assert_eq!(screen.code, 2, "{url}");
        assert!(
            screen.err.contains("http://") && screen.err.contains("https://"),
            "{}",
            screen.err
        );
    }
}

#[test]
fn a_name_does_not_fit() {
    let world = World::new();
    world.write("work/task.yml", "type: task\nname: X\ncommands: [make]\n");
    insta::assert_snapshot!(world.run(&["apply", "-f", "task.yml"]), @r"
    --- standard error
    run name `X` is not valid: 2 to 41 lower-case letters, digits and dashes, starting with a letter
    --- exit code 1
    ");
    world.write("work/fleet.yml", "type: fleet\nname: my fleet\nnodes: 1\n");
    insta::assert_snapshot!(world.run(&["apply", "-f", "fleet.yml"]), @r"
    --- standard error
    fleet name `my fleet` is not valid: 2 to 41 lower-case letters, digits and dashes, starting with a letter
    --- exit code 1
    ");
}

#[test]
fn an_option_does_not_fit_the_type() {
    let world = World::new();
    world.write("work/fleet.yml", "type: fleet\nnodes: 1\n");
    insta::assert_snapshot!(world.run(&["apply", "-f", "fleet.yml", "--gpu", "1"]), @r"
    --- standard error
    error: --gpu cannot be used with `type: fleet`, which the file has
    --- exit code 2
    ");
}

#[test]
fn an_option_has_a_wrong_value() {
    insta::assert_snapshot!(World::new().run(&["offer", "--cpu", "x86_64"]), @r#"
    --- standard error
    error: invalid value 'x86_64' for '--cpu <SPEC>': "x86_64" is neither a count nor an architecture (x86, arm)

    For more information, try '--help'.
    --- exit code 2
    "#);
}

#[test]
fn a_variable_is_not_set() {
    let world = World::new();
    world.write(
        "work/.dstack.yml",
        "type: task\ncommands: [make]\nenv: [HF_TOKEN]\n",
    );
    insta::assert_snapshot!(world.run(&["apply", "-y"]), @r"
    --- standard error
    environment variable HF_TOKEN is not set; export it or pass `-e HF_TOKEN=VALUE`
    --- exit code 1
    ");
}

#[test]
fn nobody_can_answer_a_question() {
    let world = World::new();
    world.server.play(&recorded("fleet_delete"));
    insta::assert_snapshot!(world.run(&["fleet", "delete", "f1"]), @r"
    --- standard error
    Delete the fleet f1? There is no terminal to answer on; pass -y to say yes
    --- exit code 1
    ");
}

#[test]
fn the_server_answers_nonsense() {
    let world = World::new();
    world.server.on("/api/runs/list", json!({"hello": 1}));
    insta::assert_snapshot!(world.run(&["ps"]), @r"
    --- standard error
    the server at http://SERVER/api/runs/list answered something that this client cannot read: invalid type: map, expected a sequence at line 1 column 0
    Is it a dstack server of a compatible version?
    --- exit code 1
    ");
}
