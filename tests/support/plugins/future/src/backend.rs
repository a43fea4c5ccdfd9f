//! The backend, as its author writes it today.

use dstack_backend_sdk::host;
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::schemars::{self, JsonSchema};
use dstack_backend_sdk::types::{Disk, InstanceOffer, InstanceType, Resources};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Config {
    token: Secret<String>,
}

#[derive(Default)]
pub(crate) struct FutureConfigurator;

impl Configurator for FutureConfigurator {
    type Config = Config;

    fn check(&self, _config: &Config) -> Result<()> {
        Ok(())
    }
}

pub(crate) struct Future;

impl Backend for Future {
    type Configurator = FutureConfigurator;

    fn new(_config: Config) -> Result<Self> {
        Ok(Self)
    }
}

impl Compute for Future {
    fn get_offers(&self, _request: &GetOffersRequest) -> Result<GetOffersReply> {
        let offer = InstanceOffer {
            backend: BackendType::new("future"),
            instance: InstanceType {
                name: "small".to_owned(),
                resources: Resources {
                    cpus: 2,
                    memory_mib: 8192,
                    gpus: Vec::new(),
                    spot: false,
                    disk: Disk::default(),
                    cpu_arch: None,
                    description: String::new(),
                },
            },
            region: "north".to_owned(),
            price: 0.5,
            backend_data: Default::default(),
        };
        let offer = InstanceOfferWithAvailability::new(offer, InstanceAvailability::Available);
        Ok(GetOffersReply {
            offers: vec![offer],
        })
    }

    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply> {
        run_job_on_new_instance(self, request)
    }

    fn terminate_instance(&self, _request: &TerminateInstanceRequest) -> Result<Done> {
        Err(BackendError::not_yet_terminated("it goes on"))
    }

    fn health(&self, _request: &HealthRequest) -> Result<HealthReply> {
        // An older host has neither this service nor this method of asking; both are answers, not accidents.
        let missing = host::request(9999, b"{}").err().map(|error| error.kind);
        let message = Some(format!("{} {missing:?}", host::describe()?.host_version));
        Ok(HealthReply { message })
    }
}

impl CreateInstance for Future {
    fn create_instance(&self, request: &CreateInstanceRequest) -> Result<CreateInstanceReply> {
        let id = request.config.provider_ref.as_deref().unwrap_or("none");
        Ok(provisioning::machine(&request.offer, id, "root").into())
    }
}
