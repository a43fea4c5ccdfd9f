//! Runs: plan, apply, look, stop, delete.

use std::cell::RefCell;
use std::sync::Arc;

use dstack_api::plan::{ImagesFacts, update_in_place};
use dstack_api::repos::{RepoInfo, RunRepoData};
use dstack_api::runs::{
    ApplyAction, ApplyRunPlanRequest, GetRunPlanRequest, GetRunRequest, ListRunsRequest, Run,
    RunPlan, RunSpec, RunStatus,
};
use dstack_engine::admit::{self, JobDefaults, NewRun};
use dstack_engine::changes::{Actor, Changes, Hint, Pipeline, RunPatch};
use dstack_engine::ids::{ProjectId, RunId, UserId};
use dstack_engine::model::RunRow;
use dstack_engine::{names as generated, runs as run_step};
use dstack_store::apply::{self, Applied};
use dstack_store::projects::{self, ProjectRow};
use dstack_store::repos::{self, RepoRow};
use dstack_store::runs::{self, RunRecord, RunsFilter};
use dstack_store::{DbError, Page, Store, Tx, jobs, users};
use uuid::Uuid;

use super::names;
use super::plans::{OfferOptions, Planner, refused};
use super::repos::unknown_repo;
use super::run_views::{self, Detail};
use crate::app::{HintSink, chance, now};
use crate::compat::view::is_as_shown;
use crate::error::ApiError;
use crate::extract::{Access, Authenticated};
use crate::pulls::Pulls;
use crate::settings::SshProxy;

const CHANGED: &str =
    "Failed to apply plan. Resource has been changed. Try again or use force apply.";
const SUBMISSIONS: u32 = 10;

/// The runs of all projects.
pub(crate) struct Runs {
    store: Store,
    planner: Arc<Planner>,
    hints: HintSink,
    sshproxy: Option<SshProxy>,
    pulls: Arc<Pulls>,
}

/// What becomes of an applied specification.
struct Order {
    project: Arc<ProjectRow>,
    user: UserId,
    spec: RunSpec,
    service: Option<dstack_api::runs::ServiceSpec>,
    images: Option<Arc<ImagesFacts>>,
    defaults: JobDefaults,
    /// What the client compared with, defaults filled in.
    seen: Option<(Uuid, RunSpec)>,
    force: bool,
}

impl Runs {
    pub(crate) fn new(
        store: Store,
        planner: Arc<Planner>,
        hints: HintSink,
        sshproxy: Option<SshProxy>,
        pulls: Arc<Pulls>,
    ) -> Self {
        Self {
            store,
            planner,
            hints,
            sshproxy,
            pulls,
        }
    }

    /// One page of the runs that the caller may see.
    pub(crate) async fn list(
        &self,
        caller: &Authenticated,
        request: ListRunsRequest,
    ) -> Result<Vec<Run>, ApiError> {
        names::check_limit(request.limit, 100)?;
        let submissions = request.job_submissions_limit.unwrap_or(SUBMISSIONS);
        if submissions > SUBMISSIONS {
            return Err(ApiError::invalid(
                &["job_submissions_limit"],
                "Input should be less than or equal to 10",
            ));
        }
        let (me, is_admin, with_jobs) = (caller.0.id, caller.is_admin(), request.include_jobs);
        let found = self
            .store
            .read_as(move |tx| {
                let Some(filter) = filter(tx, me, is_admin, request)? else {
                    return Ok(Vec::new());
                };
                let records = runs::list(tx, &filter)?;
                let ids: Vec<RunId> = records.iter().map(|record| record.id).collect();
                let mut jobs = if ids.is_empty() {
                    Default::default()
                } else {
                    jobs::records(tx, &ids, submissions)?
                };
                Ok::<_, ApiError>(
                    records
                        .into_iter()
                        .map(|record| {
                            let jobs = jobs.remove(&record.id).unwrap_or_default();
                            (record, jobs)
                        })
                        .collect(),
                )
            })
            .await?;
        let submissions = usize::try_from(submissions).unwrap_or(usize::MAX);
        let detail = Detail {
            jobs: with_jobs,
            submissions,
            connections: None,
            pulls: Some(&self.pulls),
        };
        let now = now();
        found
            .iter()
            .map(|(record, jobs)| run_views::run(record, jobs, detail, now))
            .collect()
    }

    /// A run by name (not deleted) or id.
    pub(crate) async fn get(
        &self,
        access: &Access,
        request: GetRunRequest,
    ) -> Result<Run, ApiError> {
        let project = access.project.id;
        let GetRunRequest { run_name, id } = request;
        if run_name.is_none() && id.is_none() {
            return Err(ApiError::refused("run_name or id must be specified"));
        }
        let found = self
            .store
            .read(move |tx| {
                let record = match (id, run_name) {
                    (Some(id), _) => runs::record_by_id(tx, RunId(id))?
                        .filter(|record| record.project_id == project),
                    (None, Some(name)) => runs::record_by_name(tx, project, &name)?,
                    (None, None) => None,
                };
                with_jobs(tx, record)
            })
            .await?;
        let (record, jobs) = found.ok_or_else(|| ApiError::not_exists("Run not found"))?;
        self.show(&record, &jobs)
    }

    fn show(&self, record: &RunRecord, jobs: &[jobs::JobRecord]) -> Result<Run, ApiError> {
        let connections = Some(self.sshproxy.as_ref());
        run_views::run(
            record,
            jobs,
            Detail {
                jobs: true,
                submissions: usize::MAX,
                connections,
                pulls: Some(&self.pulls),
            },
            now(),
        )
    }

    /// What applying a specification would do.
    pub(crate) async fn plan(
        &self,
        access: &Access,
        request: GetRunPlanRequest,
    ) -> Result<RunPlan, ApiError> {
        if request
            .max_offers
            .is_some_and(|most| !(1..=10_000).contains(&most))
        {
            return Err(ApiError::invalid(
                &["max_offers"],
                "Input should be between 1 and 10000",
            ));
        }
        let options = OfferOptions {
            max_offers: request.max_offers,
            reverse: request.reverse_offers,
            full_offers: request.full_offers,
            unallocated: request.unallocated_resources,
            offers_only: request.for_offers_only,
        };
        let effective = self
            .planner
            .effective(&access.user, request.run_spec.clone())
            .await?;
        let images = self.planner.images(access.project.id, &effective).await?;
        let jobs = self.planner.jobs(&effective, images.as_deref())?;
        let job_plans = self
            .planner
            .job_plans(&access.project, &effective, jobs, options)
            .await?;
        let current = match &effective.run_name {
            Some(name) => {
                let (project, name) = (access.project.id, name.clone());
                let found = self
                    .store
                    .read(move |tx| {
                        let record = runs::record_by_name(tx, project, &name)?;
                        with_jobs(tx, record)
                    })
                    .await?;
                found
                    .map(|(record, jobs)| self.show(&record, &jobs))
                    .transpose()?
            }
            None => None,
        };
        let updates = current.as_ref().is_some_and(|run| {
            !run.status.is_finished() && update_in_place(&run.run_spec, &effective).is_ok()
        });
        Ok(RunPlan {
            project_name: access.project.name.clone(),
            user: access.user.name.clone(),
            run_spec: request.run_spec,
            effective_run_spec: Some(effective),
            job_plans,
            current_resource: current.map(without_connections),
            action: if updates {
                ApplyAction::Update
            } else {
                ApplyAction::Create
            },
        })
    }

    /// Makes a run, or changes the active one of that name.
    pub(crate) async fn apply(
        &self,
        access: &Access,
        request: ApplyRunPlanRequest,
    ) -> Result<Run, ApiError> {
        let effective = self
            .planner
            .effective(&access.user, request.plan.run_spec)
            .await?;
        let images = self.planner.images(access.project.id, &effective).await?;
        self.planner
            .check_volumes(access.project.id, &effective, images.as_deref())
            .await?;
        let name = effective.run_name.clone().unwrap_or_default();
        let service = self
            .planner
            .service(&access.project.name, &name, &effective)?;
        let seen = request.plan.current_resource.map(|run| {
            let spec = self
                .planner
                .with_defaults(run.run_spec.clone())
                .unwrap_or(run.run_spec);
            (run.id, spec)
        });
        let order = Order {
            project: access.project.clone(),
            user: access.user.id,
            spec: effective,
            service,
            images,
            defaults: self.planner.defaults(),
            seen,
            force: request.force,
        };
        let (found, hints) = self
            .store
            .write_as(move |tx| {
                let (id, hints) = order.carry_out(tx)?;
                let record = runs::record_by_id(tx, id)?;
                Ok::<_, ApiError>((with_jobs(tx, record)?, hints))
            })
            .await?;
        (self.hints)(&hints);
        let (record, jobs) = found.ok_or_else(|| ApiError::not_exists("Run not found"))?;
        self.show(&record, &jobs)
    }

    /// Asks runs to end. Unknown and finished ones are skipped.
    pub(crate) async fn stop(
        &self,
        access: &Access,
        wanted: Vec<String>,
        abort: bool,
    ) -> Result<(), ApiError> {
        let (project, user) = (access.project.id, access.user.id);
        let hints = self
            .store
            .write_as(move |tx| {
                let mut hints = Vec::new();
                for name in wanted {
                    let Some(run) = runs::by_name(tx, project, &name)? else {
                        continue;
                    };
                    if let Some(changes) = run_step::stop(&run, abort, user) {
                        hints.extend(write(tx, &changes)?);
                    }
                }
                Ok::<_, ApiError>(hints)
            })
            .await?;
        (self.hints)(&hints);
        Ok(())
    }

    /// Deletes finished runs; if one is active, none is deleted.
    pub(crate) async fn delete(
        &self,
        access: &Access,
        wanted: Vec<String>,
    ) -> Result<(), ApiError> {
        let (project, user) = (access.project.id, access.user.id);
        self.store
            .write_as(move |tx| {
                let mut rows = Vec::new();
                for name in wanted {
                    rows.extend(runs::by_name(tx, project, &name)?);
                }
                let active: Vec<String> = rows
                    .iter()
                    .filter(|run| !run.status.is_finished())
                    .map(|run| format!("'{}'", run.name))
                    .collect();
                if !active.is_empty() {
                    return Err(ApiError::refused(format!(
                        "Cannot delete active runs: [{}]",
                        active.join(", ")
                    )));
                }
                for run in rows {
                    write(tx, &deletion(&run, user))?;
                }
                Ok(())
            })
            .await
    }
}

impl Order {
    fn carry_out(self, tx: &mut dyn Tx) -> Result<(RunId, Vec<Hint>), ApiError> {
        self.ensure_repo(tx)?;
        let Some(name) = self.spec.run_name.clone() else {
            let name = free_name(tx, self.project.id)?;
            return self.create(tx, name);
        };
        match runs::by_name(tx, self.project.id, &name)? {
            None => self.create(tx, name),
            Some(old) if old.status.is_finished() => {
                write(tx, &deletion(&old, self.user))?;
                self.create(tx, name)
            }
            Some(active) => self.update(tx, &active),
        }
    }

    fn create(mut self, tx: &mut dyn Tx, name: String) -> Result<(RunId, Vec<Hint>), ApiError> {
        if let Some(service) = &mut self.service {
            // Made before the name was chosen.
            let placeholder = format!("/proxy/services/{}//", self.project.name);
            if service.url == placeholder {
                service.url = format!("/proxy/services/{}/{name}/", self.project.name);
                if let Some(model) = &mut service.model {
                    let from = format!("/proxy/services/{}/", self.project.name);
                    let to = format!("/proxy/services/{}/{name}", self.project.name);
                    if let Some(rest) = model.base_url.strip_prefix(&from) {
                        model.base_url = format!("{to}{rest}");
                    }
                }
            }
        }
        self.spec.run_name = Some(name.clone());
        let new = NewRun {
            project_id: self.project.id,
            user_id: self.user,
            name: name.as_str().into(),
            spec: Arc::new(self.spec),
            service: self.service.map(Arc::new),
            images: self.images,
        };
        let (id, changes) = admit::run(&new, &self.defaults, now(), &mut chance())
            .map_err(|error| refused(&error))?;
        Ok((id, write(tx, &changes)?))
    }

    fn update(self, tx: &mut dyn Tx, active: &RunRow) -> Result<(RunId, Vec<Hint>), ApiError> {
        let changed = update_in_place(&active.spec, &self.spec);
        let (Ok(changed), true) = (changed, active.status != RunStatus::Terminating) else {
            return Err(ApiError::refused(
                "Cannot override active run. Stop the run first.",
            ));
        };
        if !self.force
            && !self
                .seen
                .as_ref()
                .is_some_and(|(id, spec)| *id == active.id.0 && is_as_shown(spec, &active.spec))
        {
            return Err(ApiError::refused(CHANGED));
        }
        let number = active.deployment_num + 1;
        let mut changes = Changes::default();
        changes.event(
            format!(
                "Run updated. Deployment: {number}. Changed fields: {}",
                list_or_none(&changed)
            ),
            &[active],
        );
        changes.runs.push(RunPatch {
            priority: Some(i64::from(
                self.spec.configuration.base().priority.unwrap_or(0),
            )),
            spec: Some(Arc::new(self.spec)),
            images: Some(self.images),
            deployment_num: Some(number),
            ..RunPatch::of(active.id)
        });
        changes.hint(Pipeline::Runs, active.id);
        by(&mut changes, self.user);
        Ok((active.id, write(tx, &changes)?))
    }

    /// Repositories of other kinds must have been initialised, since that stores how to clone them.
    fn ensure_repo(&self, tx: &mut dyn Tx) -> Result<(), ApiError> {
        let (Some(id), Some(data)) = (&self.spec.repo_id, &self.spec.repo_data) else {
            return Ok(());
        };
        if repos::get(tx, self.project.id, id)?.is_some() {
            return Ok(());
        }
        if !matches!(data, RunRepoData::Virtual {}) {
            return Err(unknown_repo(id));
        }
        let row = RepoRow {
            id: Uuid::new_v4(),
            project_id: self.project.id,
            name: id.clone(),
            info: RepoInfo::Virtual {},
        };
        repos::put(tx, &row)?;
        Ok(())
    }
}

fn list_or_none(fields: &[String]) -> String {
    if fields.is_empty() {
        "none".to_owned()
    } else {
        fields.join(", ")
    }
}

/// A name that no run of the project has.
fn free_name(tx: &mut dyn Tx, project: ProjectId) -> Result<String, ApiError> {
    let (tx, failed) = (RefCell::new(tx), RefCell::new(None));
    let name = generated::generate(&mut chance(), |name| {
        runs::by_name(&mut **tx.borrow_mut(), project, name)
            .map(|run| run.is_some())
            .unwrap_or_else(|error| {
                *failed.borrow_mut() = Some(error);
                false
            })
    });
    match failed.into_inner() {
        Some(error) => Err(error.into()),
        None => Ok(name),
    }
}

fn deletion(run: &RunRow, user: UserId) -> Changes {
    let mut changes = Changes::default();
    changes.runs.push(RunPatch {
        deleted: Some(true),
        ..RunPatch::of(run.id)
    });
    changes.event("Run deleted", &[run]);
    by(&mut changes, user);
    changes
}

fn by(changes: &mut Changes, user: UserId) {
    for event in &mut changes.events {
        event.actor = Actor::User(user);
    }
}

/// Writes a request's changes; what is to be woken after the commit.
pub(crate) fn write(tx: &mut dyn Tx, changes: &Changes) -> Result<Vec<Hint>, ApiError> {
    let Applied { refused, hints } = apply::apply_request(tx, changes, now())?;
    match refused {
        None => Ok(hints),
        // The row was read in this very transaction, so this cannot be a matter of time.
        Some(refusal) => Err(ApiError::Internal(format!(
            "changes were refused: {refusal:?}"
        ))),
    }
}

type Found = Option<(RunRecord, Vec<jobs::JobRecord>)>;

fn with_jobs(tx: &mut dyn Tx, record: Option<RunRecord>) -> Result<Found, DbError> {
    let Some(record) = record else {
        return Ok(None);
    };
    let jobs = jobs::records(tx, &[record.id], u32::MAX)?
        .remove(&record.id)
        .unwrap_or_default();
    Ok(Some((record, jobs)))
}

/// Connections are shown by `runs/get` and `apply` only.
fn without_connections(mut run: Run) -> Run {
    for job in &mut run.jobs {
        job.job_connection_info = None;
    }
    run
}

/// `None` when nothing can match.
fn filter(
    tx: &mut dyn Tx,
    me: UserId,
    is_admin: bool,
    request: ListRunsRequest,
) -> Result<Option<RunsFilter>, ApiError> {
    let page = Page {
        prev_at: request.prev_submitted_at,
        prev_id: request.prev_run_id,
        limit: request.limit,
        ascending: request.ascending,
    };
    let projects = match &request.project_name {
        Some(name) => {
            let Some(project) = projects::by_name(tx, name)?.filter(|project| !project.deleted)
            else {
                return Ok(None);
            };
            if !is_admin && projects::role(tx, project.id, me)?.is_none() {
                return Ok(None);
            }
            if let Some(repo) = &request.repo_id
                && repos::get(tx, project.id, repo)?.is_none()
            {
                return Err(unknown_repo(repo));
            }
            Some(vec![project.id])
        }
        None if request.repo_id.is_some() => return Ok(None),
        None if is_admin => None,
        None => Some(projects::ids_of_member(tx, me)?),
    };
    let user = match request.username {
        Some(name) => {
            let user = users::by_name(tx, &name)?.filter(|user| !user.deleted);
            Some(
                user.ok_or_else(|| ApiError::not_exists("User not found"))?
                    .id,
            )
        }
        None => None,
    };
    Ok(Some(RunsFilter {
        projects,
        user,
        repo: request.repo_id,
        only_active: request.only_active,
        page,
    }))
}
