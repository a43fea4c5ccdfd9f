//! Whole lives driven by the clients of the official server, which come from PyPI.

use std::path::PathBuf;
use std::process::Command;

use crate::docker::{require_engine, static_runner};
use crate::support::{Shim, free_port};

/// Where `cargo xtask test` keeps the clients: in the folder that is built into.
fn python() -> PathBuf {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_dstack-shim"));
    let found = program
        .ancestors()
        .map(|dir| dir.join("official-clients/bin/python"))
        .find(|python| python.exists());
    found.expect("the official clients; `cargo xtask test` installs them")
}

/// Port of the runner in containers with a network of their own.
const RUNNER_PORT: &str = "10999";

fn drive(mode: &str, shim: &mut Shim, address: &str, runner_port: &str) {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let output = Command::new(python())
        .arg(root.join("tests/official/lifecycle.py"))
        .args([mode, address, runner_port])
        // The clients are part of a server, which would otherwise make its folder at home.
        .env("HOME", shim.home.path())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}{}\n{}",
        text(&output.stdout),
        text(&output.stderr),
        shim.log()
    );
    assert_eq!(shim.wait(), Some(0));
}

#[test]
fn official_clients_drive_containers_with_the_machines_network() {
    require_engine();
    let (http, ssh) = (free_port(), free_port());
    let mut shim = Shim::new("docker", &static_runner());
    // With the machine's network a container has the machine's ports.
    shim.flags = ["--runner-http-port", &http, "--runner-ssh-port", &ssh]
        .map(str::to_owned)
        .to_vec();
    shim.launch();
    let socket = shim.socket().display().to_string();
    drive("host", &mut shim, &socket, &http);
}

#[test]
fn official_clients_drive_containers_with_a_bridge() {
    require_engine();
    let port = free_port();
    let mut shim = Shim::new("docker", &static_runner());
    // The port that the official server uses opens beside the socket, because it is asked for.
    shim.flags = vec!["--shim-http-port".to_owned(), port.clone()];
    shim.launch();
    drive("bridge", &mut shim, &port, RUNNER_PORT);
}

#[test]
fn official_clients_drive_processes() {
    let mut shim = Shim::start("process", &static_runner());
    let socket = shim.socket().display().to_string();
    drive("process", &mut shim, &socket, RUNNER_PORT);
}
