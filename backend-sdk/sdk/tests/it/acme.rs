//! A backend that remembers what it was asked.

use std::sync::Mutex;

use dstack_backend_sdk::capabilities::CreateInstance;
use dstack_backend_sdk::schemars::JsonSchema;
use dstack_backend_sdk::serde::{Deserialize, Serialize};
use dstack_backend_sdk::types::JobProvisioningData;
use dstack_backend_sdk::types::methods::{
    CreateInstanceReply, CreateInstanceRequest, Done, GetOffersReply, GetOffersRequest,
    RunJobReply, RunJobRequest, TerminateInstanceRequest,
};
use dstack_backend_sdk::{
    Backend, BackendError, Compute, Configurator, Secret, run_job_on_new_instance,
};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AcmeConfig {
    #[serde(default)]
    pub(crate) regions: Vec<String>,
    #[serde(default)]
    pub(crate) account: Option<String>,
    pub(crate) creds: AcmeCreds,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AcmeCreds {
    pub(crate) api_key: Secret<String>,
}

#[derive(Default)]
pub(crate) struct AcmeConfigurator;

impl Configurator for AcmeConfigurator {
    type Config = AcmeConfig;

    fn check(&self, config: &AcmeConfig) -> Result<(), BackendError> {
        if config.creds.api_key.expose() == "good" {
            return Ok(());
        }
        Err(BackendError::auth(
            "the provider refuses the key",
            ["creds.api_key"],
        ))
    }

    fn complete(
        &self,
        project_name: &str,
        mut config: AcmeConfig,
    ) -> Result<AcmeConfig, BackendError> {
        config.account = Some(format!("account-of-{project_name}"));
        Ok(config)
    }
}

pub(crate) struct Acme {
    pub(crate) created: Mutex<Vec<CreateInstanceRequest>>,
}

impl Backend for Acme {
    type Configurator = AcmeConfigurator;

    fn new(_config: AcmeConfig) -> Result<Self, BackendError> {
        Ok(Self {
            created: Mutex::new(Vec::new()),
        })
    }
}

impl Compute for Acme {
    fn get_offers(&self, _request: &GetOffersRequest) -> Result<GetOffersReply, BackendError> {
        Ok(GetOffersReply::default())
    }

    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply, BackendError> {
        run_job_on_new_instance(self, request)
    }

    fn terminate_instance(
        &self,
        _request: &TerminateInstanceRequest,
    ) -> Result<Done, BackendError> {
        Ok(Done {})
    }
}

impl CreateInstance for Acme {
    fn create_instance(
        &self,
        request: &CreateInstanceRequest,
    ) -> Result<CreateInstanceReply, BackendError> {
        self.created.lock().unwrap().push(request.clone());
        Ok(CreateInstanceReply {
            provisioning_data: JobProvisioningData {
                backend: request.offer.backend.clone(),
                base_backend: None,
                instance_type: request.offer.instance.clone(),
                instance_id: "i-1".to_owned(),
                hostname: None,
                internal_ip: None,
                public_ip_enabled: true,
                instance_network: None,
                region: request.offer.region.clone(),
                availability_zone: request
                    .offer
                    .availability_zones
                    .as_ref()
                    .and_then(|zones| zones.first().cloned()),
                reservation: None,
                price: request.offer.price,
                username: "ubuntu".to_owned(),
                ssh_port: None,
                dockerized: true,
                ssh_proxy: None,
                backend_data: None,
                gpu_driver: None,
            },
        })
    }
}
