//! The configuration, its check and its view without credentials.

use std::collections::BTreeMap;

use dstack_backend_sdk::config;
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::schemars::{self, JsonSchema};
use dstack_backend_sdk::serde_json::{Map, Value, json};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::gpu;

/// What stands in `config.yml` under `type: slurm`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SlurmConfig {
    /// The clusters; each is a region.
    pub(crate) clusters: Vec<ClusterConfig>,
}

/// One cluster, reached at its login node.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ClusterConfig {
    /// The region's name in offers.
    pub(crate) name: String,
    /// Partitions with GPUs, and which GPUs these are. Partitions that are not named here are not used with GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gpu_partitions: Option<Vec<GpuPartitions>>,
    /// Partitions for jobs without GPUs. Unless said, all that are not in `gpu_partitions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_partitions: Option<Vec<String>>,
    /// Name or address of the login node. Your own computer reaches it by the same name when it attaches to a run.
    pub(crate) hostname: String,
    /// Port of its SSH server; 22 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    /// Who logs in there and owns the jobs.
    pub(crate) user: String,
    /// The key of that user.
    #[schemars(extend("writeOnly" = true))]
    pub(crate) private_key: PrivateKey,
    /// The account that jobs are charged to; the user's default account unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
    /// The quality of service that jobs ask for; the default of user and partition unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) qos: Option<String>,
    /// Limit of a job's run time as Slurm writes it, e.g. `2-00:00:00`; the partition's default unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time_limit: Option<String>,
    /// How many seconds a job may wait in the queue until another offer is tried, 1 to 100; 60 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue_wait_seconds: Option<u32>,
}

/// Partitions whose nodes all have the same GPUs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GpuPartitions {
    /// `[vendor:]name[:memory]`, e.g. `H100`, `A100:40GB`, `amd:MI300X`.
    pub(crate) gpu: String,
    /// Names of partitions.
    pub(crate) partitions: Vec<String>,
}

/// A private key without a passphrase.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PrivateKey {
    /// In `config.yml`: the file to read it from.
    #[serde(default)]
    pub(crate) path: String,
    /// The key itself, in OpenSSH or PEM form.
    pub(crate) content: Secret<String>,
}

impl SlurmConfig {
    /// Refuses what contradicts itself. Asks nobody.
    pub(crate) fn settle(&self) -> Result<Vec<Cluster>> {
        if self.clusters.is_empty() {
            return Err(BackendError::invalid("clusters: name at least one"));
        }
        let mut clusters: Vec<Cluster> = Vec::new();
        for (number, config) in self.clusters.iter().enumerate() {
            if config.name.trim().is_empty() {
                return Err(BackendError::invalid(format!(
                    "clusters.{number}.name: must not be empty"
                )));
            }
            if clusters.iter().any(|known| known.name() == config.name) {
                return Err(BackendError::invalid(format!(
                    "clusters.{number}.name: there are two clusters named {}",
                    config.name
                )));
            }
            // A call that starts a job must end within 120 s.
            if !(1..=100).contains(&config.queue_wait_seconds.unwrap_or(60)) {
                return Err(BackendError::invalid(format!(
                    "clusters.{number}.queue_wait_seconds: must be 1 to 100"
                )));
            }
            clusters.push(Cluster::new(number, config, gpus(number, config)?));
        }
        Ok(clusters)
    }
}

/// Which GPUs a partition has, by the partition's name.
fn gpus(number: usize, config: &ClusterConfig) -> Result<BTreeMap<String, gpu::Kind>> {
    let mut all = BTreeMap::new();
    for (place, entry) in config.gpu_partitions.iter().flatten().enumerate() {
        let at = format!("clusters.{number}.gpu_partitions.{place}");
        let kind = gpu::Kind::parse(&entry.gpu)
            .map_err(|why| BackendError::invalid(format!("{at}.gpu: {why}")))?;
        for partition in &entry.partitions {
            if all.insert(partition.clone(), kind.clone()).is_some() {
                return Err(BackendError::invalid(format!(
                    "{at}.partitions: partition {partition} stands there twice; its nodes have one sort of GPU"
                )));
            }
        }
    }
    Ok(all)
}

/// Checks, stores and shows configurations.
#[derive(Debug, Default)]
pub(crate) struct SlurmConfigurator;

impl Configurator for SlurmConfigurator {
    type Config = SlurmConfig;

    fn check(&self, config: &SlurmConfig) -> Result<()> {
        for cluster in config.settle()? {
            cluster.ping()?;
        }
        Ok(())
    }

    /// Of each cluster its name and partitions: where it is and who logs in is for administrators.
    fn public_view(&self, request: &PublicViewRequest) -> Result<PublicViewReply> {
        let whole = config::with_creds(&request.record).0;
        let clusters = whole.get("clusters").and_then(Value::as_array);
        let shown: Vec<Value> = clusters.into_iter().flatten().map(shown).collect();
        let mut config = Map::new();
        if let Some(kind) = whole.get("type") {
            config.insert("type".to_owned(), kind.clone());
        }
        config.insert("clusters".to_owned(), Value::Array(shown));
        Ok(PublicViewReply { config })
    }
}

fn shown(cluster: &Value) -> Value {
    let part = |key: &str| cluster.get(key).cloned().unwrap_or_default();
    json!({
        "name": part("name"),
        "gpu_partitions": part("gpu_partitions"),
        "cpu_partitions": part("cpu_partitions"),
    })
}
