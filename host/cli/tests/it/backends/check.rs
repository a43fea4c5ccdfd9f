//! `dstack backend check`.

#[path = "../../../../../tests/support/plugins/built.rs"]
mod built;

use serde_json::{Value, json};

use crate::world::World;

fn plugin() -> String {
    let file = built::plugins(&["dstack-backend-fake"]).remove(0);
    file.display().to_string()
}

#[test]
fn a_plugin_is_checked_and_the_exit_code_tells() {
    let world = World::new();
    let (plugin, cloud) = (plugin(), world.folder().join("cloud"));
    let config = |token: &str| {
        let name = format!("{token}.yml");
        // YAML as in the server's file; JSON is read as well.
        let text = format!("type: fake\nfolder: {}\ntoken: {token}\n", cloud.display());
        world.write(&format!("work/{name}"), &text);
        world.folder().join(name).display().to_string()
    };
    let check = |more: &[&str]| {
        let usual = ["backend", "check", &plugin, "--isolation", "in_process"];
        world.run(&[&usual, more].concat())
    };
    let good = config("good-token");
    let passed = check(&["--config", &good, "--only", "config.accepted,create"]);
    assert_eq!(passed.code, 0, "{}{}", passed.out, passed.err);
    assert!(
        passed.out.contains("pass  create.idempotent"),
        "{}",
        passed.out
    );
    assert!(!passed.out.contains("offers.sane") && !passed.out.contains('\x1b'));

    let wrong = config("wrong");
    let failed = check(&["--config", &wrong, "--only", "config.accepted"]);
    assert_eq!(failed.code, 1, "{}", failed.out);
    for part in [
        "FAIL  config.accepted",
        "error `auth`",
        "remedy",
        "failed: 0 passed, 1 failed",
    ] {
        assert!(failed.out.contains(part), "{part} in {}", failed.out);
    }

    let printed = check(&[
        "--config",
        &good,
        "--only",
        "manifest",
        "--without",
        "manifest.fields",
        "--json",
    ]);
    let report: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(report["plugin"], json!("fake"));
    assert_eq!(report["results"][0]["result"], json!("skipped"));
    assert_eq!(report["results"][1]["result"], json!("passed"));
}

#[test]
fn what_cannot_be_checked_is_said() {
    let world = World::new();
    let file = world.folder().join("text.so");
    world.write("work/text.so", "not a plugin");
    let file = file.display().to_string();
    let refused = world.run(&["backend", "check", &file, "--isolation", "in_process"]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("not an ELF file"), "{}", refused.err);
    let unknown = world.run(&["backend", "check", &file, "--only", "nonsense"]);
    assert!(
        unknown.err.contains("terminate.confirmed"),
        "{}",
        unknown.err
    );
    let scheme = world.run(&["backend", "check", &file, "--provider", "127.0.0.1:1"]);
    assert!(scheme.err.contains("http://"), "{}", scheme.err);
    let listed = world.run(&["backend", "check", "--list"]);
    assert!(listed.out.contains("secrets.nowhere"), "{}", listed.out);
}
