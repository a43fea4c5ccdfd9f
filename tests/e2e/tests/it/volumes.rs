//! Volumes on the fake cloud, with the real server, plugin and client.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_test_support::server::{TestServer, wait_for};
use serde_json::{Value, json};

use crate::plugins::{configure, plugin_folder};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server with the fake cloud in a folder.
fn server() -> Result<(TestServer, tempfile::TempDir)> {
    let folder = plugin_folder(&["fake"])?;
    let dir = folder.path().to_string_lossy().into_owned();
    let mut server = TestServer::prepare(&[("DSTACK_PLUGIN_DIR", &dir)])?;
    configure(
        &server,
        &format!("projects:\n- name: main\n  backends:\n  - type: fake\n    folder: {dir}\n"),
    )?;
    server.spawn()?;
    Ok((server, folder))
}

fn volume(server: &TestServer, name: &str, more: &str) -> Result<String> {
    let text = format!("type: volume\nbackend: fake\nname: {name}\nregion: folder\n{more}\n");
    server.file(&format!("{name}.dstack.yml"), &text)
}

fn disks(folder: &tempfile::TempDir) -> usize {
    fs::read_dir(folder.path().join("volumes")).map_or(0, Iterator::count)
}

fn get(server: &TestServer, name: &str) -> Result<Value> {
    let (status, body) = server.post("/api/project/main/volumes/get", &json!({"name": name}))?;
    ensure!(status == 200, "{body}");
    Ok(body)
}

#[test]
fn a_volume_is_made_seen_and_deleted_even_if_the_server_dies_meanwhile() -> Result<()> {
    let (mut server, folder) = server()?;
    // The disk is made, and nobody hears of it.
    fs::write(folder.path().join("knobs.json"), r#"{"lost_answers": 1}"#)?;
    let path = volume(&server, "data", "size: 10GB")?;
    server.ok(&["apply", "-f", &path, "-y", "-d"])?;
    wait_for("the lost answer", PATIENCE, || {
        Ok((disks(&folder) == 1).then_some(()))
    })?;
    server.kill()?;
    server.spawn()?;
    wait_for("the volume", PATIENCE, || {
        Ok((get(&server, "data")?["status"] == "active").then_some(()))
    })
    .with_context(|| server.log())?;
    ensure!(disks(&folder) == 1, "the order was repeated, not doubled");
    let list: Value = serde_json::from_str(&server.ok(&["volume", "list", "--json"])?)?;
    let found = &list["volumes"][0];
    ensure!(
        found["name"] == "data"
            && found["provisioning_data"]["size_gb"] == 10
            && found["external"] == false
            && found["attachments"] == json!([]),
        "{list}"
    );
    let again = server.ok(&["apply", "-f", &path, "-y"])?;
    ensure!(again.contains("nothing changed"), "{again}");
    server.ok(&["volume", "delete", "data", "-y"])?;
    ensure!(disks(&folder) == 0, "the disk is gone with its volume");
    let events = server.post(
        "/api/events/list",
        &json!({"target_volumes": [found["id"]]}),
    )?;
    let text = events.1.to_string();
    for message in [
        "Volume created. Status: SUBMITTED",
        "Volume status changed SUBMITTED -> ACTIVE",
        "Volume marked for deletion",
        "Volume deleted",
    ] {
        ensure!(text.contains(message), "{message}: {text}");
    }
    Ok(())
}

#[test]
fn a_volume_that_cannot_be_made_says_why() -> Result<()> {
    let (server, folder) = server()?;
    fs::write(folder.path().join("knobs.json"), r#"{"no_volumes": true}"#)?;
    let path = volume(&server, "data", "size: 10GB")?;
    let output = server.cli(&["apply", "-f", &path, "-y"])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        !output.status.success() && said.contains("no more disks"),
        "{said}"
    );
    let task = "type: task\nname: t\ncommands: [\"true\"]\nvolumes: [\"data:/data\"]\n";
    let path = server.file("task.dstack.yml", task)?;
    let output = server.cli(&["apply", "-f", &path, "-y", "-d"])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(said.contains("volume data is failed"), "{said}");
    Ok(())
}
