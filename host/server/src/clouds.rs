//! The backends of all projects, over the plugin host.

use std::sync::Arc;
use std::time::Duration;

use dstack_backend_types::methods::{
    CreateInstanceRequest, DeleteResourceGroupRequest, GetOffersRequest, ListResourceGroupsRequest,
    Method, RunJobRequest,
};
use dstack_backend_types::{
    BackendError, BackendType, ErrorKind, InstanceAvailability, JobProvisioningData, ResourceGroup,
    SshKey, capability,
};
use dstack_engine::ids::ProjectId;
use dstack_engine::view::BackendAbilities;
use dstack_plugins::{Backend, CallError, Plugins};
use futures_util::future::{BoxFuture, join_all};

use crate::ports::{BackendOffers, CloudMachine, Clouds, OfferQuery};

/// Begins the error of a backend that was taken from its project.
pub(crate) const NO_BACKEND: &str = "the project has no backend";

/// A configured backend of a project, credentials included.
#[derive(Clone)]
pub struct ProjectBackend {
    /// Its type, which is the name of its plugin.
    pub kind: BackendType,
    /// What the backend is opened with.
    pub config: serde_json::Value,
}

impl std::fmt::Debug for ProjectBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ProjectBackend({})", self.kind.as_str())
    }
}

/// Knows which backends a project has.
pub trait ProjectBackends: Send + Sync {
    /// The project's backends, by name. An unknown project has none.
    fn of(&self, project: ProjectId) -> BoxFuture<'_, Arc<Vec<ProjectBackend>>>;
    /// Whether any project has a machine of this backend.
    fn has_machine(&self, kind: &BackendType) -> BoxFuture<'_, bool>;
}

/// [`Clouds`] over the plugin host.
pub struct PluginClouds {
    plugins: Plugins,
    projects: Arc<dyn ProjectBackends>,
}

impl std::fmt::Debug for PluginClouds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PluginClouds")
    }
}

impl PluginClouds {
    /// The plugins, and who knows which of them a project uses.
    #[must_use]
    pub fn new(plugins: Plugins, projects: Arc<dyn ProjectBackends>) -> Self {
        Self { plugins, projects }
    }

    async fn opened(
        &self,
        project: ProjectId,
        kind: &BackendType,
    ) -> Result<Backend, BackendError> {
        let all = self.projects.of(project).await;
        let Some(found) = all.iter().find(|backend| backend.kind == *kind) else {
            return Err(BackendError::new(
                ErrorKind::NotFound,
                format!("{NO_BACKEND} {} any more", kind.as_str()),
            ));
        };
        self.plugins
            .backend(&project.to_string(), kind.as_str(), &found.config)
            .await
            .map_err(plain)
    }

    async fn ask(
        &self,
        project: ProjectId,
        backend: &ProjectBackend,
        question: &GetOffersRequest,
    ) -> BackendOffers {
        let mut offers = match self.opened(project, &backend.kind).await {
            Ok(opened) => opened.get_offers(question).await.map_err(plain),
            Err(error) => Err(error),
        };
        // There is one machine, and only the host knows whether it is taken.
        if let Ok(offers) = &mut offers
            && backend.kind == BackendType::LOCAL
            && self.projects.has_machine(&backend.kind).await
        {
            for offer in offers {
                offer.availability = InstanceAvailability::Busy;
            }
        }
        if let Err(error) = &offers {
            tracing::warn!(backend = backend.kind.as_str(), error = %error.message, "a backend gave no offers");
        }
        BackendOffers {
            backend: backend.kind.clone(),
            offers,
        }
    }
}

/// The error that the engine judges; which backend and method it was is in the span.
fn plain(error: CallError) -> BackendError {
    error.error
}

/// Calls a method of a project's backend.
///
/// # Errors
/// The backend's, or the plugin host's; [`is_no_backend`] tells the one of a project without it.
pub async fn call<M: Method>(
    clouds: &dyn Clouds,
    project: ProjectId,
    backend: &BackendType,
    request: &M,
) -> Result<M::Reply, BackendError> {
    let opened = clouds.open(project, backend).await?;
    opened.call(request).await.map_err(plain)
}

/// Whether the project has no such backend (any more), and nobody was asked.
#[must_use]
pub fn is_no_backend(error: &BackendError) -> bool {
    error.kind == ErrorKind::NotFound && error.message.starts_with(NO_BACKEND)
}

impl Clouds for PluginClouds {
    fn open<'a>(
        &'a self,
        project: ProjectId,
        backend: &'a BackendType,
    ) -> BoxFuture<'a, Result<Backend, BackendError>> {
        Box::pin(self.opened(project, backend))
    }

    fn backends(&self, project: ProjectId) -> BoxFuture<'_, Vec<BackendAbilities>> {
        Box::pin(async move {
            let all = self.projects.of(project).await;
            all.iter()
                .filter_map(|backend| abilities(&self.plugins, &backend.kind))
                .collect()
        })
    }

    fn offers(&self, query: OfferQuery) -> BoxFuture<'_, Vec<BackendOffers>> {
        Box::pin(async move {
            let all = self.projects.of(query.project).await;
            let question = GetOffersRequest {
                requirements: (*query.requirements).clone(),
                full_offers: query.full_offers,
                unallocated_resources: query.unallocated_resources,
                image: query.image.clone(),
            };
            let wanted = |kind: &BackendType| {
                query
                    .backends
                    .as_ref()
                    .is_none_or(|only| only.contains(kind))
            };
            let asked = all.iter().filter(|backend| wanted(&backend.kind));
            join_all(asked.map(|backend| self.ask(query.project, backend, &question))).await
        })
    }

    fn create_instance<'a>(
        &'a self,
        project: ProjectId,
        backend: &'a BackendType,
        order: CreateInstanceRequest,
    ) -> BoxFuture<'a, Result<JobProvisioningData, BackendError>> {
        Box::pin(async move {
            self.opened(project, backend)
                .await?
                .create_instance(&order)
                .await
                .map_err(plain)
        })
    }

    fn run_job<'a>(
        &'a self,
        project: ProjectId,
        backend: &'a BackendType,
        order: RunJobRequest,
    ) -> BoxFuture<'a, Result<JobProvisioningData, BackendError>> {
        Box::pin(async move {
            self.opened(project, backend)
                .await?
                .run_job(&order)
                .await
                .map_err(plain)
        })
    }

    fn update<'a>(
        &'a self,
        project: ProjectId,
        data: &'a JobProvisioningData,
        key: &'a SshKey,
    ) -> BoxFuture<'a, Result<JobProvisioningData, BackendError>> {
        Box::pin(async move {
            let backend = self.opened(project, &data.backend).await?;
            backend
                .update_provisioning_data(data.clone(), key.clone())
                .await
                .map_err(plain)
        })
    }

    fn terminate<'a>(
        &'a self,
        machine: &'a CloudMachine,
    ) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move {
            let backend = self.opened(machine.project, &machine.backend).await?;
            let notes = machine.backend_data.as_deref();
            backend
                .terminate_instance(&machine.instance_id, &machine.region, notes)
                .await
                .map_err(plain)
        })
    }

    fn end_by_ref<'a>(
        &'a self,
        project: ProjectId,
        backend: &'a BackendType,
        region: &'a str,
        provider_ref: &'a str,
    ) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(self.end_listed(project, backend, region, provider_ref))
    }

    fn delete_group<'a>(
        &'a self,
        project: ProjectId,
        backend: &'a BackendType,
        group: ResourceGroup,
    ) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move {
            let opened = self.opened(project, backend).await?;
            if !opened.manifest().has(capability::RESOURCE_LISTING) {
                return Err(BackendError::unsupported(
                    "this backend cannot delete what it declared; look for the reference at the provider",
                ));
            }
            let order = DeleteResourceGroupRequest { group };
            opened.call(&order).await.map(|_| ()).map_err(plain)
        })
    }
}

impl PluginClouds {
    async fn end_listed(
        &self,
        project: ProjectId,
        backend: &BackendType,
        region: &str,
        provider_ref: &str,
    ) -> Result<(), BackendError> {
        let opened = self.opened(project, backend).await?;
        if !opened.manifest().has(capability::RESOURCE_LISTING) {
            tracing::warn!(
                backend = backend.as_str(),
                region,
                provider_ref,
                "a call gave no answer, and this backend cannot list what it may have made; look for the reference at the provider"
            );
            return Ok(());
        }
        let question = ListResourceGroupsRequest {
            regions: vec![region.to_owned()],
        };
        let listed = opened.call(&question).await.map_err(plain)?;
        if let Some(failure) = listed.failures.first() {
            return Err(BackendError::new(
                ErrorKind::Transport,
                format!("{}: {}", failure.region, failure.message),
            ));
        }
        for group in listed
            .groups
            .into_iter()
            .filter(|group| group.provider_ref == provider_ref)
        {
            opened
                .call(&DeleteResourceGroupRequest { group })
                .await
                .map_err(plain)?;
        }
        Ok(())
    }
}

/// What a backend can do, from its manifest; `None` if its plugin is not usable.
fn abilities(plugins: &Plugins, kind: &BackendType) -> Option<BackendAbilities> {
    let manifest = plugins.manifest(kind.as_str())?;
    Some(BackendAbilities {
        name: kind.clone(),
        creates_instances: manifest.has(capability::CREATE_INSTANCE),
        multinode: manifest.has(capability::MULTINODE),
        reservations: manifest.has(capability::RESERVATION),
        privileged: manifest.has(capability::PRIVILEGED),
        instance_mounts: manifest.has(capability::INSTANCE_VOLUMES),
        provisioning_timeout: Duration::from_secs(manifest.provisioning_timeout_s.unwrap_or(600)),
    })
}
