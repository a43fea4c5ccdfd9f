//! From what a user wants to what the server would do: effective specifications, jobs, offers.

use std::collections::BTreeMap;
use std::sync::Arc;

use dstack_api::config::{RunConfiguration, ServiceConfiguration};
use dstack_api::jobs::{JobPlan, JobSpec};
use dstack_api::plan::{
    self, DefaultImages, DefaultRegistry, ImagesFacts, JobSettings, PlanError, PlanLimits,
    StandardBootstrap,
};
use dstack_api::repos::{RunRepoData, VIRTUAL_REPO_ID};
use dstack_api::runs::{RunSpec, ServiceModelSpec, ServiceSpec};
use dstack_backend_types::{InstanceOfferWithAvailability as Offer, RegistryAuth, Requirements};
use dstack_engine::admit::{AdmitError, JobDefaults};
use dstack_engine::ids::ProjectId;
use dstack_engine::preview::{self, Ask};
use dstack_engine::volumes::mounts::{self, Lack, Named};
use dstack_store::projects::ProjectRow;
use dstack_store::users::UserRow;
use dstack_store::{Store, Tx, views, volumes};
use futures_util::future::join_all;

use super::images::Images;
use super::keyring::Keyring;
use super::names;
use super::users::Users;
use crate::error::ApiError;
use crate::ports::{Clouds, OfferQuery};
use crate::settings::{self, Settings};

/// The type of the backend that offers the server's own machine.
const THIS_MACHINE: &str = "local";
/// Offers looked at for each fleet.
const OFFERS_PER_FLEET: usize = 100;
/// Offers looked at where no fleet limits them.
const OFFERS_ANYWHERE: usize = 10_000;

/// Makes plans.
pub(crate) struct Planner {
    pub(super) store: Store,
    pub(super) clouds: Arc<dyn Clouds>,
    users: Arc<Users>,
    images: Images,
    settings: Settings,
}

/// How offers are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OfferOptions {
    /// Offers to show per job; none is 50.
    pub(crate) max_offers: Option<u32>,
    /// Dearest first.
    pub(crate) reverse: bool,
    /// Whole machines.
    pub(crate) full_offers: bool,
    /// Only what is free now.
    pub(crate) unallocated: bool,
    /// Fleets are not needed unless they are named.
    pub(crate) offers_only: bool,
}

pub(crate) fn refused(error: &AdmitError) -> ApiError {
    ApiError::refused(error.to_string())
}

fn unplanned(error: &PlanError) -> ApiError {
    ApiError::refused(error.to_string())
}

/// What jobs get where the user said nothing.
pub(crate) fn job_defaults(settings: &Settings) -> JobDefaults {
    let images = &settings.images;
    let login = |registry: &settings::DefaultRegistry| {
        let (username, password) = (registry.username.clone()?, registry.password.clone()?);
        Some(RegistryAuth {
            username,
            password: password.into_inner(),
        })
    };
    JobDefaults {
        images: DefaultImages {
            base: images.image.clone(),
            version: images.version.clone(),
            ubuntu: images.ubuntu_version.clone(),
            docker: images.dind.clone(),
        },
        registry: settings
            .default_registry
            .as_ref()
            .map(|registry| DefaultRegistry {
                host: registry.host.clone(),
                auth: login(registry),
            }),
        bootstrap: StandardBootstrap {
            ide_mirror: settings.ide_mirror.clone(),
        },
        ..JobDefaults::default()
    }
}

/// What would be taken and then not happen: better refused than forgotten.
fn not_yet(spec: &RunSpec) -> Option<String> {
    let base = spec.configuration.base();
    base.dstack
        .then(|| "`dstack: true` is not available on this server yet".to_owned())
}

impl Planner {
    pub(crate) fn new(
        store: Store,
        clouds: Arc<dyn Clouds>,
        users: Arc<Users>,
        keyring: Keyring,
        settings: Settings,
    ) -> Self {
        let images = Images::new(store.clone(), keyring, job_defaults(&settings).registry);
        Self {
            store,
            clouds,
            users,
            images,
            settings,
        }
    }

    /// What has to be known about the images of a run before it has jobs.
    ///
    /// # Errors
    /// 400 when there is no such image, or nobody can tell what it starts.
    pub(crate) async fn images(
        &self,
        project: ProjectId,
        spec: &RunSpec,
    ) -> Result<Option<Arc<ImagesFacts>>, ApiError> {
        let backends = self.clouds.backends(project).await;
        // This machine and own hosts may have images that no registry has.
        let may_be_on_machine = backends
            .iter()
            .all(|backend| backend.name.as_str() == THIS_MACHINE);
        self.images
            .facts(project, &spec.configuration, may_be_on_machine)
            .await
    }

    pub(crate) fn defaults(&self) -> JobDefaults {
        job_defaults(&self.settings)
    }

    /// Fills in what the user left open, and refuses what cannot run.
    pub(crate) async fn effective(
        &self,
        user: &UserRow,
        mut spec: RunSpec,
    ) -> Result<RunSpec, ApiError> {
        if spec.run_name.is_none() {
            spec.run_name = spec.configuration.name().map(str::to_owned);
        }
        if let Some(name) = &spec.run_name {
            names::check_resource(name)?;
        }
        match (&spec.repo_id, &spec.repo_data) {
            (None, Some(_)) => {
                return Err(ApiError::refused(
                    "repo_data must not be set if repo_id is not set",
                ));
            }
            (Some(_), None) => {
                return Err(ApiError::refused(
                    "repo_id must not be set if repo_data is not set",
                ));
            }
            (None, None) => {
                spec.repo_id = Some(VIRTUAL_REPO_ID.to_owned());
                spec.repo_data = Some(RunRepoData::Virtual {});
            }
            (Some(_), Some(_)) => {}
        }
        if spec.configuration.base().dstack && self.settings.forbid_dstack_in_runs {
            return Err(ApiError::refused(
                "This server does not allow runs with `dstack: true`",
            ));
        }
        if let Some(why) = not_yet(&spec) {
            return Err(ApiError::refused(why));
        }
        let mut spec = self.with_defaults(spec)?;
        if spec.ssh_key_pub.is_none() {
            let key = self.users.public_key(user.id).await?;
            let missing =
                || ApiError::refused("ssh_key_pub must be set if the user has no ssh_public_key");
            spec.ssh_key_pub = Some(key.ok_or_else(missing)?);
        }
        Ok(spec)
    }

    /// Fills in what follows from the specification alone.
    pub(crate) fn with_defaults(&self, spec: RunSpec) -> Result<RunSpec, ApiError> {
        let limits = PlanLimits {
            probes: self.settings.max_probes_per_job,
            probe_timeout_seconds: self.settings.max_probe_timeout,
            metrics_seconds: i64::try_from(self.settings.kept.metrics_running.as_secs())
                .unwrap_or(i64::MAX),
            ..PlanLimits::default()
        };
        Ok(plan::effective_run(spec, &limits)
            .map_err(|error| unplanned(&error))?
            .spec)
    }

    /// The jobs a run would have: all nodes of a task, one replica for each group of a service.
    pub(crate) fn jobs(
        &self,
        spec: &RunSpec,
        images: Option<&ImagesFacts>,
    ) -> Result<Vec<JobSpec>, ApiError> {
        let defaults = self.defaults();
        let unknown = ImagesFacts::new();
        let settings = JobSettings {
            images: &defaults.images,
            registry: defaults.registry.as_ref(),
            python: defaults.python,
            bootstrap: &defaults.bootstrap,
            facts: images.unwrap_or(&unknown),
        };
        let profile = plan::merged_profile(&spec.configuration, spec.profile.as_ref());
        let mut jobs = Vec::new();
        for (number, group) in (0..plan::replica_group_count(&spec.configuration)).enumerate() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let made = plan::replica_jobs(spec, &profile, number, group, &settings);
            jobs.extend(made.map_err(|error| unplanned(&error))?);
        }
        Ok(jobs)
    }

    /// The jobs with their offers. Jobs that need the same share their offers.
    pub(crate) async fn job_plans(
        &self,
        project: &ProjectRow,
        spec: &RunSpec,
        jobs: Vec<JobSpec>,
        options: OfferOptions,
    ) -> Result<Vec<JobPlan>, ApiError> {
        let mut known: BTreeMap<(String, u32), Vec<Offer>> = BTreeMap::new();
        let mut plans = Vec::new();
        for job in jobs {
            let group = (job.replica_group.clone(), job.node_group_index);
            let offers = match known.get(&group) {
                Some(offers) => offers.clone(),
                None => {
                    let offers = self.offers(project, spec, &job, options).await?;
                    known.insert(group, offers.clone());
                    offers
                }
            };
            plans.push(job_plan(job, offers, options));
        }
        Ok(plans)
    }

    /// Everything a job could get, best first.
    pub(crate) async fn offers(
        &self,
        project: &ProjectRow,
        spec: &RunSpec,
        job: &JobSpec,
        options: OfferOptions,
    ) -> Result<Vec<Offer>, ApiError> {
        let backends = self.clouds.backends(project.id).await;
        let volumes = self.volumes(project.id, job).await?;
        let names_fleets = dstack_engine::spec::run_profile(spec).fleets.is_some();
        if options.offers_only && !names_fleets {
            let ask = preview::ask_anywhere(spec, job, &backends, &volumes);
            let answers = self.answers(project.id, &ask, None, options).await;
            return Ok(preview::offers(&ask, answers, OFFERS_ANYWHERE));
        }
        let id = project.id;
        let fleets = self
            .store
            .read(move |tx| views::fleet_facts(tx, id))
            .await?;
        let asks = preview::asks(spec, job, &fleets, (&backends, &volumes), &project.name);
        let found = join_all(asks.iter().map(|ask| async move {
            let answers = if options.unallocated {
                Vec::new()
            } else {
                self.answers(id, ask, Some(&job.image_name), options).await
            };
            (ask.enough, preview::offers(ask, answers, OFFERS_PER_FLEET))
        }))
        .await;
        Ok(preview::best(found))
    }

    pub(super) async fn volumes(
        &self,
        project: ProjectId,
        job: &JobSpec,
    ) -> Result<Vec<Named>, ApiError> {
        let names: Vec<String> = mounts::names(job).map(str::to_owned).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let read = move |tx: &mut dyn Tx| {
            volumes::named(tx, project, names.iter().map(String::as_str), None)
        };
        Ok(self.store.read(read).await?)
    }

    /// Refuses a run whose volumes surely cannot be mounted. That another job has one now is no reason.
    pub(crate) async fn check_volumes(
        &self,
        project: ProjectId,
        spec: &RunSpec,
        images: Option<&ImagesFacts>,
    ) -> Result<(), ApiError> {
        for job in self.jobs(spec, images)? {
            let mut named = self.volumes(project, &job).await?;
            for it in &mut named {
                it.holders.clear();
            }
            if let Err(Lack::Never(why)) = mounts::choices(&job, &named) {
                return Err(ApiError::refused(format!("Cannot mount volumes: {why}")));
            }
        }
        Ok(())
    }

    async fn answers(
        &self,
        project: ProjectId,
        ask: &Ask,
        image: Option<&str>,
        options: OfferOptions,
    ) -> Vec<Vec<Offer>> {
        if ask.backends.is_empty() {
            return Vec::new();
        }
        let requirements: Arc<Requirements> = Arc::new(ask.wanted.machine.clone());
        let query = OfferQuery {
            project,
            requirements,
            backends: Some(ask.backends.clone()),
            full_offers: options.full_offers,
            unallocated_resources: options.unallocated,
            image: image.map(str::to_owned),
        };
        self.clouds
            .offers(query)
            .await
            .into_iter()
            .filter_map(|answer| answer.offers.ok())
            .collect()
    }

    /// What the backends offer for a fleet's own needs.
    pub(crate) async fn fleet_offers(&self, project: ProjectId, ask: &Ask) -> Vec<Offer> {
        let answers = self
            .answers(project, ask, None, OfferOptions::default())
            .await;
        preview::offers(ask, answers, OFFERS_ANYWHERE)
    }

    /// What the project's backends can do.
    pub(crate) async fn backends(
        &self,
        project: ProjectId,
    ) -> Vec<dstack_engine::view::BackendAbilities> {
        self.clouds.backends(project).await
    }

    /// Where a service without a gateway is reached, and what it may not ask for then.
    pub(crate) fn service(
        &self,
        project: &str,
        run: &str,
        spec: &RunSpec,
    ) -> Result<Option<ServiceSpec>, ApiError> {
        let RunConfiguration::Service(service) = &spec.configuration else {
            return Ok(None);
        };
        let wants = service
            .gateway
            .as_ref()
            .map(|choice| serde_json::to_value(choice).unwrap_or_default());
        match wants {
            None | Some(serde_json::Value::Null | serde_json::Value::Bool(false)) => {}
            Some(serde_json::Value::Bool(true)) => {
                return Err(ApiError::not_exists("The project has no default gateway"));
            }
            Some(_) => return Err(ApiError::not_exists("Gateway does not exist")),
        }
        if self.settings.forbid_services_without_gateway {
            return Err(ApiError::not_exists(
                "This server does not allow services without a gateway",
            ));
        }
        let https = service
            .https
            .as_ref()
            .map(|https| serde_json::to_value(https).unwrap_or_default());
        if matches!(
            https,
            Some(serde_json::Value::Bool(false) | serde_json::Value::Object(_))
        ) {
            return Err(ApiError::refused(
                "`https` can only be set to `true` or `auto` without a gateway",
            ));
        }
        if service.scaling.is_some() {
            return Err(ApiError::refused(
                "Auto-scaling is not supported when running services without a gateway",
            ));
        }
        if !service.rate_limits.is_empty() {
            return Err(ApiError::refused(
                "Rate limits are not supported when running services without a gateway",
            ));
        }
        Ok(Some(service_spec(project, run, service)))
    }
}

fn service_spec(project: &str, run: &str, service: &ServiceConfiguration) -> ServiceSpec {
    let url = format!("/proxy/services/{project}/{run}/");
    let mut options = serde_json::Map::new();
    let model = service.model.as_ref().map(|model| {
        let mut shown = serde_json::to_value(model).unwrap_or_default();
        let text = |key: &str| {
            shown
                .get(key)
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let base_url = if text("format") == "openai" {
            format!("/proxy/services/{project}/{run}{}", text("prefix"))
        } else {
            format!("/proxy/models/{project}/")
        };
        let spec = ServiceModelSpec {
            name: model.name().to_owned(),
            base_url,
            kind: text("type"),
        };
        options.insert(
            "openai".to_owned(),
            serde_json::json!({"model": shown.take()}),
        );
        spec
    });
    ServiceSpec {
        url,
        model,
        options,
    }
}

fn job_plan(job_spec: JobSpec, mut offers: Vec<Offer>, options: OfferOptions) -> JobPlan {
    if options.reverse {
        offers.sort_by(|a, b| {
            let by_use = b
                .availability
                .is_available()
                .cmp(&a.availability.is_available());
            by_use.then(b.price.total_cmp(&a.price))
        });
    }
    let total_offers = u64::try_from(offers.len()).unwrap_or(u64::MAX);
    let max_price = offers
        .iter()
        .map(|offer| offer.price)
        .max_by(f64::total_cmp);
    offers.truncate(usize::try_from(options.max_offers.unwrap_or(50)).unwrap_or(usize::MAX));
    JobPlan {
        job_spec,
        offers,
        total_offers,
        max_price,
    }
}
