//! Where agents are downloaded from.

use dstack_backend_types::CpuArchitecture;

/// Addresses of the agents, with `{version}` and `{arch}` (`amd64`, `arm64`) to fill in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentUrls {
    /// Address of the shim.
    pub shim: String,
    /// Address of the runner.
    pub runner: String,
    /// Version of both.
    pub version: String,
}

/// Templates of the reference system's public downloads: shim, runner.
pub const REFERENCE_AGENT_URLS: (&str, &str) = (
    "https://dstack-runner-downloads.s3.eu-west-1.amazonaws.com/{version}/binaries/dstack-shim-linux-{arch}",
    "https://dstack-runner-downloads.s3.eu-west-1.amazonaws.com/{version}/binaries/dstack-runner-linux-{arch}",
);

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
