//! What `dstack backend list` shows.

use crate::{config::Isolation, stats::PluginStats};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One file of a plugin folder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PluginStatus {
    /// The manifest's name; the file's name if it has no readable manifest.
    pub name: String,
    /// The plugin's version, if its manifest is readable.
    pub version: Option<String>,
    /// The version of the SDK it was built with.
    pub sdk: Option<String>,
    /// Capability words, those that every backend has not among them.
    pub capabilities: Vec<String>,
    /// SHA-256 of the file, lower-case hex.
    pub hash: Option<String>,
    /// Where its code runs, or would run.
    pub isolation: Option<Isolation>,
    /// How it is.
    pub state: PluginState,
    /// Why it is not available, or what is to be done about it.
    pub error: Option<String>,
    /// Where it lies.
    pub path: PathBuf,
    /// What was counted of it; `None` for what cannot be called.
    pub stats: Option<PluginStats>,
}

/// How a plugin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginState {
    /// Usable, and not loaded yet.
    Available,
    /// In use.
    Loaded,
    /// Not a plugin, or not allowed; see the error.
    Refused,
    /// An earlier folder has the name.
    Shadowed,
    /// Its file was there and is gone.
    Removed,
    /// Loading failed.
    Failed,
    /// Timed out or died several times in a row; tried again after a pause.
    Unhealthy,
    /// Lost too many threads; only a restart of the host, or running it in a child process, helps.
    Unavailable,
}
