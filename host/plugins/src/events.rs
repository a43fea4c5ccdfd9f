//! What happens to plugins, for whoever keeps a record of it.

use std::time::Duration;
use tokio::sync::mpsc;

/// Something happened to a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginEvent {
    /// The backend's name.
    pub backend: String,
    /// What.
    pub what: What,
}

/// What can happen to a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It is loaded for the first time.
    Loaded {
        /// The plugin's version.
        version: String,
    },
    /// It could not be loaded.
    Failed {
        /// Why.
        reason: String,
    },
    /// Its process ended without being told to.
    Died {
        /// Such as `died of signal 11 (SIGSEGV)`.
        how: String,
    },
    /// A process took the place of one that ended.
    Respawned,
    /// It failed so often that calls are refused.
    Refusing {
        /// For so long.
        pause: Duration,
    },
    /// It answers again.
    Recovered,
    /// A new file took the place of the one that was used.
    Replaced {
        /// The new version.
        version: String,
        /// Whether the new file is used; if not, the host must be restarted for it.
        is_used: bool,
    },
    /// The lock file of its folder, or a part of it, is not used, so it does not say that this backend is trusted.
    LockRefused {
        /// The lock file, why, and what to do.
        problem: String,
    },
    /// Its file is gone.
    Removed,
}

impl std::fmt::Display for PluginEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let backend = &self.backend;
        match &self.what {
            What::Loaded { version } => write!(f, "Backend {backend} {version} loaded"),
            What::Failed { reason } => write!(f, "Backend {backend} cannot be loaded: {reason}"),
            What::Died { how } => write!(f, "Process of the backend {backend} {how}"),
            What::Respawned => write!(f, "Process of the backend {backend} started again"),
            What::Refusing { pause } => write!(
                f,
                "Backend {backend} fails again and again; calls are refused for {} s",
                pause.as_millis().div_ceil(1000)
            ),
            What::Recovered => write!(f, "Backend {backend} answers again"),
            What::Replaced {
                version,
                is_used: true,
            } => {
                write!(f, "Backend {backend} replaced by version {version}")
            }
            What::Replaced {
                version,
                is_used: false,
            } => write!(
                f,
                "Backend {backend} has a new file of version {version}, which is used after a restart of the server"
            ),
            What::LockRefused { problem } => {
                write!(f, "Backend {backend} is not known to be trusted: {problem}")
            }
            What::Removed => write!(f, "Backend {backend} removed: its file is gone"),
        }
    }
}

/// Where events go. What nobody takes in time is dropped: a record must not hold up a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events(pub(crate) Option<mpsc::Sender<PluginEvent>>);

impl Events {
    pub(crate) fn tell(&self, event: PluginEvent) {
        if let Some(sender) = &self.0
            && let Err(error) = sender.try_send(event)
        {
            tracing::debug!(%error, "an event of a plugin was dropped");
        }
    }
}
