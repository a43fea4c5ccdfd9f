//! The official client, unmodified, at our server: its commands as a user types them, its Python interface section by
//! section, and what it sees of backends that it does not know.

mod commands;
mod sections;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::{Runtime, task};
use dstack_test_support::server::{ADMIN_TOKEN, TestServer, bin_dir, wait_for};

const PATIENCE: Duration = Duration::from_secs(120);

/// Where `cargo xtask test` keeps the official client: in the folder that is built into.
fn installed(program: &str) -> Result<PathBuf> {
    let bin = bin_dir();
    let mut found = bin
        .ancestors()
        .map(|dir| dir.join("official-clients/bin").join(program));
    found
        .find(|program| program.exists())
        .context("no official client; `cargo xtask test` installs it")
}

/// Runs a script of `tests/official` against the server.
fn script(server: &TestServer, name: &str) -> Result<()> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").context("run by cargo")?;
    let script = Path::new(&root).join("tests/official").join(name);
    let home = tempfile::tempdir()?;
    let output = Command::new(installed("python")?)
        .arg(script)
        .args([&server.url(), ADMIN_TOKEN])
        // It makes a folder at home, and none beside the script.
        .env("HOME", home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()?;
    ensure!(
        output.status.success(),
        "{name}: {}{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        server.log()
    );
    Ok(())
}

/// A server whose project `main` has the local and the fake backend.
fn both_backends(runtime: &str, cloud: &Path, env: &[(&str, &str)]) -> Result<TestServer> {
    let dir = bin_dir().to_string_lossy().into_owned();
    let mut all = vec![("DSTACK_PLUGIN_DIR", dir.as_str())];
    all.extend(env);
    let mut server = TestServer::prepare(&all)?;
    fs::create_dir_all(server.home().join(".dstack/server"))?;
    fs::write(
        server.home().join(".dstack/server/config.yml"),
        format!(
            "projects:\n- name: main\n  backends:\n  - type: local\n    runtime: {runtime}\n  - type: fake\n    folder: {}\nencryption:\n  keys: []\n",
            cloud.display()
        ),
    )?;
    server.spawn()?;
    Ok(server)
}

#[test]
fn the_official_client_reads_what_comes_from_backends_that_it_does_not_know() -> Result<()> {
    let cloud = tempfile::tempdir()?;
    let mut server = both_backends("process", cloud.path(), &[])?;
    // A machine of each: one with a run, and one that nobody can reach.
    for (name, backend, nodes) in [("here", "local", "0..1"), ("there", "fake", "1")] {
        let fleet = format!("type: fleet\nname: {name}\nnodes: {nodes}\nbackends: [{backend}]\n");
        let path = server.file(&format!("{name}.dstack.yml"), &fleet)?;
        server.ok(&["apply", "-f", &path, "-y", "-d"])?;
    }
    let path = server.file(
        "run.dstack.yml",
        &task("here", Runtime::Process, &["sleep 600"]),
    )?;
    server.ok(&["apply", "-f", &path, "-y", "-d", "--fleet", "here"])?;
    wait_for("the run", Duration::from_secs(60), || {
        Ok((server.run("here")?["status"] == "running").then_some(()))
    })
    .with_context(|| server.log())?;
    wait_for("the machine of the cloud", Duration::from_secs(60), || {
        let fleets = server.ok(&["fleet", "get", "there", "--json"])?;
        Ok(fleets.contains("\"backend\"").then_some(()))
    })?;

    script(&server, "backends.py")?;
    server.stop()?;
    Ok(())
}
