//! What a new machine or container is told to do at boot.
//!
//! | text | for |
//! |---|---|
//! | [`ShimSetup::user_data`] | machines with cloud-init |
//! | [`ShimSetup::commands`] | machines that are set up over SSH |
//! | [`ContainerSetup`] | containers: the runner becomes the entry point |
//! | [`gateway_user_data`] | gateway machines |
//!
//! Where the agents come from is an input ([`AgentUrls`]): the host decides it. A document starts with the line
//! `#cloud-config`; the rest is JSON, which is YAML as well and needs no quoting rules of its own.

mod agents;
mod container;
mod shim;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

pub use agents::{AgentUrls, REFERENCE_AGENT_URLS};
pub use container::{ContainerSetup, container_agent_urls, container_commands, quote};
pub use shim::{DEFAULT_FIREWALL_SUBNETS, IDLE_SHUTDOWN_S, ShimSetup};

/// Port of the shim's API.
pub const SHIM_HTTP_PORT: u16 = 10998;
/// Port of the runner's API.
pub const RUNNER_HTTP_PORT: u16 = 10999;
/// Port of the job's SSH server.
pub const RUNNER_SSH_PORT: u16 = 10022;

/// A cloud-init document.
pub fn cloud_config(config: &Value) -> String {
    format!("#cloud-config\n{config:#}\n")
}

/// Document of a gateway machine: web server, certificate client, and the gateway's package in two environments, so that
/// an update can be prepared beside the running one. `package` is what `pip install` is given.
pub fn gateway_user_data(authorized_key: &str, package: &str, systemd_module: &str) -> String {
    const HOME: &str = "/home/ubuntu/dstack";
    let install = [
        format!("mkdir -p {HOME}"),
        format!("python3 -m venv {HOME}/blue"),
        format!("python3 -m venv {HOME}/green"),
        format!("{HOME}/blue/bin/pip install '{package}'"),
        format!("sudo {HOME}/blue/bin/python -m {systemd_module} install --run"),
    ];
    cloud_config(&json!({
        "package_update": true,
        "packages": ["nginx", "python3.10-venv"],
        "snap": {"commands": [["install", "--classic", "certbot"]]},
        "runcmd": [
            ["ln", "-s", "/snap/bin/certbot", "/usr/bin/certbot"],
            ["su", "ubuntu", "-c", install.join(" && ")],
        ],
        "ssh_authorized_keys": [authorized_key],
    }))
}
