//! The backend's methods, and its export.

use crate::{
    cloud::{Cloud, Machine},
    config::{FakeConfig, FakeConfigurator, Knobs},
};
use dstack_backend_sdk::{
    Backend, BackendError, Compute, ErrorKind,
    capabilities::{CreateInstance, ResourceListing, Volumes},
    host, run_job_on_new_instance,
    types::{
        BackendType, CloudResource, CpuArchitecture, Disk, Gpu, InstanceAvailability,
        InstanceOffer, InstanceOfferWithAvailability, InstanceType, JobProvisioningData,
        ResourceGroup, Resources, matching,
        methods::{
            CreateInstanceReply, CreateInstanceRequest, DeleteResourceGroupRequest, Done,
            GetOffersReply, GetOffersRequest, HealthReply, HealthRequest, ListResourceGroupsReply,
            ListResourceGroupsRequest, RunJobReply, RunJobRequest, TerminateInstanceRequest,
            UpdateProvisioningDataReply, UpdateProvisioningDataRequest,
        },
    },
};
use std::time::Duration;

/// Offers in one chunk.
const CHUNK: usize = 500;

/// The cloud of one configuration.
#[derive(Debug)]
pub struct Fake {
    pub(crate) cloud: Cloud,
}

impl Fake {
    /// Waits as long as the knobs say, then says what they are.
    pub(crate) fn begin(&self) -> Result<Knobs, BackendError> {
        let knobs = self.cloud.knobs()?;
        if knobs.latency_ms > 0 {
            host::sleep(Duration::from_millis(knobs.latency_ms))?;
        }
        Ok(knobs)
    }
}

impl Backend for Fake {
    type Configurator = FakeConfigurator;

    fn new(config: FakeConfig) -> Result<Self, BackendError> {
        Ok(Self {
            cloud: Cloud::new(config.folder),
        })
    }
}

impl Compute for Fake {
    fn get_offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply, BackendError> {
        let knobs = self.begin()?;
        if let Some(kind) = knobs.offers_error {
            return Err(BackendError::new(kind, "the knobs say so"));
        }
        let mut part = Vec::new();
        for number in 0..knobs.offers {
            let offer = offer(number, &knobs);
            if !matching::matches(&offer, &request.requirements) {
                continue;
            }
            if part.len() == CHUNK {
                host::emit(&GetOffersReply {
                    offers: std::mem::take(&mut part),
                })?;
            }
            part.push(offer);
        }
        Ok(GetOffersReply { offers: part })
    }

    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply, BackendError> {
        run_job_on_new_instance(self, request)
    }

    fn terminate_instance(&self, request: &TerminateInstanceRequest) -> Result<Done, BackendError> {
        let knobs = self.begin()?;
        if self
            .cloud
            .machine(&request.instance_id)?
            .is_some_and(|machine| machine.terminations < knobs.slow_terminations)
        {
            self.cloud.count_termination(&request.instance_id)?;
            return Err(BackendError::not_yet_terminated(
                "the machine is shutting down",
            ));
        }
        self.cloud.delete(&request.instance_id)?;
        Ok(Done {})
    }

    fn update_provisioning_data(
        &self,
        request: &UpdateProvisioningDataRequest,
    ) -> Result<UpdateProvisioningDataReply, BackendError> {
        let knobs = self.begin()?;
        let mut data = request.provisioning_data.clone();
        let Some(machine) = self.cloud.count_look(&data.instance_id)? else {
            return Err(BackendError::provisioning("the machine is gone"));
        };
        if machine.looks > knobs.looks_until_ready {
            data.hostname = Some(knobs.hostname.unwrap_or_else(|| "127.0.0.1".to_owned()));
            data.ssh_port = Some(knobs.ssh_port);
        }
        Ok(UpdateProvisioningDataReply {
            provisioning_data: data,
        })
    }

    fn health(&self, _request: &HealthRequest) -> Result<HealthReply, BackendError> {
        self.begin()?;
        Ok(HealthReply {
            message: Some(format!("{} machines", self.cloud.machines()?.len())),
        })
    }
}

impl CreateInstance for Fake {
    fn create_instance(
        &self,
        request: &CreateInstanceRequest,
    ) -> Result<CreateInstanceReply, BackendError> {
        let knobs = self.begin()?;
        let name = &request.offer.instance.name;
        if knobs.no_capacity || knobs.no_capacity_for.contains(name) {
            return Err(BackendError::no_capacity(format!(
                "no capacity for {name} in {}",
                request.offer.region
            )));
        }
        if self.cloud.machines()?.len() >= knobs.quota {
            return Err(BackendError::new(ErrorKind::Quota, "too many machines"));
        }
        let machine = self
            .cloud
            .create(&request.config, name, &request.offer.region)?;
        if self.cloud.lose_answer(knobs.lost_answers)? {
            // The machine is there, and nobody is told: what a broken connection does after the provider said yes.
            return Err(BackendError::new(
                ErrorKind::Transport,
                "the connection was lost",
            ));
        }
        Ok(CreateInstanceReply {
            provisioning_data: JobProvisioningData {
                backend: BackendType::new("fake"),
                base_backend: None,
                instance_type: request.offer.instance.clone(),
                instance_id: machine.id,
                hostname: None,
                internal_ip: None,
                public_ip_enabled: true,
                instance_network: None,
                region: request.offer.region.clone(),
                availability_zone: None,
                reservation: None,
                price: request.offer.price,
                username: knobs.username.unwrap_or_else(|| "root".to_owned()),
                ssh_port: None,
                dockerized: true,
                ssh_proxy: None,
                backend_data: None,
                gpu_driver: None,
            },
        })
    }
}

impl ResourceListing for Fake {
    fn list_resource_groups(
        &self,
        request: &ListResourceGroupsRequest,
    ) -> Result<ListResourceGroupsReply, BackendError> {
        let is_asked = |machine: &Machine| {
            request.regions.is_empty() || request.regions.contains(&machine.region)
        };
        // What carries no reference is not ours.
        let group = |machine: Machine| {
            Some(ResourceGroup {
                provider_ref: machine.provider_ref?,
                region: machine.region,
                primary_id: Some(machine.id.clone()),
                created_at_us: Some(machine.created_at_us),
                resources: vec![CloudResource {
                    kind: "instance".to_owned(),
                    id: machine.id,
                    name: Some(machine.name),
                }],
                backend_data: None,
            })
        };
        let groups = self
            .cloud
            .machines()?
            .into_iter()
            .filter(is_asked)
            .filter_map(group)
            .collect();
        Ok(ListResourceGroupsReply {
            groups,
            failures: Vec::new(),
        })
    }

    fn delete_resource_group(
        &self,
        request: &DeleteResourceGroupRequest,
    ) -> Result<Done, BackendError> {
        for resource in &request.group.resources {
            self.cloud.delete(&resource.id)?;
        }
        Ok(Done {})
    }
}

/// Offer number `number`: `small-0`, `gpu-1`, `small-2`, … each a bit dearer than the one before.
fn offer(number: u32, knobs: &Knobs) -> InstanceOfferWithAvailability {
    let has_gpu = number % 2 == 1;
    let gpus = if has_gpu {
        vec![Gpu {
            name: "A10".to_owned(),
            memory_mib: 24_576,
            vendor: None,
        }]
    } else {
        Vec::new()
    };
    let resources = Resources {
        cpus: 4,
        memory_mib: 16_384,
        gpus,
        spot: false,
        disk: Disk { size_mib: 204_800 },
        cpu_arch: Some(CpuArchitecture::X86),
        description: String::new(),
    };
    let name = format!("{}-{number}", if has_gpu { "gpu" } else { "small" });
    let offer = InstanceOffer {
        backend: BackendType::new("fake"),
        instance: InstanceType { name, resources },
        region: knobs.region.clone().unwrap_or_else(|| "folder".to_owned()),
        price: 0.1 + f64::from(number) / 100.0,
        backend_data: serde_json::Map::new(),
    };
    InstanceOfferWithAvailability::new(offer, InstanceAvailability::Available)
}

dstack_backend_sdk::export_backend! {
    name: "fake", backend: Fake, configurator: FakeConfigurator,
    capabilities: [CreateInstance, Volumes, ResourceListing], flags: ["privileged", "instance_volumes", "multinode"],
    provisioning_timeout_s: 60,
}
