//! What jobs use of their machines.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One series, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// Name, such as `cpu_usage_percent` or `gpu_util_percent_gpu0`.
    pub name: String,
    /// When each value was taken.
    #[serde(with = "crate::time::list")]
    #[schemars(with = "Vec<crate::schema::Time>")]
    pub timestamps: Vec<Timestamp>,
    /// The values.
    pub values: Vec<serde_json::Value>,
}

/// Answer of `GET /api/project/{project}/metrics/job/{run}`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobMetrics {
    /// All series; none if there are fewer than two points.
    pub metrics: Vec<Metric>,
}

/// Query of `GET /api/project/{project}/metrics/job/{run}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JobMetricsQuery {
    /// The run; the newest one of the name if it is not given.
    #[schemars(with = "Option<crate::schema::Id>")]
    pub run_id: Option<Uuid>,
    /// Replica.
    pub replica_num: u32,
    /// Job of the replica.
    pub job_num: u32,
    /// At most this many values a series.
    pub limit: u32,
    /// Only values taken later.
    #[serde(with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub after: Option<Timestamp>,
    /// Only values taken earlier.
    #[serde(with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub before: Option<Timestamp>,
}

impl Default for JobMetricsQuery {
    fn default() -> Self {
        Self {
            run_id: None,
            replica_num: 0,
            job_num: 0,
            limit: 1,
            after: None,
            before: None,
        }
    }
}
