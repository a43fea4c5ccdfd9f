//! The backend's methods, and its export.

use crate::{
    config::{LocalConfig, LocalConfigurator},
    machine, offers,
};
use dstack_backend_sdk::{
    Backend, BackendError, Compute, ErrorKind,
    capabilities::{CreateInstance, ResourceListing},
    host::machine as this_machine,
    run_job_on_new_instance,
    types::methods::{
        CreateInstanceReply, CreateInstanceRequest, DeleteResourceGroupRequest, Done,
        GetOffersReply, GetOffersRequest, HealthReply, HealthRequest, ListResourceGroupsReply,
        ListResourceGroupsRequest, RunJobReply, RunJobRequest, TerminateInstanceRequest,
        UpdateProvisioningDataReply, UpdateProvisioningDataRequest,
    },
};

/// This machine, for one project.
#[derive(Debug)]
pub struct Local {
    config: LocalConfig,
}

impl Backend for Local {
    type Configurator = LocalConfigurator;

    fn new(config: LocalConfig) -> Result<Self, BackendError> {
        Ok(Self { config })
    }
}

impl Compute for Local {
    fn get_offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply, BackendError> {
        let facts = this_machine::facts("")?;
        let can_have_image = || match &request.image {
            Some(image) => Ok(this_machine::image_runtime(image)?.is_docker),
            None => Ok(true),
        };
        let runs_in = offers::runs_in(&facts, self.config.runtime, can_have_image)?;
        let offer = offers::offer(&facts, runs_in);
        let fits = offers::fits(&offer, &request.requirements);
        Ok(GetOffersReply {
            offers: if fits { vec![offer] } else { Vec::new() },
        })
    }

    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply, BackendError> {
        run_job_on_new_instance(self, request)
    }

    fn terminate_instance(&self, request: &TerminateInstanceRequest) -> Result<Done, BackendError> {
        machine::terminate(&request.instance_id)
    }

    fn update_provisioning_data(
        &self,
        request: &UpdateProvisioningDataRequest,
    ) -> Result<UpdateProvisioningDataReply, BackendError> {
        let provisioning_data = machine::update(request.provisioning_data.clone())?;
        Ok(UpdateProvisioningDataReply { provisioning_data })
    }

    fn health(&self, _request: &HealthRequest) -> Result<HealthReply, BackendError> {
        let facts = this_machine::facts("")?;
        if !facts.has_agents {
            return Err(BackendError::new(
                ErrorKind::Unavailable,
                "the agents dstack-shim and dstack-runner are not beside the server; run `cargo xtask plugins`",
            ));
        }
        let engine = if facts.has_docker {
            "Docker answers"
        } else {
            "no Docker engine: jobs run as processes"
        };
        Ok(HealthReply {
            message: Some(format!("{}, {engine}", facts.hostname)),
        })
    }
}

impl CreateInstance for Local {
    fn create_instance(
        &self,
        request: &CreateInstanceRequest,
    ) -> Result<CreateInstanceReply, BackendError> {
        let provisioning_data =
            machine::create(&request.offer, &request.config, self.config.runtime)?;
        Ok(CreateInstanceReply { provisioning_data })
    }
}

impl ResourceListing for Local {
    fn list_resource_groups(
        &self,
        request: &ListResourceGroupsRequest,
    ) -> Result<ListResourceGroupsReply, BackendError> {
        let is_asked =
            request.regions.is_empty() || request.regions.iter().any(|name| name == offers::NAME);
        let groups = if is_asked {
            let found = this_machine::list_shims()?;
            found.into_iter().filter_map(machine::group).collect()
        } else {
            Vec::new()
        };
        Ok(ListResourceGroupsReply {
            groups,
            failures: Vec::new(),
        })
    }

    fn delete_resource_group(
        &self,
        request: &DeleteResourceGroupRequest,
    ) -> Result<Done, BackendError> {
        machine::terminate(&machine::instance_id(&request.group.provider_ref))
    }
}

dstack_backend_sdk::export_backend! {
    name: "local", backend: Local, configurator: LocalConfigurator,
    capabilities: [CreateInstance, ResourceListing], flags: ["privileged", "instance_volumes"],
}
