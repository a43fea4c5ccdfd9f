//! What a job needs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::resources::ResourcesSpec;

/// What a job or an instance of a fleet needs. Fields are those of the HTTP API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Requirements {
    /// Hardware.
    pub resources: ResourcesSpec,
    /// US dollars an hour at most.
    #[serde(default)]
    pub max_price: Option<f64>,
    /// `true` spot only, `false` on-demand only, `None` both.
    #[serde(default)]
    pub spot: Option<bool>,
    /// Reserved capacity to use.
    #[serde(default)]
    pub reservation: Option<String>,
    /// Whether nodes must reach each other.
    #[serde(default)]
    pub multinode: Option<bool>,
    /// Options for single backends, each an object with a `type`.
    #[serde(default)]
    pub backend_options: Option<Vec<Value>>,
}

impl Requirements {
    /// Only hardware, nothing else is asked for.
    pub fn of(resources: ResourcesSpec) -> Self {
        Self {
            resources,
            max_price: None,
            spot: None,
            reservation: None,
            multinode: None,
            backend_options: None,
        }
    }

    /// The options for one backend, if there are any.
    pub fn options_for(&self, backend: &str) -> Option<&Value> {
        self.backend_options
            .iter()
            .flatten()
            .find(|options| options.get("type").and_then(Value::as_str) == Some(backend))
    }
}
