//! Where machines download the agents from.

use crate::instances::CpuArchitecture;
use serde::{Deserialize, Serialize};

/// Addresses of the agents, with `{version}` and `{arch}` (`amd64`, `arm64`) to fill in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentUrls {
    /// Address of the shim.
    pub shim: String,
    /// Address of the runner.
    pub runner: String,
    /// Version of both.
    pub version: String,
}

impl AgentUrls {
    /// Address of the shim for a processor family.
    pub fn shim_url(&self, arch: CpuArchitecture) -> String {
        self.fill(&self.shim, arch)
    }

    /// Address of the runner for a processor family.
    pub fn runner_url(&self, arch: CpuArchitecture) -> String {
        self.fill(&self.runner, arch)
    }

    fn fill(&self, template: &str, arch: CpuArchitecture) -> String {
        template
            .replace("{version}", &self.version)
            .replace("{arch}", arch.download_name())
    }
}
