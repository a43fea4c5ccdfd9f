//! Host services, asked for through the border by the plugin `probe`.

mod http;
mod http_options;
mod others;
mod server;
mod streams;
mod tape;

use crate::place::{folder, put};
use dstack_backend_types::{BackendError, ErrorKind, methods::HealthRequest};
use dstack_plugins::{CallError, HttpConfig, HttpProxy, Plugins, PluginsConfig, write_lock};
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);

/// A host with the probe in process.
pub(crate) struct Probe {
    pub(crate) plugins: Plugins,
    pub(crate) folder: TempDir,
}

impl Probe {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut PluginsConfig)) -> Self {
        let folder = folder();
        put(folder.path(), "dstack-backend-probe", "probe");
        write_lock(folder.path()).unwrap();
        let mut config = PluginsConfig::new(vec![folder.path().to_owned()]);
        config.http = HttpConfig {
            proxy: HttpProxy::None,
            tape: None,
        };
        change(&mut config);
        Self {
            plugins: Plugins::load(config),
            folder,
        }
    }

    /// The results of all steps.
    pub(crate) async fn run(&self, steps: Value) -> Vec<Value> {
        self.run_within(steps, LONG).await.unwrap()
    }

    pub(crate) async fn run_within(
        &self,
        steps: Value,
        limit: Duration,
    ) -> Result<Vec<Value>, CallError> {
        self.open_and_run(json!({"type": "probe", "steps": steps}), limit)
            .await
    }

    pub(crate) async fn open_and_run(
        &self,
        config: Value,
        limit: Duration,
    ) -> Result<Vec<Value>, CallError> {
        let backend = self.plugins.backend("project-1", "probe", &config).await?;
        let reply = backend.call_within(&HealthRequest {}, limit).await?;
        Ok(serde_json::from_str(&reply.message.unwrap()).unwrap())
    }

    /// The result of one step.
    pub(crate) async fn one(&self, step: Value) -> Value {
        self.run(json!([step])).await.remove(0)
    }

    /// The error of one step.
    pub(crate) async fn error(&self, step: Value) -> BackendError {
        error_of(&self.one(step).await)
    }
}

pub(crate) fn error_of(result: &Value) -> BackendError {
    serde_json::from_value(result["error"].clone())
        .unwrap_or_else(|_| panic!("no error but {result}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_of_a_call_nothing_that_waits_is_answered() {
    let probe = Probe::new();
    let config = json!({"type": "probe", "is_at_open": true, "steps": [
        {"do": "http", "url": "http://127.0.0.1:1/"},
        {"do": "catalog", "provider": "acme"},
        {"do": "declare", "provider_ref": "r", "kind": "disk", "name": "d"},
        {"do": "environment", "names": ["PROBE_TOKEN"]},
        {"do": "sleep", "ms": 1},
        {"do": "describe"},
    ]});
    let results = probe.open_and_run(config, LONG).await.unwrap();
    for result in &results[..5] {
        let error = error_of(result);
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(
            error.message.contains("the id of a running call"),
            "{error}"
        );
    }
    assert_eq!(results[5]["services"]["1"], 1);
}
