//! The plugin folder: good ones work, a broken one is named, and the server starts all the same.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Result, ensure};
use dstack_test_support::server::{TestServer, bin_dir};
use serde_json::Value;

#[test]
fn a_broken_plugin_is_named_and_the_others_work() -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let bin = bin_dir();
    for name in ["libdstack_backend_local.so", "libdstack_backend_fake.so"] {
        fs::copy(bin.join(name), folder.path().join(name))?;
    }
    let whole = fs::read(bin.join("libdstack_backend_fake.so"))?;
    fs::write(
        folder.path().join("libdstack_backend_broken.so"),
        whole.get(..whole.len() / 2).unwrap_or_default(),
    )?;
    for entry in fs::read_dir(folder.path())? {
        fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o644))?;
    }
    let locked = Command::new(bin.join("dstack"))
        .args(["backend", "lock"])
        .arg(folder.path())
        .output()?;
    ensure!(
        locked.status.success(),
        "{}",
        String::from_utf8_lossy(&locked.stderr)
    );

    let dir = folder.path().to_string_lossy().into_owned();
    let server = TestServer::start(&[("DSTACK_PLUGIN_DIR", &dir)])?;
    let list: Value = serde_json::from_str(&server.ok(&["backend", "list", "--json"])?)?;
    let plugins = list["plugins"].as_array().cloned().unwrap_or_default();
    let find = |name: &str| {
        plugins
            .iter()
            .find(|plugin| {
                plugin["path"]
                    .as_str()
                    .is_some_and(|path| path.starts_with(&dir) && path.contains(name))
            })
            .cloned()
            .unwrap_or_default()
    };
    for name in ["local", "fake"] {
        let plugin = find(name);
        ensure!(
            plugin["name"] == name && plugin["reason"].is_null() && plugin["sdk"].is_string(),
            "{plugin}"
        );
        ensure!(
            plugin["sha256"]
                .as_str()
                .is_some_and(|hash| hash.len() == 64),
            "{plugin}"
        );
    }
    let broken = find("broken");
    ensure!(broken["state"] == "refused", "{broken}");
    ensure!(
        broken["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("past the end")),
        "{broken}"
    );
    let table = server.ok(&["backend", "list"])?;
    ensure!(
        table.contains("fake") && table.contains("refused"),
        "{table}"
    );
    Ok(())
}

#[test]
fn a_plugin_outside_the_lock_file_is_refused_unless_the_operator_lets_it_in() -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let name = "libdstack_backend_fake.so";
    fs::copy(bin_dir().join(name), folder.path().join(name))?;
    fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o644))?;
    let dir = folder.path().to_string_lossy().into_owned();
    let fake = |server: &TestServer| -> Result<Value> {
        let list: Value = serde_json::from_str(&server.ok(&["backend", "list", "--json"])?)?;
        let plugins = list["plugins"].as_array().cloned().unwrap_or_default();
        let found = plugins.iter().find(|plugin| plugin["name"] == "fake");
        Ok(found.cloned().unwrap_or_default())
    };

    let server = TestServer::start(&[("DSTACK_PLUGIN_DIR", &dir)])?;
    let refused = fake(&server)?;
    ensure!(refused["state"] == "refused", "{refused}");
    let reason = refused["reason"].as_str().unwrap_or_default();
    ensure!(
        reason.contains("plugins.lock") && reason.contains("isolation: in_process"),
        "{refused}"
    );
    drop(server);

    let mut server = TestServer::prepare(&[("DSTACK_PLUGIN_DIR", &dir)])?;
    fs::create_dir_all(server.home().join(".dstack/server"))?;
    fs::write(
        server.home().join(".dstack/server/config.yml"),
        format!(
            "projects:\n- name: main\n  backends:\n  - type: fake\n    isolation: in_process\n    folder: {dir}\nencryption:\n  keys: []\n"
        ),
    )?;
    server.spawn()?;
    let loaded = fake(&server)?;
    ensure!(
        loaded["state"] == "loaded" && loaded["isolation"] == "in_process",
        "{loaded}"
    );
    Ok(())
}
