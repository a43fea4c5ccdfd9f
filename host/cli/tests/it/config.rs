//! `dstack config`: files checked without a server, and schemas for editors.

use std::collections::HashMap;
use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};

use dstack_cli::settings::Vars;
use dstack_cli::{ClientOnly, Surroundings, Terminal};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::world::World;

const TASK: &str = "type: task\nname: train\ncommands: [make]\nresources: {gpu: H100}\n";

fn report(world: &World, args: &[&str]) -> (u8, Value) {
    let screen = world.run(&[&["config", "check", "--json"], args].concat());
    assert_eq!(screen.err, "", "messages are in the document");
    (screen.code, serde_json::from_str(&screen.out).unwrap())
}

#[test]
fn a_right_file_is_shown_in_canonical_and_effective_form() {
    let world = World::new();
    world.write("work/task.yml", TASK);
    let screen = world.run(&["config", "check", "task.yml"]);
    assert_eq!((screen.code, screen.err.as_str()), (0, ""));
    assert!(
        screen
            .out
            .starts_with("# task.yml: task\n--- # canonical form\n")
    );
    assert!(screen.out.contains("\n--- # effective form\n"));
    // What is printed is YAML of the same meaning.
    let canonical = screen.out.split("--- # ").nth(1).unwrap();
    let canonical = canonical.split_once('\n').unwrap().1;
    world.write("work/canonical.yml", canonical);
    let (_, first) = report(&world, &["task.yml"]);
    let (code, second) = report(&world, &["canonical.yml"]);
    assert_eq!(code, 0);
    assert_eq!(first[0]["canonical"], second[0]["canonical"]);
    assert_eq!(first[0]["effective"], second[0]["effective"]);
    assert!(world.server.paths().is_empty(), "no server is asked");

    let quiet = world.run(&["config", "check", "-q", "task.yml"]);
    assert_eq!(
        (quiet.code, quiet.out.as_str(), quiet.err.as_str()),
        (0, "", "")
    );
}

#[test]
fn every_sort_of_file_is_known() {
    let world = World::new();
    let files = [
        (
            "dev.yml",
            "type: dev-environment\nide: vscode\n",
            "dev-environment",
        ),
        (
            "service.yml",
            "type: service\nport: 80\nimage: nginx\ncommands: [nginx]\n",
            "service",
        ),
        ("fleet.yml", "type: fleet\nnodes: 1\n", "fleet"),
        (
            "volume.yml",
            "type: volume\nbackend: aws\nregion: x\nsize: 1\n",
            "volume",
        ),
        (
            "gateway.yml",
            "type: gateway\nbackend: aws\nregion: x\n",
            "gateway",
        ),
        ("preset.yml", "type: preset\nbase: llama\n", "preset"),
        (
            "profiles.yml",
            "profiles: [{name: big, spot_policy: spot}]\n",
            "profiles",
        ),
        (
            "server/config.yml",
            "projects: [{name: main, backends: [{type: aws, creds: {type: default}}]}]\n",
            "server-config",
        ),
        (
            "client/config.yml",
            "projects: [{name: main, url: 'http://x', token: very-secret}]\n",
            "client-config",
        ),
    ];
    for (name, text, _) in files {
        world.write(&format!("work/{name}"), text);
    }
    let names: Vec<_> = files.iter().map(|(name, ..)| *name).collect();
    let (code, report) = report(&world, &names);
    assert_eq!(code, 0, "{report:#}");
    for (entry, (name, _, kind)) in report.as_array().unwrap().iter().zip(files) {
        assert_eq!(
            (entry["file"].as_str(), entry["kind"].as_str()),
            (Some(name), Some(kind))
        );
        assert!(entry["canonical"].is_object(), "{name}");
        let has_form = ["dev-environment", "service", "fleet"].contains(&kind);
        assert_eq!(entry["effective"].is_object(), has_form, "{name}");
        assert_eq!(
            (&entry["errors"], &entry["warnings"]),
            (&json!([]), &json!([])),
            "{name}"
        );
    }
}

#[test]
fn credentials_are_not_shown() {
    let world = World::new();
    world.write(
        "work/client.yml",
        "projects: [{name: main, url: 'http://x', token: very-secret}]\n",
    );
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    world.write(
        "work/server.yml",
        &format!(
            "projects:\n- name: main\n  backends:\n  - {{type: aws, regions: [eu], creds: {{type: access_key, access_key: very-secret, secret_key: very-secret}}}}\n  - {{type: kubernetes, kubeconfig: {{data: very-secret}}}}\n  - {{type: slurm, clusters: [{{name: a, private_key: {{content: very-secret}}}}]}}\nencryption: {{keys: [{{type: aes, name: k, secret: {key}}}]}}\n"
        ),
    );
    for args in [
        &["config", "check", "client.yml", "server.yml"][..],
        &["config", "check", "--json", "client.yml", "server.yml"],
    ] {
        let screen = world.run(args);
        assert_eq!(screen.code, 0, "{screen}");
        assert!(
            screen.out.contains("***")
                && screen.out.contains("access_key")
                && screen.out.contains("eu")
        );
        assert!(
            !screen.out.contains("very-secret") && !screen.out.contains(key),
            "{screen}"
        );
    }
}

#[test]
fn all_files_are_checked_and_one_wrong_one_is_enough_to_fail() {
    let world = World::new();
    world.write("work/good.yml", TASK);
    world.write("work/bad.yml", "type: task\ncommand: [make]\n");
    let (code, report) = report(&world, &["bad.yml", "good.yml"]);
    assert_eq!(code, 1);
    let errors = &report[0]["errors"];
    assert_eq!(errors[0]["line"], 2);
    assert_eq!(errors[0]["column"], 1);
    assert_eq!(errors[0]["path"], "command");
    assert_eq!(errors[0]["help"], "write `commands`");
    assert!(errors[0]["message"].as_str().unwrap().contains("not known"));
    assert_eq!(
        (&report[0]["canonical"], &report[0]["effective"]),
        (&Value::Null, &Value::Null)
    );
    assert!(report[1]["canonical"].is_object());

    let screen = world.run(&["config", "check", "bad.yml", "good.yml"]);
    assert_eq!(screen.code, 1);
    assert!(screen.err.contains("bad.yml:2:1: command: "), "{screen}");
    assert!(
        screen.err.contains("\n 2 | command: [make]\n   | ^\n"),
        "{screen}"
    );
    assert!(screen.out.starts_with("# good.yml: task\n"));
}

#[test]
fn rules_of_client_and_server_are_checked_too_and_point_at_their_key() {
    let world = World::new();
    world.write(
        "work/task.yml",
        "type: task\ncommands: [make]\nname: Train\n",
    );
    let (code, report) = report(&world, &["task.yml"]);
    assert_eq!(code, 1);
    assert!(report[0]["canonical"].is_object());
    assert_eq!(
        (
            &report[0]["errors"][0]["line"],
            &report[0]["errors"][0]["path"]
        ),
        (&json!(3), &json!("name"))
    );
}

#[test]
fn a_double_key_is_a_warning_that_names_both_lines() {
    let world = World::new();
    world.write(
        "work/task.yml",
        "type: task\nname: a1\ncommands: [make]\nname: b1\n",
    );
    let screen = world.run(&["config", "check", "task.yml"]);
    assert_eq!(screen.code, 0);
    assert!(
        screen.err.contains("task.yml:4:1: ") && screen.err.contains("lines 2 and 4"),
        "{screen}"
    );
    let (_, report) = report(&world, &["task.yml"]);
    assert_eq!(report[0]["canonical"]["name"], "b1");
    assert_eq!(report[0]["warnings"][0]["line"], 4);
}

#[test]
fn standard_input_is_read() {
    let world = World::new().typing(TASK);
    let (code, report) = report(&world, &["-"]);
    assert_eq!(code, 0);
    assert_eq!(
        (&report[0]["file"], &report[0]["kind"]),
        (&json!("standard input"), &json!("task"))
    );
}

#[test]
fn what_cannot_be_read_is_an_error_of_its_file() {
    let world = World::new();
    world.write("work/good.yml", TASK);
    std::fs::create_dir(world.folder().join("folder")).unwrap();
    std::fs::write(
        world.folder().join("latin1.yml"),
        b"type: task\nname: caf\xe9\n",
    )
    .unwrap();
    let (code, report) = report(&world, &["missing.yml", "folder", "latin1.yml", "good.yml"]);
    assert_eq!(code, 1);
    let message = |i: usize| {
        report[i]["errors"][0]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        message(0).contains("cannot read missing.yml: No such file"),
        "{}",
        message(0)
    );
    assert!(
        message(1).contains("cannot read folder: Is a directory"),
        "{}",
        message(1)
    );
    assert!(message(2).contains("UTF-8"), "{}", message(2));
    assert_eq!(
        (
            &report[2]["errors"][0]["line"],
            &report[2]["errors"][0]["column"]
        ),
        (&json!(2), &json!(10))
    );
    assert_eq!(report[0]["errors"][0]["line"], Value::Null);
    assert!(report[3]["canonical"].is_object());
    let screen = world.run(&["config", "check", "missing.yml"]);
    assert_eq!((screen.code, screen.out.as_str()), (1, ""));
    assert!(screen.err.contains("cannot read missing.yml"));
}

#[test]
fn broken_and_odd_texts_are_errors_with_a_place() {
    let world = World::new();
    let cases = [
        ("type: task\ncommands: [make\nname: x\n", "3:"),
        ("", "1:1: "),
        ("[]\n", "1:1: "),
        ("just words\n", "1:1: "),
        ("type: task\n\tname: x\n", "2:1: "),
        ("a: &a [*a]\n", "1:"),
        ("type: task\n---\ntype: task\n", "2:1: "),
        ("type: [task]\n", "1:"),
    ];
    for (text, place) in cases {
        world.write("work/x.yml", text);
        let screen = world.run(&["config", "check", "x.yml"]);
        assert_eq!((screen.code, screen.out.as_str()), (1, ""), "{text:?}");
        assert!(
            screen.err.starts_with(&format!("x.yml:{place}")),
            "{text:?}: {screen}"
        );
    }
}

#[test]
fn line_ends_of_windows_and_byte_order_marks_make_no_difference() {
    let world = World::new();
    world.write("work/unix.yml", TASK);
    world.write(
        "work/windows.yml",
        &format!("\u{feff}{}", TASK.replace('\n', "\r\n")),
    );
    let (code, report) = report(&world, &["unix.yml", "windows.yml"]);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report[0]["canonical"], report[1]["canonical"]);
    world.write(
        "work/windows.yml",
        "type: task\r\nnode: 2\r\ncommands: [make]\r\n",
    );
    let screen = world.run(&["config", "check", "windows.yml"]);
    assert!(screen.err.contains("windows.yml:2:1: node: "), "{screen}");
    assert!(screen.err.contains("\n 2 | node: 2\n   | ^\n"), "{screen}");
}

#[test]
fn the_kind_can_be_said() {
    let world = World::new();
    world.write("work/open.yml", "projects: []\n");
    world.write("work/task.yml", TASK);
    let (code, report_of) = report(&world, &["--kind", "client-config", "open.yml"]);
    assert_eq!((code, &report_of[0]["kind"]), (0, &json!("client-config")));
    let (code, report_of) = report(&world, &["--kind", "fleet", "task.yml"]);
    assert_eq!(code, 1);
    assert_eq!(report_of[0]["errors"][0]["path"], "type");
    let screen = world.run(&["config", "check", "--kind", "nonsense", "task.yml"]);
    assert_eq!(screen.code, 2);
    assert!(screen.err.contains("server-config"), "{screen}");
}

#[test]
fn unknown_keys_of_the_other_files_name_the_nearest_one() {
    let world = World::new();
    world.write("work/server.yml", "projects: []\nencription: {keys: []}\n");
    world.write(
        "work/client.yml",
        "projects: [{name: a, url: u, token: t}]\nrepo: []\n",
    );
    let (code, report) = report(&world, &["--kind", "server-config", "server.yml"]);
    assert_eq!(code, 1);
    assert_eq!(report[0]["errors"][0]["help"], "write `encryption`");
    let screen = world.run(&["config", "check", "client.yml"]);
    assert!(screen.err.contains("did you mean `repos`?"), "{screen}");
}

#[test]
fn schemas_are_printed_and_written() {
    let world = World::new();
    let screen = world.run(&["config", "schema", "fleet"]);
    let schema: Value = serde_json::from_str(&screen.out).unwrap();
    assert_eq!(schema["title"], "Fleet configuration");
    let union: Value = serde_json::from_str(&world.run(&["config", "schema"]).out).unwrap();
    assert_eq!(union["title"], "Configuration");
    let screen = world.run(&["config", "schema", "--output", "new/schemas"]);
    assert_eq!(screen.code, 0, "{screen}");
    let written = std::fs::read_dir(world.folder().join("new/schemas")).unwrap();
    assert_eq!(written.count(), 11);
    let task =
        std::fs::read_to_string(world.folder().join("new/schemas/task.schema.json")).unwrap();
    let task: Value = serde_json::from_str(&task).unwrap();
    assert_eq!(task["$schema"], "http://json-schema.org/draft-07/schema#");
    assert_eq!(task["additionalProperties"], false);
}

#[test]
fn help_has_examples() {
    for command in ["check", "schema"] {
        let screen = World::new().run(&["config", command, "--help"]);
        assert_eq!(screen.code, 0);
        assert!(
            screen
                .out
                .contains(&format!("Examples:\n  dstack config {command}")),
            "{screen}"
        );
    }
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Environment(HashMap<&'static str, &'static str>);

impl Vars for Environment {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| (*value).to_owned())
    }
}

/// What comes out of standard error on a terminal.
fn on_terminal(world: &World, vars: &[(&'static str, &'static str)]) -> String {
    let err = Sink::default();
    let around = Surroundings {
        vars: &Environment(vars.iter().copied().collect()),
        folder: world.folder(),
        terminal: Terminal {
            out: Box::new(Sink::default()),
            err: Box::new(err.clone()),
            input: Box::new(Cursor::new(Vec::new())),
            is_terminal: true,
            is_terminal_err: true,
            can_answer: false,
            width: Some(80),
        },
        local: &ClientOnly,
        clock: Timestamp::now,
    };
    let args = ["dstack", "config", "check", "bad.yml"];
    assert_eq!(dstack_cli::run_in(args.map(Into::into), around), 1);
    let bytes = err.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn errors_are_coloured_on_terminals_unless_no_colour_is_wanted() {
    let world = World::new();
    world.write("work/bad.yml", "type: task\ncommand: [make]\n");
    let coloured = on_terminal(&world, &[]);
    assert!(coloured.contains("\x1b[31m^\x1b[0m"), "{coloured:?}");
    let plain = on_terminal(&world, &[("NO_COLOR", "1")]);
    assert!(
        !plain.contains('\x1b') && plain.contains("   | ^"),
        "{plain:?}"
    );
    assert!(!on_terminal(&world, &[("TERM", "dumb")]).contains('\x1b'));
}

#[test]
fn what_only_a_plan_finds_is_shown_at_its_place_too() {
    let world = World::new();
    let cases = [
        (
            "type: task\ncommands:\n  - make\n  - echo ${{ run.arg }}\n",
            "commands.1",
            4,
        ),
        (
            "type: task\ncommands:\n  - make\n  - echo ${{ run.args\n",
            "commands.1",
            4,
        ),
        (
            "type: task\ncommands: [make]\nname: ab\ngroups: null\nnodes: 20000\n",
            "nodes",
            5,
        ),
        (
            "type: gateway\nbackend: aws\nregion: r\ndomain: ${{ run.project }}.x\n",
            "domain",
            4,
        ),
    ];
    for (text, path, line) in cases {
        world.write("work/x.yml", text);
        let (code, report) = report(&world, &["x.yml"]);
        let error = &report[0]["errors"][0];
        assert_eq!(code, 1, "{text}");
        assert_eq!(error["path"], path, "{error}");
        assert_eq!(error["line"], line, "{error}");
    }
}

#[test]
fn keys_that_occur_twice_are_told_beside_errors() {
    let world = World::new();
    world.write(
        "work/x.yml",
        "type: task\ncommands: [make]\nnodes: 1\nnodes: x\n",
    );
    let (code, report) = report(&world, &["x.yml"]);
    assert_eq!(code, 1);
    let warnings = report[0]["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{report}");
    assert!(
        warnings[0]["message"]
            .as_str()
            .unwrap()
            .contains("lines 3 and 4")
    );
}
