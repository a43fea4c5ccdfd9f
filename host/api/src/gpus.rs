//! Offers grouped by GPU. Unlike elsewhere, null fields are left out.

pub mod groups;

use dstack_backend_types::BackendType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::runs::{RunSpec, is_false};
use crate::words::wire_enum;

wire_enum! {
    /// What to group by beside the GPU.
    pub enum GpuGroupBy {
        /// Backend.
        Backend = "backend",
        /// Region; only together with the backend.
        Region = "region",
        /// Number of GPUs.
        Count = "count",
    }
}

/// `POST /api/project/{project}/gpus/list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListGpusRequest {
    /// What the offers must satisfy.
    pub run_spec: RunSpec,
    /// Grouping beside the GPU.
    #[serde(default)]
    pub group_by: Option<Vec<GpuGroupBy>>,
    /// Dearest first. Left out when unset, since older servers do not know it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reverse: bool,
    /// Whole machines instead of shares.
    #[serde(default)]
    pub full_offers: bool,
    /// Only what is free right now on existing machines.
    #[serde(default)]
    pub unallocated_resources: bool,
}

/// Smallest and largest value of a group.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Span<T> {
    /// Smallest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<T>,
    /// Largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<T>,
}

/// Offers with the same GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuGroup {
    /// GPU's name.
    pub name: String,
    /// Memory of one GPU.
    pub memory_mib: u64,
    /// Maker.
    pub vendor: String,
    /// Availabilities found.
    pub availability: Vec<String>,
    /// `spot`, `on-demand`.
    pub spot: Vec<String>,
    /// GPUs per machine.
    pub count: Span<u32>,
    /// US dollars per hour and GPU.
    pub price: Span<f64>,
    /// US dollars per hour and machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer_price: Option<Span<f64>>,
    /// Backends, when not grouped by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::BackendType>>")]
    pub backends: Option<Vec<BackendType>>,
    /// Backend, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<crate::schema::BackendType>")]
    pub backend: Option<BackendType>,
    /// Regions, when grouped by backend only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<Vec<String>>,
    /// Region, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// Offers without GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuGroup {
    /// Architectures.
    pub cpu_arch: Vec<String>,
    /// CPUs per machine.
    pub count: Span<u32>,
    /// Memory per machine.
    pub memory_mib: Span<u64>,
    /// US dollars per hour.
    pub price: Span<f64>,
    /// Availabilities found.
    pub availability: Vec<String>,
    /// `spot`, `on-demand`.
    pub spot: Vec<String>,
    /// Backends, when not grouped by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::BackendType>>")]
    pub backends: Option<Vec<BackendType>>,
    /// Backend, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<crate::schema::BackendType>")]
    pub backend: Option<BackendType>,
    /// Regions, when grouped by backend only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<Vec<String>>,
    /// Region, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// Answer of `gpus/list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListGpusResponse {
    /// Groups with GPUs.
    pub gpus: Vec<GpuGroup>,
    /// Groups without, when no GPU was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<CpuGroup>>,
}
