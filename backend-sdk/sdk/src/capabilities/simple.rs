//! A cloud whose instances have nothing beside them, in six methods.

use dstack_backend_types::methods::{
    CreateInstanceReply, CreateInstanceRequest, DeleteResourceGroupRequest, Done, GetOffersReply,
    GetOffersRequest, HealthReply, HealthRequest, ListResourceGroupsReply,
    ListResourceGroupsRequest, RunJobReply, RunJobRequest, TerminateInstanceRequest,
    UpdateProvisioningDataReply, UpdateProvisioningDataRequest,
};
use dstack_backend_types::{BackendError, JobProvisioningData, ResourceGroup};

use super::{Compute, CreateInstance, ResourceListing, run_job_on_new_instance};
use crate::provisioning;

/// What an instance is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceState {
    /// It may become ready.
    Starting,
    /// It has its address, or gets it soon.
    Running,
    /// It will never be ready, for this reason.
    Failed(String),
    /// Its deletion goes on.
    Deleting,
}

/// A machine or container as the provider shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The provider's id.
    pub id: String,
    /// Where it is.
    pub region: String,
    /// What it is doing.
    pub state: InstanceState,
    /// Name or address to log in to.
    pub address: Option<String>,
    /// Address within its network.
    pub internal_ip: Option<String>,
    /// Port to log in to; `None` is 22 for machines, and not known yet for containers.
    pub ssh_port: Option<u16>,
    /// What its tag or name says.
    pub provider_ref: Option<String>,
    /// When it was made, microseconds since 1970, UTC.
    pub created_at_us: Option<i64>,
}

impl Instance {
    /// An instance of which only this much is known.
    pub fn new(id: impl Into<String>, region: impl Into<String>, state: InstanceState) -> Self {
        Self {
            id: id.into(),
            region: region.into(),
            state,
            address: None,
            internal_ip: None,
            ssh_port: None,
            provider_ref: None,
            created_at_us: None,
        }
    }
}

/// A cloud whose instances have nothing beside them: no disk, address or key of their own that outlives them, and whose list of
/// instances has all regions.
///
/// Who implements it has [`Compute`], [`CreateInstance`] and [`ResourceListing`] by it, with all that is promised there: calls
/// that are repeated, deletions in steps, orphans. Clouds of containers override [`run`](Self::run) and leave out
/// [`make`](Self::make) and the capability `CreateInstance`. A cloud that needs more implements those traits itself.
pub trait SimpleCloud: Send + Sync + Sized + 'static {
    /// See [`Compute::get_offers`].
    ///
    /// # Errors
    /// As there.
    fn offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply, BackendError>;

    /// Whether the account can be reached with the credentials.
    ///
    /// # Errors
    /// `auth`, `transport`.
    fn check_account(&self) -> Result<(), BackendError>;

    /// All instances of the account, those of others too; with a reference at least those that carry it.
    ///
    /// # Errors
    /// If not all could be listed.
    fn instances(&self, provider_ref: Option<&str>) -> Result<Vec<Instance>, BackendError>;

    /// One instance; `None` if there is none.
    ///
    /// # Errors
    /// `auth`, `transport`.
    fn instance(&self, id: &str, region: &str) -> Result<Option<Instance>, BackendError>;

    /// Begins to delete an instance; one that does not exist is a success.
    ///
    /// # Errors
    /// `auth`, `transport`.
    fn delete(&self, id: &str, region: &str) -> Result<(), BackendError>;

    /// Makes a machine that carries `config.provider_ref` in a tag or at the end of its name. It was looked for before.
    ///
    /// # Errors
    /// As [`Compute::run_job`].
    fn make(&self, _request: &CreateInstanceRequest) -> Result<Instance, BackendError> {
        Err(BackendError::unsupported("this backend rents no machines"))
    }

    /// User who logs in to a machine; `root` unless said.
    fn user(&self) -> &str {
        "root"
    }

    /// See [`Compute::run_job`]. Clouds of containers: `run_container(self, request, || …)`.
    ///
    /// # Errors
    /// As there.
    fn run(&self, request: &RunJobRequest) -> Result<RunJobReply, BackendError> {
        run_job_on_new_instance(self, request)
    }
}

/// [`SimpleCloud::run`] of a cloud of containers: `start` makes the container of the job, unless an earlier call has.
///
/// # Errors
/// Those of the listing and of `start`.
pub fn run_container<C: SimpleCloud>(
    cloud: &C,
    request: &RunJobRequest,
    start: impl FnOnce() -> Result<Instance, BackendError>,
) -> Result<RunJobReply, BackendError> {
    let reference = request.job.provider_ref.as_deref();
    let container = provisioning::once(reference, |reference| find(cloud, reference), start)?;
    let data = provisioning::container(&request.offer, &container.id);
    Ok(with_address(data, container).into())
}

/// Those of an attempt that are not going away.
fn of_attempt<C: SimpleCloud>(cloud: &C, reference: &str) -> Result<Vec<Instance>, BackendError> {
    let mut instances = cloud.instances(Some(reference))?;
    instances.retain(|instance| {
        instance.provider_ref.as_deref() == Some(reference)
            && instance.state != InstanceState::Deleting
    });
    Ok(instances)
}

fn find<C: SimpleCloud>(cloud: &C, reference: &str) -> Result<Option<Instance>, BackendError> {
    of_attempt(cloud, reference).map(|mut instances| instances.pop())
}

fn with_address(mut data: JobProvisioningData, instance: Instance) -> JobProvisioningData {
    if instance.state == InstanceState::Running {
        data.hostname = instance.address.or(data.hostname);
        data.internal_ip = instance.internal_ip.or(data.internal_ip);
        data.ssh_port = instance.ssh_port.or(data.ssh_port);
    }
    data
}

impl<C: SimpleCloud> Compute for C {
    fn get_offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply, BackendError> {
        self.offers(request)
    }

    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply, BackendError> {
        self.run(request)
    }

    fn terminate_instance(&self, request: &TerminateInstanceRequest) -> Result<Done, BackendError> {
        let (id, region) = (&request.instance_id, &request.region);
        match self.instance(id, region)? {
            None => return Ok(Done {}),
            Some(instance) if instance.state == InstanceState::Deleting => {}
            Some(_) => self.delete(id, region)?,
        }
        Err(provisioning::still_there(id))
    }

    fn update_provisioning_data(
        &self,
        request: &UpdateProvisioningDataRequest,
    ) -> Result<UpdateProvisioningDataReply, BackendError> {
        let data = request.provisioning_data.clone();
        let (id, region) = (&data.instance_id, &data.region);
        let failed = |why: &str| Err(BackendError::provisioning(format!("{id} {why}")));
        match self.instance(id, region)? {
            None => failed("is gone"),
            Some(instance) => match &instance.state {
                InstanceState::Failed(why) => failed(&format!("has failed: {why}")),
                InstanceState::Deleting => failed("is being deleted"),
                _ => Ok(with_address(data, instance).into()),
            },
        }
    }

    fn health(&self, _request: &HealthRequest) -> Result<HealthReply, BackendError> {
        self.check_account()?;
        Ok(HealthReply::default())
    }
}

impl<C: SimpleCloud> CreateInstance for C {
    fn create_instance(
        &self,
        request: &CreateInstanceRequest,
    ) -> Result<CreateInstanceReply, BackendError> {
        let reference = request.config.provider_ref.as_deref();
        let make = || self.make(request);
        let machine = provisioning::once(reference, |reference| find(self, reference), make)?;
        let data = provisioning::machine(&request.offer, &machine.id, self.user());
        Ok(with_address(data, machine).into())
    }
}

impl<C: SimpleCloud> ResourceListing for C {
    fn list_resource_groups(
        &self,
        request: &ListResourceGroupsRequest,
    ) -> Result<ListResourceGroupsReply, BackendError> {
        let instances = self.instances(None)?.into_iter();
        let groups = instances
            .filter(|instance| instance.state != InstanceState::Deleting)
            .filter_map(|instance| {
                let reference = instance.provider_ref?;
                Some(ResourceGroup {
                    created_at_us: instance.created_at_us,
                    ..provisioning::group(reference, instance.region, instance.id)
                })
            });
        Ok(ListResourceGroupsReply::of(groups, request))
    }

    fn delete_resource_group(
        &self,
        request: &DeleteResourceGroupRequest,
    ) -> Result<Done, BackendError> {
        for instance in of_attempt(self, &request.group.provider_ref)? {
            self.delete(&instance.id, &instance.region)?;
        }
        Ok(Done {})
    }
}
