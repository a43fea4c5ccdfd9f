//! How services and pipelines reach the outside, and how a test does not.
//!
//! The real implementations are [`clouds`](crate::clouds) over the plugins and [`machines`](crate::machines) over SSH and
//! local sockets. What an outside party answers is a value, error or not: deciding what it means is the engine's.

use std::sync::Arc;

use dstack_backend_types::methods::{CreateInstanceRequest, RunJobRequest};
use dstack_backend_types::{
    BackendError, BackendType, InstanceOfferWithAvailability, JobProvisioningData, Requirements,
    ResourceGroup, SshKey,
};
use dstack_engine::ids::ProjectId;
use dstack_engine::view::BackendAbilities;
use dstack_plugins::Backend;
use futures_util::future::BoxFuture;

/// A question for offers, to all backends of a project at once.
#[derive(Debug, Clone)]
pub struct OfferQuery {
    /// Whose backends.
    pub project: ProjectId,
    /// What is needed.
    pub requirements: Arc<Requirements>,
    /// Only these backends; `None` asks all.
    pub backends: Option<Vec<BackendType>>,
    /// Offers of whole machines where a backend could cut them.
    pub full_offers: bool,
    /// Only what is free, where a backend knows.
    pub unallocated_resources: bool,
    /// The image that would run, where it is known.
    pub image: Option<String>,
}

/// What one backend answered.
#[derive(Debug, Clone)]
pub struct BackendOffers {
    /// Which.
    pub backend: BackendType,
    /// Its offers, in its own order, or why it has none.
    pub offers: Result<Vec<InstanceOfferWithAvailability>, BackendError>,
}

/// A machine as its backend knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudMachine {
    /// Whose credentials reach it.
    pub project: ProjectId,
    /// Who made it.
    pub backend: BackendType,
    /// Where.
    pub region: String,
    /// The provider's id.
    pub instance_id: String,
    /// The backend's own notes.
    pub backend_data: Option<String>,
}

/// The backends of all projects. Calls are bounded by the deadlines of the plugin host and never hold a transaction.
pub trait Clouds: Send + Sync {
    /// A backend of the project, ready for calls; [`call`](crate::clouds::call) uses it for what has no method here.
    fn open<'a>(
        &'a self,
        project: ProjectId,
        backend: &'a BackendType,
    ) -> BoxFuture<'a, Result<Backend, BackendError>>;
    /// What the project's backends can do. Asks nobody.
    fn backends(&self, project: ProjectId) -> BoxFuture<'_, Vec<BackendAbilities>>;
    /// Asks all backends at once; one that fails keeps its error as its answer.
    fn offers(&self, query: OfferQuery) -> BoxFuture<'_, Vec<BackendOffers>>;
    /// Makes a machine.
    fn create_instance<'a>(
        &'a self,
        project: ProjectId,
        backend: &'a BackendType,
        order: CreateInstanceRequest,
    ) -> BoxFuture<'a, Result<JobProvisioningData, BackendError>>;
    /// Starts a job's container where a backend has no machines.
    fn run_job<'a>(
        &'a self,
        project: ProjectId,
        backend: &'a BackendType,
        order: RunJobRequest,
    ) -> BoxFuture<'a, Result<JobProvisioningData, BackendError>>;
    /// What is known by now of a machine that was not ready: its address.
    fn update<'a>(
        &'a self,
        project: ProjectId,
        data: &'a JobProvisioningData,
        key: &'a SshKey,
    ) -> BoxFuture<'a, Result<JobProvisioningData, BackendError>>;
    /// Ends a machine; one that is gone is a success, `not_yet_terminated` asks to call again.
    fn terminate<'a>(
        &'a self,
        machine: &'a CloudMachine,
    ) -> BoxFuture<'a, Result<(), BackendError>>;
    /// Ends whatever carries a provider reference; nothing is a success. A backend that cannot list its resources is
    /// asked nothing.
    fn end_by_ref<'a>(
        &'a self,
        project: ProjectId,
        backend: &'a BackendType,
        region: &'a str,
        provider_ref: &'a str,
    ) -> BoxFuture<'a, Result<(), BackendError>>;
    /// Deletes what was made beside a machine that is gone; what is gone already is a success. `not_yet_terminated` asks to call
    /// again, `unsupported` says that the backend cannot.
    fn delete_group<'a>(
        &'a self,
        project: ProjectId,
        backend: &'a BackendType,
        group: ResourceGroup,
    ) -> BoxFuture<'a, Result<(), BackendError>>;
}
