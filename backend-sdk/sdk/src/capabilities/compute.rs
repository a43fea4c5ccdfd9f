//! The base of a backend, and machines.

use dstack_backend_types::methods::{
    CreateInstanceReply, CreateInstanceRequest, Done, GetOffersReply, GetOffersRequest,
    HealthReply, HealthRequest, RunJobReply, RunJobRequest, RunJobsReply, RunJobsRequest,
    TerminateComputeGroupRequest, TerminateInstanceRequest, UpdateProvisioningDataReply,
    UpdateProvisioningDataRequest,
};
use dstack_backend_types::{
    BackendError, InstanceConfiguration, InstanceOfferWithAvailability, JobInfo, RunInfo, SshKey,
    Volume,
};

use super::Configurator;

/// A configured backend: what `export_backend!` is given.
///
/// One value lives for each project's configuration and serves many calls at once.
pub trait Backend: Compute + Sized {
    /// Checks, stores and shows configurations; its `Config` is what [`Backend::new`] gets.
    type Configurator: Configurator;

    /// Takes a stored configuration with its credentials.
    ///
    /// No input or output here: there is no deadline yet. Clients are made lazily, credentials are checked by the
    /// configurator and by [`Compute::health`].
    ///
    /// # Errors
    /// `invalid` if the parts of the configuration contradict each other.
    fn new(config: <Self::Configurator as Configurator>::Config) -> Result<Self, BackendError>;

    /// Frees what memory management does not: called once, when no call runs any more.
    fn close(self) {}
}

/// What every backend can do.
pub trait Compute: Send + Sync + 'static {
    /// Offers that fit the requirements, with what is known about their availability.
    ///
    /// Facts come from the published catalog or from the provider. Implement it with
    /// [`AllOffersCache`](crate::offers::AllOffersCache) if the provider's answer does not depend on the requirements,
    /// else with [`FilteredOffersCache`](crate::offers::FilteredOffersCache). Many offers may be handed over in chunks
    /// while the call runs; the reply then is the last chunk.
    ///
    /// # Errors
    /// `auth`, `rate_limited`, `transport`. The host then shows the other backends' offers only.
    fn get_offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply, BackendError>;

    /// Makes what the job will run in, and returns as soon as the provider has accepted it.
    ///
    /// Backends with machines call [`run_job_on_new_instance`]. Container backends start a container of the job's image
    /// whose entry point is the runner. An address that is not known yet stays `None`;
    /// [`update_provisioning_data`](Self::update_provisioning_data) completes it.
    ///
    /// # Errors
    /// `no_capacity`, `quota`, `skip_offer`: the next offer is tried. Anything made before the error must be gone or
    /// declared to the host's ledger.
    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply, BackendError>;

    /// Deletes an instance. One that does not exist is a success.
    ///
    /// # Errors
    /// `not_yet_terminated` instead of waiting: the host calls again after a few seconds.
    fn terminate_instance(&self, request: &TerminateInstanceRequest) -> Result<Done, BackendError>;

    /// Completes what was not known at creation; called every few seconds while host name or port are missing.
    ///
    /// Looks once and returns at once, with the data unchanged if there is no news.
    ///
    /// # Errors
    /// `provisioning` if the instance will never be ready: the attempt ends. Any other error is tried again.
    fn update_provisioning_data(
        &self,
        request: &UpdateProvisioningDataRequest,
    ) -> Result<UpdateProvisioningDataReply, BackendError> {
        Ok(UpdateProvisioningDataReply {
            provisioning_data: request.provisioning_data.clone(),
        })
    }

    /// Whether the account can be reached with these credentials. Cheap; shown by `dstack backend list`.
    ///
    /// # Errors
    /// `auth`, `transport`.
    fn health(&self, _request: &HealthRequest) -> Result<HealthReply, BackendError> {
        Ok(HealthReply::default())
    }
}

/// Machines can be made without a job: fleets. Capability `create_instance`.
pub trait CreateInstance: Compute {
    /// Makes a machine on which the shim starts at boot, and returns as soon as the provider has accepted it.
    ///
    /// Zones to choose from stand in `offer.availability_zones`; `None` leaves the choice to the backend. Everything that
    /// is made carries `config.provider_ref`. If a machine with it exists already, that one is returned.
    ///
    /// # Errors
    /// As [`Compute::run_job`].
    fn create_instance(
        &self,
        request: &CreateInstanceRequest,
    ) -> Result<CreateInstanceReply, BackendError>;
}

/// All nodes of a cluster are made by one call. Capability `group_provisioning`.
pub trait GroupProvisioning: Compute {
    /// Makes one node for each job; all or none.
    ///
    /// # Errors
    /// As [`Compute::run_job`].
    fn run_jobs(&self, request: &RunJobsRequest) -> Result<RunJobsReply, BackendError>;

    /// Deletes all nodes of a group. One that does not exist is a success.
    ///
    /// # Errors
    /// `not_yet_terminated` instead of waiting.
    fn terminate_compute_group(
        &self,
        request: &TerminateComputeGroupRequest,
    ) -> Result<Done, BackendError>;
}

/// [`Compute::run_job`] of a backend with machines: makes a machine named after the job, in the zone of its volumes.
///
/// # Errors
/// Those of `create_instance`; `no_capacity` if the volumes' zone is none of the offer's zones.
pub fn run_job_on_new_instance<C: CreateInstance + ?Sized>(
    compute: &C,
    request: &RunJobRequest,
) -> Result<RunJobReply, BackendError> {
    let mut offer = request.offer.clone();
    restrict_zones_to_volumes(&mut offer, &request.volumes)?;
    let reply = compute.create_instance(&CreateInstanceRequest {
        offer,
        config: instance_config_of_job(
            &request.run,
            &request.job,
            &request.project_key,
            &request.volumes,
        ),
        placement_group: request.placement_group.clone(),
    })?;
    Ok(RunJobReply {
        provisioning_data: reply.provisioning_data,
    })
}

fn instance_config_of_job(
    run: &RunInfo,
    job: &JobInfo,
    key: &SshKey,
    volumes: &[Volume],
) -> InstanceConfiguration {
    InstanceConfiguration {
        project_name: run.project_name.clone(),
        instance_name: job.job_name.clone(),
        user: run.user.clone(),
        // The machine never needs the private half.
        ssh_keys: vec![SshKey::public(key.public.trim())],
        instance_id: None,
        volumes: Some(volumes.to_vec()),
        reservation: job.requirements.reservation.clone(),
        tags: run.tags.clone(),
        provider_ref: job.provider_ref.clone(),
    }
}

/// Leaves only the zone of the first volume: a volume cannot be attached across zones.
fn restrict_zones_to_volumes(
    offer: &mut InstanceOfferWithAvailability,
    volumes: &[Volume],
) -> Result<(), BackendError> {
    let zone = volumes
        .first()
        .and_then(|volume| volume.provisioning_data.as_ref()?.availability_zone.clone());
    let Some(zone) = zone else { return Ok(()) };
    match &mut offer.availability_zones {
        None => offer.availability_zones = Some(vec![zone]),
        Some(zones) => {
            zones.retain(|known| *known == zone);
            if zones.is_empty() {
                return Err(BackendError::no_capacity(format!(
                    "{} is not offered in zone {zone} of the volume",
                    offer.instance.name
                )));
            }
        }
    }
    Ok(())
}
