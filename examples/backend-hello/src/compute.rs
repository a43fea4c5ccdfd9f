//! One configured account: offers, machines, clean-up.

use dstack_backend_sdk::capabilities::{CreateInstance, ResourceListing};
use dstack_backend_sdk::offers::{AllOffers, AllOffersCache, DiskPolicy};
use dstack_backend_sdk::types::methods::{
    CreateInstanceReply, CreateInstanceRequest, DeleteResourceGroupRequest, Done, GetOffersReply,
    GetOffersRequest, HealthReply, HealthRequest, ListResourceGroupsReply,
    ListResourceGroupsRequest, RunJobReply, RunJobRequest, TerminateInstanceRequest,
    UpdateProvisioningDataReply, UpdateProvisioningDataRequest,
};
use dstack_backend_sdk::types::resources::{Memory, Range};
use dstack_backend_sdk::types::{
    BackendType, CloudResource, CpuArchitecture, Disk, Gpu, InstanceAvailability, InstanceOffer,
    InstanceOfferWithAvailability, InstanceType, JobProvisioningData, ResourceGroup, Resources,
};
use dstack_backend_sdk::{Backend, BackendError, Compute, names, run_job_on_new_instance};

use crate::cloud::{self, Cloud, State};
use crate::config::{HelloConfig, HelloConfigurator, log_in};

/// One configured account.
#[derive(Debug)]
pub struct Hello {
    config: HelloConfig,
    cloud: Cloud,
    offers: AllOffersCache,
}

impl Hello {
    fn uses(&self, region: &str) -> bool {
        self.config.regions.is_empty() || self.config.regions.iter().any(|known| known == region)
    }
}

impl Backend for Hello {
    type Configurator = HelloConfigurator;

    fn new(config: HelloConfig) -> Result<Self, BackendError> {
        Ok(Self {
            config,
            cloud: Cloud::default(),
            offers: AllOffersCache::new(),
        })
    }
}

impl Compute for Hello {
    fn get_offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply, BackendError> {
        self.offers.get_offers(self, request)
    }

    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply, BackendError> {
        run_job_on_new_instance(self, request)
    }

    fn terminate_instance(&self, request: &TerminateInstanceRequest) -> Result<Done, BackendError> {
        // Deleting takes two steps here, as it does in most clouds; the host calls again.
        match self.cloud.delete(&request.instance_id) {
            None => Ok(Done {}),
            Some(State::Deleting) => Err(BackendError::not_yet_terminated(format!(
                "{} is being deleted",
                request.instance_id
            ))),
            Some(State::Booting | State::Running) => Err(BackendError::not_yet_terminated(
                format!("{} is shutting down", request.instance_id),
            )),
        }
    }

    fn update_provisioning_data(
        &self,
        request: &UpdateProvisioningDataRequest,
    ) -> Result<UpdateProvisioningDataReply, BackendError> {
        let mut data = request.provisioning_data.clone();
        let machine = self
            .cloud
            .look(&data.instance_id)
            .ok_or_else(|| BackendError::provisioning(format!("{} is gone", data.instance_id)))?;
        if machine.state == State::Running {
            data.hostname = Some(machine.address);
            data.ssh_port = Some(22);
        }
        Ok(UpdateProvisioningDataReply {
            provisioning_data: data,
        })
    }

    fn health(&self, _request: &HealthRequest) -> Result<HealthReply, BackendError> {
        log_in(&self.config.creds)?;
        Ok(HealthReply {
            message: Some(format!("{} machines", self.cloud.list().len())),
        })
    }
}

impl AllOffers for Hello {
    fn all_offers(
        &self,
        _request: &GetOffersRequest,
    ) -> Result<Vec<InstanceOfferWithAvailability>, BackendError> {
        let regions = cloud::REGIONS.iter().filter(|region| self.uses(region));
        Ok(regions
            .flat_map(|region| cloud::PLANS.iter().map(|plan| offer(plan, region)))
            .collect())
    }

    fn disk(&self, _offer: &InstanceOfferWithAvailability) -> DiskPolicy {
        DiskPolicy::Configurable(Range::between(Memory(20.0), Memory(2048.0)))
    }
}

fn offer(plan: &cloud::Plan, region: &str) -> InstanceOfferWithAvailability {
    let gpu = plan.gpu.map(|(name, gib)| Gpu {
        name: name.to_owned(),
        memory_mib: gib * 1024,
        vendor: None,
    });
    let offer = InstanceOffer {
        backend: BackendType::new("hello"),
        instance: InstanceType {
            name: plan.name.to_owned(),
            resources: Resources {
                cpus: plan.cpus,
                memory_mib: plan.memory_gib * 1024,
                gpus: gpu.into_iter().collect(),
                spot: false,
                disk: Disk { size_mib: 0 },
                cpu_arch: Some(CpuArchitecture::X86),
                description: String::new(),
            },
        },
        region: region.to_owned(),
        price: plan.price,
        backend_data: Default::default(),
    };
    InstanceOfferWithAvailability::new(offer, InstanceAvailability::Available)
}

impl CreateInstance for Hello {
    fn create_instance(
        &self,
        request: &CreateInstanceRequest,
    ) -> Result<CreateInstanceReply, BackendError> {
        let (offer, config) = (&request.offer, &request.config);
        // The cloud has no tags, so the reference is the end of the name; a repeated call finds the machine by it.
        let name = names::instance_name_with_ref(config, names::MAX_NAME_LEN);
        let found = config
            .provider_ref
            .as_ref()
            .and_then(|reference| self.cloud.find(reference));
        let machine = match found {
            Some(machine) => machine,
            None => self.cloud.create(&name, &offer.region)?,
        };
        Ok(CreateInstanceReply {
            provisioning_data: JobProvisioningData {
                backend: offer.backend.clone(),
                base_backend: None,
                instance_type: offer.instance.clone(),
                instance_id: machine.id,
                hostname: None,
                internal_ip: None,
                public_ip_enabled: true,
                instance_network: None,
                region: offer.region.clone(),
                availability_zone: None,
                reservation: None,
                price: offer.price,
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

impl ResourceListing for Hello {
    fn list_resource_groups(
        &self,
        request: &ListResourceGroupsRequest,
    ) -> Result<ListResourceGroupsReply, BackendError> {
        let asked =
            |region: &String| request.regions.is_empty() || request.regions.contains(region);
        let machines = self
            .cloud
            .list()
            .into_iter()
            .filter(|m| asked(&m.region) && m.state != State::Deleting);
        let groups = machines.filter_map(|machine| {
            Some(ResourceGroup {
                provider_ref: names::provider_ref_of_name(&machine.name)?.to_owned(),
                region: machine.region,
                primary_id: Some(machine.id.clone()),
                created_at_us: None,
                resources: vec![CloudResource {
                    kind: "instance".to_owned(),
                    id: machine.id,
                    name: Some(machine.name),
                }],
                backend_data: None,
            })
        });
        Ok(ListResourceGroupsReply {
            groups: groups.collect(),
            failures: Vec::new(),
        })
    }

    fn delete_resource_group(
        &self,
        request: &DeleteResourceGroupRequest,
    ) -> Result<Done, BackendError> {
        match self.cloud.find(&request.group.provider_ref) {
            None => Ok(Done {}),
            Some(machine) => self.terminate_instance(&TerminateInstanceRequest {
                instance_id: machine.id,
                region: machine.region,
                backend_data: None,
            }),
        }
    }
}
