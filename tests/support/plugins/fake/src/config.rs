//! The configuration, and the knobs that a test turns while things run.

use dstack_backend_sdk::{BackendError, Configurator, ErrorKind, Secret, schemars};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `{type: fake, folder: /tmp/x}`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct FakeConfig {
    /// `fake`.
    #[serde(rename = "type", default = "fake")]
    pub kind: String,
    /// Where the cloud is.
    pub folder: PathBuf,
    /// A credential, for tests of what happens to credentials; `wrong` is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret<String>>,
}

fn fake() -> String {
    "fake".to_owned()
}

/// Checks the token and the folder.
#[derive(Debug, Default)]
pub struct FakeConfigurator;

impl Configurator for FakeConfigurator {
    type Config = FakeConfig;

    fn check(&self, config: &FakeConfig) -> Result<(), BackendError> {
        if config
            .token
            .as_ref()
            .is_some_and(|token| token.expose() == "wrong")
        {
            return Err(BackendError::auth("the token is wrong", ["token"]));
        }
        if !config.folder.is_absolute() {
            return Err(BackendError::invalid(format!(
                "folder {} is not absolute",
                config.folder.display()
            )));
        }
        Ok(())
    }
}

/// How the cloud behaves. All fields may be left out of `knobs.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Knobs {
    /// How many offers there are: even ones without, odd ones with a GPU.
    pub offers: u32,
    /// `get_offers` fails with this kind.
    pub offers_error: Option<ErrorKind>,
    /// Region of the offers; `folder` by default.
    pub region: Option<String>,
    /// Every call takes so long.
    pub latency_ms: u64,
    /// No machine can be made.
    pub no_capacity: bool,
    /// None of these types can be made.
    pub no_capacity_for: Vec<String>,
    /// At most so many machines.
    pub quota: usize,
    /// So many creations make the machine and then fail with `transport`.
    pub lost_answers: u32,
    /// So many looks find no address yet.
    pub looks_until_ready: u32,
    /// The machines' address; this machine by default.
    pub hostname: Option<String>,
    /// The machines' SSH port.
    pub ssh_port: u16,
    /// The machines' user; `root` by default.
    pub username: Option<String>,
    /// No volume can be made.
    pub no_volumes: bool,
    /// A volume stays on its machine for so many detachments; force takes it off.
    pub slow_detachments: u32,
    /// What attachments say the device is; must be there for a shim to mount it.
    pub device: Option<String>,
    /// So many terminations of a machine answer `not_yet_terminated`.
    pub slow_terminations: u32,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            offers: 4,
            offers_error: None,
            region: None,
            latency_ms: 0,
            no_capacity: false,
            no_capacity_for: Vec::new(),
            quota: usize::MAX,
            lost_answers: 0,
            looks_until_ready: 0,
            hostname: None,
            ssh_port: 22,
            username: None,
            no_volumes: false,
            slow_detachments: 0,
            device: None,
            slow_terminations: 0,
        }
    }
}
