//! A plugin folder of a test.

use crate::built::plugins;
use dstack_backend_types::{
    InstanceConfiguration, Requirements, methods::GetOffersRequest, resources::ResourcesSpec,
};
use dstack_plugins::{
    Backend, Isolation, Limits, PluginEvent, Plugins, PluginsConfig, What, WorkerProgram,
};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

/// Copies a built plugin into `folder` as `<name>.so`.
pub(crate) fn put(folder: &Path, package: &str, name: &str) -> PathBuf {
    let path = folder.join(format!("{name}.so"));
    fs::copy(&plugins(&[package])[0], &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    path
}

/// A folder that only we may write.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The program that plugins of these tests run in.
pub(crate) fn worker() -> WorkerProgram {
    WorkerProgram {
        program: env!("CARGO_BIN_EXE_dstack-plugin-worker").into(),
        args: Vec::new(),
    }
}

/// A configuration for a folder.
pub(crate) fn config_of(folder: &Path) -> PluginsConfig {
    let mut config = PluginsConfig::new(vec![folder.to_owned()]);
    config.worker = worker();
    config
}

/// A host with the misbehaving plugin.
pub(crate) struct Bad {
    pub(crate) plugins: Plugins,
    pub(crate) folder: TempDir,
    pub(crate) events: Receiver<PluginEvent>,
}

impl Bad {
    /// In process.
    pub(crate) fn new(limits: Limits) -> Self {
        Self::with(limits, Isolation::InProcess)
    }

    pub(crate) fn with(limits: Limits, isolation: Isolation) -> Self {
        let folder = folder();
        put(folder.path(), "dstack-backend-misbehaving", "bad");
        let (sender, events) = tokio::sync::mpsc::channel(256);
        let mut config = config_of(folder.path());
        config.isolation.insert("misbehaving".to_owned(), isolation);
        config.limits = limits;
        config.events = Some(sender);
        Self {
            plugins: Plugins::load(config),
            folder,
            events,
        }
    }

    pub(crate) async fn open(&self, mode: &str) -> Backend {
        self.plugins
            .open("misbehaving", &self.config(mode))
            .await
            .unwrap()
    }

    pub(crate) fn config(&self, mode: &str) -> Value {
        json!({"type": "misbehaving", "mode": mode, "folder": self.folder.path()})
    }

    /// Ends what blocks.
    pub(crate) fn release(&self) {
        fs::write(self.folder.path().join("release"), "").unwrap();
    }

    /// What was told so far.
    pub(crate) fn told(&mut self) -> Vec<What> {
        std::iter::from_fn(|| self.events.try_recv().ok())
            .map(|event| event.what)
            .collect()
    }
}

/// Polls until it holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The order for one instance.
pub(crate) fn instance_config(provider_ref: &str) -> InstanceConfiguration {
    InstanceConfiguration {
        project_name: "main".to_owned(),
        instance_name: "cloud-0".to_owned(),
        user: "admin".to_owned(),
        ssh_keys: Vec::new(),
        instance_id: None,
        volumes: None,
        reservation: None,
        tags: None,
        provider_ref: Some(provider_ref.to_owned()),
    }
}

/// Asks for all offers.
pub(crate) fn all_offers() -> GetOffersRequest {
    GetOffersRequest {
        requirements: Requirements::of(ResourcesSpec::unconstrained()),
        full_offers: false,
        unallocated_resources: false,
        image: None,
    }
}
