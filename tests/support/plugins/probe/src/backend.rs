//! The backend: its `health` runs the steps.

use crate::steps::{Step, run};
use dstack_backend_sdk::{
    Backend, BackendError, Compute, Configurator,
    capabilities::ResourceListing,
    schemars::{self, JsonSchema},
    types::methods::{
        DeleteResourceGroupRequest, Done, GetOffersReply, GetOffersRequest, HealthReply,
        HealthRequest, ListResourceGroupsReply, ListResourceGroupsRequest, RunJobReply,
        RunJobRequest, TerminateInstanceRequest,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `{type: probe, steps: […]}`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ProbeConfig {
    /// `probe`.
    #[serde(rename = "type", default = "probe")]
    pub kind: String,
    /// What `health` does.
    #[serde(default)]
    pub steps: Value,
    /// Whether the steps run when the backend is opened, too, outside of a call.
    #[serde(default)]
    pub is_at_open: bool,
}

fn probe() -> String {
    "probe".to_owned()
}

/// Takes everything.
#[derive(Debug, Default)]
pub struct ProbeConfigurator;

impl Configurator for ProbeConfigurator {
    type Config = ProbeConfig;

    fn check(&self, _config: &ProbeConfig) -> Result<(), BackendError> {
        Ok(())
    }
}

/// The steps, and what they gave when it was opened.
#[derive(Debug)]
pub struct Probe {
    steps: Vec<Step>,
    at_open: Option<Vec<Value>>,
}

impl Backend for Probe {
    type Configurator = ProbeConfigurator;

    fn new(config: ProbeConfig) -> Result<Self, BackendError> {
        let steps: Vec<Step> = match config.steps {
            Value::Null => Vec::new(),
            steps => serde_json::from_value(steps)
                .map_err(|error| BackendError::invalid(error.to_string()))?,
        };
        let at_open = config.is_at_open.then(|| run(&steps));
        Ok(Self { steps, at_open })
    }
}

impl Compute for Probe {
    fn get_offers(&self, _request: &GetOffersRequest) -> Result<GetOffersReply, BackendError> {
        Ok(GetOffersReply::default())
    }

    fn run_job(&self, _request: &RunJobRequest) -> Result<RunJobReply, BackendError> {
        Err(BackendError::unsupported("nothing can be run here"))
    }

    fn terminate_instance(&self, _: &TerminateInstanceRequest) -> Result<Done, BackendError> {
        Ok(Done {})
    }

    fn health(&self, _request: &HealthRequest) -> Result<HealthReply, BackendError> {
        let results = self.at_open.clone().unwrap_or_else(|| run(&self.steps));
        Ok(HealthReply {
            message: Some(Value::from(results).to_string()),
        })
    }
}

impl ResourceListing for Probe {
    fn list_resource_groups(
        &self,
        _request: &ListResourceGroupsRequest,
    ) -> Result<ListResourceGroupsReply, BackendError> {
        Ok(ListResourceGroupsReply {
            groups: Vec::new(),
            failures: Vec::new(),
        })
    }

    fn delete_resource_group(
        &self,
        _request: &DeleteResourceGroupRequest,
    ) -> Result<Done, BackendError> {
        Ok(Done {})
    }
}

dstack_backend_sdk::export_backend! {
    name: "probe", backend: Probe, configurator: ProbeConfigurator,
    capabilities: [ResourceListing], flags: [],
    environment: ["PROBE_TOKEN", "PROBE_UNSET"],
}
