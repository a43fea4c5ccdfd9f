//! Start of a machine: firewall, download of the shim, a loop that keeps it running.

use dstack_backend_types::CpuArchitecture;
use serde_json::json;

use super::{
    AgentUrls, REFERENCE_AGENT_URLS, RUNNER_HTTP_PORT, RUNNER_SSH_PORT, SHIM_HTTP_PORT,
    cloud_config,
};

/// Private networks, from which everything may come in by default: nodes of a cluster talk over any port.
pub const DEFAULT_FIREWALL_SUBNETS: &[&str] = &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"];

/// Seconds without a request of a server and without a task after which a machine of a cloud switches itself off: a server
/// that has died must not leave machines that cost money for ever.
pub const IDLE_SHUTDOWN_S: u32 = 30 * 60;

/// Docker's NVIDIA runtime loses its devices when systemd reloads, unless Docker keeps cgroups itself. Other settings of the
/// file stay; nothing here may end the boot.
const FIX_NVIDIA_CGROUPS: &str = concat!(
    r#"/bin/sh -c ' grep -q nvidia /etc/docker/daemon.json"#,
    r#" && ! grep -q native.cgroupdriver /etc/docker/daemon.json"#,
    r#" && jq '\''."exec-opts" = ((."exec-opts" // []) + ["native.cgroupdriver=cgroupfs"])'\''"#,
    r#" /etc/docker/daemon.json > /tmp/daemon.json"#,
    r#" && sudo mv /tmp/daemon.json /etc/docker/daemon.json && sudo service docker restart || true'"#,
);

/// What the shim of a machine is started with. Begin with [`ShimSetup::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShimSetup {
    /// Where the agents come from; `None` if the host brings them over SSH, as [`host::agent_urls`](crate::host::agent_urls)
    /// says it.
    pub urls: Option<AgentUrls>,
    /// Processor family of the machine.
    pub arch: CpuArchitecture,
    /// Public keys that may log in.
    pub authorized_keys: Vec<String>,
    /// Commands of the backend that come first.
    pub first: Vec<String>,
    /// Folder that holds the shim's folder `.dstack`; `/root`.
    pub home: String,
    /// Folder of the agents' programs; `/usr/local/bin`.
    pub bin: String,
    /// Further variables of the shim. They replace ours; `DSTACK_SHIM_IDLE_SHUTDOWN` of `0` keeps an idle machine on for a
    /// provider that does not stop charging for machines that are off.
    pub env: Vec<(String, String)>,
    /// Networks from which everything may come in; `None` leaves the firewall alone.
    pub firewall_subnets: Option<Vec<String>>,
    /// Whether every container is started privileged.
    pub privileged: bool,
    /// `TPU` on TPU machines.
    pub pjrt_device: Option<String>,
}

impl ShimSetup {
    /// The usual set-up.
    pub fn new(
        urls: impl Into<Option<AgentUrls>>,
        arch: CpuArchitecture,
        authorized_keys: Vec<String>,
    ) -> Self {
        Self {
            urls: urls.into(),
            arch,
            authorized_keys,
            first: Vec::new(),
            home: "/root".to_owned(),
            bin: "/usr/local/bin".to_owned(),
            env: Vec::new(),
            firewall_subnets: Some(
                DEFAULT_FIREWALL_SUBNETS
                    .iter()
                    .map(|subnet| (*subnet).to_owned())
                    .collect(),
            ),
            privileged: false,
            pjrt_device: None,
        }
    }

    /// Cloud-init document.
    pub fn user_data(&self) -> String {
        cloud_config(&json!({
            "runcmd": [["sh", "-c", self.commands().join(" && ")]],
            "ssh_authorized_keys": self.authorized_keys,
        }))
    }

    /// All commands, to be joined by ` && ` and run as root or by a user with sudo.
    pub fn commands(&self) -> Vec<String> {
        let mut commands = self.first.clone();
        commands.push(FIX_NVIDIA_CGROUPS.to_owned());
        commands.extend(self.firewall());
        commands.extend(self.download());
        commands.extend(
            self.shim_env()
                .iter()
                .map(|(name, value)| format!("export \"{name}={value}\"")),
        );
        commands.push(self.keep_running());
        commands
    }

    /// Variables of the shim, in the order in which they are set.
    pub fn shim_env(&self) -> Vec<(String, String)> {
        let own = [
            ("DSTACK_SHIM_HOME", self.working_dir()),
            ("DSTACK_SHIM_HTTP_PORT", SHIM_HTTP_PORT.to_string()),
            // Debug.
            ("DSTACK_SHIM_LOG_LEVEL", "5".to_owned()),
            (
                "DSTACK_RUNNER_DOWNLOAD_URL",
                self.urls
                    .as_ref()
                    .map_or_else(String::new, |urls| urls.runner_url(self.arch)),
            ),
            (
                "DSTACK_RUNNER_BINARY_PATH",
                format!("{}/dstack-runner", self.bin),
            ),
            ("DSTACK_RUNNER_HTTP_PORT", RUNNER_HTTP_PORT.to_string()),
            ("DSTACK_RUNNER_SSH_PORT", RUNNER_SSH_PORT.to_string()),
            ("DSTACK_RUNNER_LOG_LEVEL", "5".to_owned()),
        ];
        // Only the address of a download can be empty.
        let mut env: Vec<(String, String)> = own
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        if self.has_our_shim() {
            let limit = IDLE_SHUTDOWN_S.to_string();
            env.push(("DSTACK_SHIM_IDLE_SHUTDOWN".to_owned(), limit));
        }
        for (name, value) in &self.env {
            match env.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => known.clone_from(value),
                None => env.push((name.clone(), value.clone())),
            }
        }
        env
    }

    /// The reference's shim knows no idle guard.
    fn has_our_shim(&self) -> bool {
        let theirs = |urls: &AgentUrls| urls.shim == REFERENCE_AGENT_URLS.0;
        !self.urls.as_ref().is_some_and(theirs)
    }

    fn working_dir(&self) -> String {
        format!("{}/.dstack", self.home)
    }

    fn firewall(&self) -> Vec<String> {
        let Some(subnets) = &self.firewall_subnets else {
            return Vec::new();
        };
        // Images come with rules of their own, so everything is reset first.
        let before = [
            "ufw --force reset",
            "ufw default deny incoming",
            "ufw default allow outgoing",
            "ufw allow ssh",
        ];
        let allow = subnets
            .iter()
            .map(|subnet| format!("ufw allow from {subnet}"));
        let after = ["ufw --force enable".to_owned()];
        before
            .into_iter()
            .map(str::to_owned)
            .chain(allow)
            .chain(after)
            .collect()
    }

    fn download(&self) -> Vec<String> {
        let working_dir = format!("sudo mkdir {} -p", self.working_dir());
        let Some(urls) = &self.urls else {
            // The loop below finds the shim as soon as the host has brought it.
            return vec![working_dir];
        };
        let url = urls.shim_url(self.arch);
        let shim = format!("{}/dstack-shim", self.bin);
        vec![
            "dlpath=$(sudo mktemp -t dstack-shim.XXXXXXXXXX)".to_owned(),
            format!(
                "sudo curl -sS --compressed --connect-timeout 60 --max-time 240 --retry 1 --output \"$dlpath\" \"{url}\""
            ),
            format!("sudo mv \"$dlpath\" {shim}"),
            format!("sudo chmod +x {shim}"),
            // SELinux lets systemd run nothing that came from a temporary folder.
            format!("{{ sudo chcon system_u:object_r:bin_t:s0 {shim} 2>/dev/null || true; }}"),
            working_dir,
        ]
    }

    fn keep_running(&self) -> String {
        let mut shim = format!("{}/dstack-shim", self.bin);
        if self.privileged {
            shim.push_str(" --privileged");
        }
        if let Some(device) = &self.pjrt_device {
            shim.push_str(" --pjrt-device=");
            shim.push_str(device);
        }
        // The line breaks separate the commands of the loop.
        format!("nohup sh -c '\nwhile true; do\n{shim}\nsleep 3\ndone\n' &")
    }
}
