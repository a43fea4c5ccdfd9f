//! `dstack backend`.

mod check;

use serde_json::json;

use crate::world::World;

#[test]
fn every_plugin_is_listed_with_its_state_and_reason() {
    let plugins = json!({"plugins": [
        {
            "name": "local", "version": "0.1.0", "sdk": "0.1.0", "path": "/b/liblocal.so", "state": "loaded",
            "reason": null, "capabilities": ["create_instance", "privileged"], "isolation": "in_process",
            "sha256": "8055fe154e07069358a1983b689f3b62751a5d818081c77a6012fb6c82e7089c",
            "load": {
                "calls": 12, "errors": 2, "running": 1, "waiting": 0, "respawns": 3, "deaths": 3, "lost_threads": 0,
                "is_breaker_open": false,
            },
        },
        {
            "name": "libbroken", "version": null, "sdk": null, "path": "/b/libbroken.so", "state": "refused",
            "reason": "not an ELF file", "capabilities": [], "isolation": null, "sha256": null,
        },
    ]});
    let world = World::new();
    let path = "/api/x/plugins/list";
    world
        .server
        .on(path, plugins.clone())
        .on(path, plugins.clone())
        .on(path, plugins.clone());
    insta::assert_snapshot!(world.run(&["backend", "list"]), @r"
     NAME        VERSION   SDK     ISOLATION    STATE     CALLS     ERRORS   RESPAWNS   CAPABILITIES                 HASH           ERROR
     local       0.1.0     0.1.0   in_process   loaded    12 (+1)   2        3          create_instance privileged   8055fe154e07
     libbroken                                  refused                                                                             not an ELF file
    --- exit code 0
    ");
    let verbose = world.run(&["backend", "list", "-v"]).out;
    assert!(
        verbose.contains("82e7089c") && verbose.contains("/b/libbroken.so"),
        "{verbose}"
    );
    let printed = world.run(&["backend", "list", "--json"]).out;
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&printed).unwrap(),
        plugins
    );
}

#[test]
fn a_new_backend_is_one_folder_and_a_wrong_name_makes_nothing() {
    let world = World::new();
    let sdk = concat!(env!("CARGO_MANIFEST_DIR"), "/../../backend-sdk");
    let new = |name: &str, more: &[&str]| {
        let usual = ["backend", "new", name, "--path", "made", "--sdk-path", sdk];
        world.run(&[&usual, more].concat())
    };
    let made = world.folder().join("made");
    let refused = new("aws", &[]);
    assert_eq!(refused.code, 1, "{}", refused.out);
    assert!(
        refused.err.contains("there is a backend `aws` already"),
        "{}",
        refused.err
    );
    assert!(!made.exists());

    let done = new("ExampleXYZ", &["--kind", "container", "--auth", "basic"]);
    assert_eq!(done.code, 0, "{}", done.err);
    for words in ["dstack-backend-examplexyz", "cargo test", "FILL-IN"] {
        assert!(done.out.contains(words), "{words} in {}", done.out);
    }
    let read = |file: &str| std::fs::read_to_string(made.join("examplexyz").join(file)).unwrap();
    assert!(read("src/compute.rs").contains("ContainerSetup"));
    assert!(read("src/config.rs").contains("password"));
    assert!(read("Cargo.toml").contains("backend-sdk/conformance"));

    let told = new("Other", &["--json"]);
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(told["package"], "dstack-backend-other");
    let again = new("Other", &[]);
    assert!(
        again.code == 1 && again.err.contains("is there already"),
        "{}",
        again.err
    );
}
