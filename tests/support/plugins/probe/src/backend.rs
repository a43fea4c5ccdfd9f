//! The backend: its `health` runs the steps.

use crate::steps::{Step, run};
use dstack_backend_sdk::{
    Backend, BackendError, Compute, Configurator,
    capabilities::ResourceListing,
    http::Request,
    provisioning,
    schemars::{self, JsonSchema},
    types::methods::{
        DeleteResourceGroupRequest, Done, GetOffersReply, GetOffersRequest, HealthReply,
        HealthRequest, ListResourceGroupsReply, ListResourceGroupsRequest, RunJobReply,
        RunJobRequest, TerminateInstanceRequest,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
    /// Rents out containers, and tells the provider so much of them.
    #[serde(default)]
    pub container: Option<Container>,
}

/// What of a container is told to the provider.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct Container {
    /// The job's image.
    pub image: bool,
    /// The login of its registry.
    pub login: bool,
    /// So many of the keys that may log in.
    pub keys: usize,
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
    container: Option<Container>,
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
        Ok(Self {
            steps,
            at_open,
            container: config.container,
        })
    }
}

impl Compute for Probe {
    fn get_offers(&self, _request: &GetOffersRequest) -> Result<GetOffersReply, BackendError> {
        let pod = json!({
            "backend": "probe", "region": "north", "price": 0.1, "availability": "available",
            "instance": {"name": "pod", "resources": {"cpus": 2, "memory_mib": 8192}},
        });
        let all: Vec<Value> = self.container.iter().map(|_| pod.clone()).collect();
        let offers = serde_json::from_value(Value::from(all));
        Ok(GetOffersReply {
            offers: offers.map_err(|error| BackendError::internal(error.to_string()))?,
        })
    }

    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply, BackendError> {
        let Some(told) = self.container else {
            return Err(BackendError::unsupported("nothing can be run here"));
        };
        let job = &request.job;
        let keys = &request.extra_authorized_keys;
        let body = json!({
            "image": told.image.then_some(&job.image_name),
            "login": job.registry_auth.as_ref().filter(|_| told.login),
            "keys": keys.iter().take(told.keys).collect::<Vec<_>>(),
        });
        Request::post("https://probe.example/pods")
            .json(&body)
            .send()?
            .ok()?;
        Ok(provisioning::container(&request.offer, "pod-1").into())
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
