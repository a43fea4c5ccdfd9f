//! End-to-end tests with the real binaries: server, plugin, shim, runner, client.
//!
//! The tests are in `tests/it`; this library holds what several of them share. Ships nowhere.

pub mod own_hosts;
pub mod slurm_bed;
mod task;
pub mod web;

use anyhow::Result;
use dstack_test_support::server::TestServer;

pub use task::task;

/// Which runtime the local backend uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// Jobs are processes of this machine.
    Process,
    /// Jobs are containers.
    Docker,
}

impl Runtime {
    const fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Docker => "docker",
        }
    }
}

/// A server whose project `main` has the local backend with this runtime, and a fleet that may hold one machine.
///
/// # Errors
/// If the server does not start or refuses the fleet.
pub fn server(runtime: Runtime) -> Result<TestServer> {
    let mut server = prepared(runtime)?;
    server.spawn()?;
    fleet(&server, 1)?;
    Ok(server)
}

/// The same, not started yet and without the fleet.
///
/// # Errors
/// If no folder can be made.
pub fn prepared(runtime: Runtime) -> Result<TestServer> {
    prepared_with(runtime, &[])
}

/// The same with these variables set.
///
/// # Errors
/// If no folder can be made.
pub fn prepared_with(runtime: Runtime, env: &[(&str, &str)]) -> Result<TestServer> {
    let server = TestServer::prepare(env)?;
    std::fs::create_dir_all(server.home().join(".dstack/server"))?;
    let config = format!(
        "projects:\n- name: main\n  backends:\n  - type: local\n    runtime: {}\nencryption:\n  keys: []\n",
        runtime.word()
    );
    std::fs::write(server.home().join(".dstack/server/config.yml"), config)?;
    Ok(server)
}

/// Applies a fleet `pool` of `0..max` machines.
///
/// # Errors
/// If the server refuses it.
pub fn fleet(server: &TestServer, max: u32) -> Result<()> {
    let path = server.file(
        "fleet.dstack.yml",
        &format!("type: fleet\nname: pool\nnodes: 0..{max}\nidle_duration: 10m\n"),
    )?;
    server.ok(&["apply", "-f", &path, "-y", "-d"])?;
    Ok(())
}
