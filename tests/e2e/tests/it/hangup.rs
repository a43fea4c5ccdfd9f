//! `SIGHUP` looks through plugin folders and sections again, like `dstack backend reload`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_test_support::server::{TestServer, wait_for};

use crate::plugins::{ask_offers, configure, plugin, plugin_folder};

#[test]
fn a_corrected_section_is_used_after_a_hangup_signal() -> Result<()> {
    let folder = plugin_folder(&["local", "fake"])?;
    let dir = folder.path().to_string_lossy().into_owned();
    let mut server = TestServer::prepare(&[("DSTACK_PLUGIN_DIR", &dir)])?;
    let section = |key: &str| {
        format!("projects:\n- name: main\n  backends:\n  - type: fake\n    {key}: {dir}\n")
    };
    configure(&server, &section("foldr"))?;
    server.spawn()?;
    configure(&server, &section("folder"))?;
    let calls = || -> Result<u64> {
        let calls = plugin(&server, "fake")?["load"]["calls"].as_u64();
        calls.context("calls are counted")
    };
    ask_offers(&server, "main")?;
    let before = calls()?;
    ask_offers(&server, "main")?;
    ensure!(calls()? == before, "the section is wrong, and yet used");

    let pid = server.pid().context("the server runs")?.to_string();
    let sent = Command::new("kill").args(["-HUP", &pid]).status()?;
    ensure!(sent.success(), "kill: {sent}");
    wait_for(
        "a call of the corrected section",
        Duration::from_secs(20),
        || {
            ask_offers(&server, "main")?;
            Ok((calls()? > before).then_some(()))
        },
    )?;
    let log = server.log();
    ensure!(server.pid().is_some(), "the server ended:\n{log}");
    Ok(())
}
