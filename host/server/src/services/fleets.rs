//! Fleets and their instances: plan, apply, look, delete.

mod machine;
pub(crate) mod own_hosts;

use std::sync::Arc;

use dstack_api::fleets::{
    ApplyFleetPlanRequest, Fleet, FleetPlan, FleetSpec, GetFleetRequest, ListFleetsRequest,
};
use dstack_api::instances::{Instance, ListInstancesRequest};
use dstack_api::plan::check_fleet;
use dstack_api::runs::ApplyAction;
use dstack_engine::changes::{Actor, Hint};
use dstack_engine::combine::Wanted;
use dstack_engine::ids::{FleetId, InstanceId, ProjectId, UserId};
use dstack_engine::model::{FleetRow, InstanceRow};
use dstack_engine::plan_diff::{FleetUpdate, fleet_update};
use dstack_engine::preview::Ask;
use dstack_engine::{fleets as fleet_step, names as generated, new_fleet, spec, ssh_hosts};
use dstack_store::fleets::{self, FleetsFilter};
use dstack_store::instances::{self, InstancesFilter};
use dstack_store::{Page, Store, Tx, exports, projects, views};
use uuid::Uuid;

use super::keyring::Keyring;
use super::names;
use super::plans::Planner;
use super::runs::write;
use crate::app::{HintSink, Permissions, chance, now};
use crate::compat::view::is_as_shown;
use crate::error::ApiError;
use crate::extract::{Access, Authenticated};
use machine::{labelled, view};
use own_hosts::{Logins, without_keys};

const CHANGED: &str =
    "Failed to apply plan. Resource has been changed. Try again or use force apply.";
const PLAN_OFFERS: usize = 50;

/// The fleets of all projects.
pub(crate) struct Fleets {
    store: Store,
    keyring: Keyring,
    planner: Arc<Planner>,
    permissions: Permissions,
    hints: HintSink,
}

/// A fleet with what it shows.
struct Whole {
    row: FleetRow,
    project: String,
    instances: Vec<InstanceRow>,
}

fn not_found() -> ApiError {
    ApiError::not_exists("Resource not found")
}

impl Fleets {
    pub(crate) fn new(
        store: Store,
        keyring: Keyring,
        planner: Arc<Planner>,
        permissions: Permissions,
        hints: HintSink,
    ) -> Self {
        Self {
            store,
            keyring,
            planner,
            permissions,
            hints,
        }
    }

    /// One page of the fleets of the caller's projects.
    pub(crate) async fn list(
        &self,
        caller: &Authenticated,
        request: ListFleetsRequest,
    ) -> Result<Vec<Fleet>, ApiError> {
        names::check_limit(request.limit, 100)?;
        let (me, is_admin) = (caller.0.id, caller.is_admin());
        let found = self
            .store
            .read_as(move |tx| {
                let names = request.project_name.map(|name| vec![name]);
                let projects = visible(tx, me, is_admin, names)?;
                let imported = lent_to(tx, projects.as_deref(), request.include_imported)?;
                let page = Page {
                    prev_at: request.prev_created_at,
                    prev_id: request.prev_id,
                    limit: request.limit,
                    ascending: request.ascending,
                };
                let rows = fleets::list(
                    tx,
                    &FleetsFilter {
                        projects,
                        imported,
                        only_active: request.only_active,
                        page,
                    },
                )?;
                whole(tx, rows)
            })
            .await?;
        Ok(found.into_iter().map(show).collect())
    }

    /// The project's fleets, newest first; then those that it imports, if they are wanted.
    pub(crate) async fn of_project(
        &self,
        access: &Access,
        imported: bool,
    ) -> Result<Vec<Fleet>, ApiError> {
        let id = access.project.id;
        let found = self
            .store
            .read_as(move |tx| {
                let mut rows = fleets::of_project(tx, id)?;
                if imported {
                    for fleet in exports::imported_fleets(tx, id)? {
                        rows.extend(fleets::get(tx, fleet)?);
                    }
                }
                whole(tx, rows)
            })
            .await?;
        Ok(found.into_iter().map(show).collect())
    }

    /// A fleet by name (not deleted) or id.
    pub(crate) async fn get(
        &self,
        access: &Access,
        request: GetFleetRequest,
    ) -> Result<Fleet, ApiError> {
        let project = access.project.id;
        let guest = (!access.is_member()).then_some(access.user.id);
        let GetFleetRequest { name, id } = request;
        if name.is_none() && id.is_none() {
            return Err(ApiError::refused("name or id must be specified"));
        }
        let found = self
            .store
            .read_as(move |tx| {
                let row = match (id, name) {
                    (Some(id), _) => {
                        fleets::get(tx, FleetId(id))?.filter(|row| row.project_id == project)
                    }
                    (None, Some(name)) => fleets::by_name(tx, project, &name)?,
                    (None, None) => None,
                };
                check_guest(tx, guest, row.as_ref().map(|row| row.id))?;
                whole(tx, row.into_iter().collect())
            })
            .await?;
        found.into_iter().next().map(show).ok_or_else(not_found)
    }

    /// What applying a specification would do.
    pub(crate) async fn plan(
        &self,
        access: &Access,
        given: FleetSpec,
    ) -> Result<FleetPlan, ApiError> {
        self.check(access, &given)?;
        let effective = without_keys(given.clone());
        let current = match &effective.configuration.name {
            Some(name) => {
                let (project, name) = (access.project.id, name.clone());
                let found = self
                    .store
                    .read_as(move |tx| {
                        let row = fleets::by_name(tx, project, &name)?;
                        whole(tx, row.into_iter().collect())
                    })
                    .await?;
                found.into_iter().next().map(show)
            }
            None => None,
        };
        let wanted = Wanted::of_fleet(FleetId(Uuid::nil()), &effective, None);
        let able = self.planner.backends(access.project.id).await;
        let backends = able
            .iter()
            .filter(|one| wanted.accepts_backend(one))
            .map(|one| one.name.clone())
            .collect();
        let sharing = spec::sharing(&effective);
        let ask = Ask {
            reuse: wanted.clone(),
            wanted,
            sharing,
            backends,
            pool: Vec::new(),
            enough: false,
        };
        let mut offers = if spec::is_ssh(&effective) {
            Vec::new()
        } else {
            self.planner.fleet_offers(access.project.id, &ask).await
        };
        let total_offers = u64::try_from(offers.len()).unwrap_or(u64::MAX);
        let max_offer_price = offers
            .iter()
            .map(|offer| offer.price)
            .max_by(f64::total_cmp);
        offers.truncate(PLAN_OFFERS);
        let updates = current
            .as_ref()
            .is_some_and(|fleet| fleet_update(&fleet.spec, &effective).is_ok());
        Ok(FleetPlan {
            project_name: access.project.name.clone(),
            user: access.user.name.clone(),
            spec: given,
            effective_spec: Some(effective),
            current_resource: current,
            offers,
            total_offers,
            max_offer_price,
            action: Some(if updates {
                ApplyAction::Update
            } else {
                ApplyAction::Create
            }),
        })
    }

    fn check(&self, access: &Access, spec: &FleetSpec) -> Result<(), ApiError> {
        let configuration = &spec.configuration;
        if let Some(name) = &configuration.name {
            names::check_resource(name)?;
        }
        match (&configuration.ssh_config, &configuration.nodes) {
            (None, None) => return Err(ApiError::refused("No ssh_config or nodes specified")),
            (Some(_), Some(_)) => {
                return Err(ApiError::refused(
                    "ssh_config and nodes are mutually exclusive",
                ));
            }
            (None, Some(_)) | (Some(_), None) => {}
        }
        check_fleet(configuration).map_err(|error| ApiError::refused(error.to_string()))?;
        if configuration.ssh_config.is_some() && !self.may_manage_hosts(access) {
            return Err(ApiError::access_denied());
        }
        Ok(())
    }

    /// The permission `can_manage_ssh_fleets`.
    fn may_manage_hosts(&self, access: &Access) -> bool {
        access.is_project_admin() || self.permissions.non_admins_manage_ssh_fleets
    }

    /// Makes a fleet, or changes the one of that name.
    pub(crate) async fn apply(
        &self,
        access: &Access,
        request: ApplyFleetPlanRequest,
    ) -> Result<Fleet, ApiError> {
        let ApplyFleetPlanRequest { plan, force } = request;
        self.check(access, &plan.spec)?;
        let logins = own_hosts::logins(&plan.spec, &self.keyring)?;
        let new = without_keys(plan.spec);
        let (project, user) = (access.project.id, access.user.id);
        let (found, hints) = self
            .store
            .write_as(move |tx| {
                let seen = plan.current_resource;
                let (id, hints) = carry_out(tx, project, user, new, seen, force, &logins)?;
                let row = fleets::get(tx, id)?;
                Ok::<_, ApiError>((whole(tx, row.into_iter().collect())?, hints))
            })
            .await?;
        (self.hints)(&hints);
        found.into_iter().next().map(show).ok_or_else(not_found)
    }

    /// Deletes fleets, or instances of one fleet. The pipelines do the rest.
    pub(crate) async fn delete(
        &self,
        access: &Access,
        wanted: Vec<String>,
        numbers: Option<Vec<u32>>,
    ) -> Result<(), ApiError> {
        let (project, user) = (access.project.id, access.user.id);
        let may_manage_hosts = self.may_manage_hosts(access);
        let hints = self
            .store
            .write_as(move |tx| {
                let mut hints = Vec::new();
                for name in wanted {
                    let Some(row) = fleets::by_name(tx, project, &name)? else {
                        if numbers.is_some() {
                            return Err(not_found());
                        }
                        continue;
                    };
                    if row.spec.configuration.ssh_config.is_some() && !may_manage_hosts {
                        return Err(ApiError::access_denied());
                    }
                    let Some(view) = views::fleet(tx, row.id, now())? else {
                        continue;
                    };
                    let mut changes = fleet_step::delete(&view, numbers.as_deref())
                        .map_err(|_| in_use(&name, numbers.as_deref()))?;
                    for event in &mut changes.events {
                        event.actor = Actor::User(user);
                    }
                    hints.extend(write(tx, &changes)?);
                }
                Ok(hints)
            })
            .await?;
        (self.hints)(&hints);
        Ok(())
    }

    /// One page of the instances of the caller's projects.
    pub(crate) async fn instances(
        &self,
        caller: &Authenticated,
        request: ListInstancesRequest,
    ) -> Result<Vec<Instance>, ApiError> {
        let (me, is_admin) = (caller.0.id, caller.is_admin());
        self.store
            .read_as(move |tx| {
                let projects = visible(tx, me, is_admin, request.project_names)?;
                let imported = lent_to(tx, projects.as_deref(), request.include_imported)?;
                let filter = InstancesFilter {
                    projects,
                    imported,
                    fleets: request
                        .fleet_ids
                        .map(|ids| ids.into_iter().map(FleetId).collect()),
                    only_active: request.only_active,
                    page: Page {
                        prev_at: request.prev_created_at,
                        prev_id: request.prev_id,
                        limit: request.limit,
                        ascending: request.ascending,
                    },
                };
                let rows = instances::list(tx, &filter)?;
                rows.iter().map(|row| labelled(tx, row)).collect()
            })
            .await
    }

    /// An instance by id.
    pub(crate) async fn instance(&self, access: &Access, id: Uuid) -> Result<Instance, ApiError> {
        let project = access.project.id;
        let guest = (!access.is_member()).then_some(access.user.id);
        self.store
            .read_as(move |tx| {
                let row =
                    instances::get(tx, InstanceId(id))?.filter(|row| row.project_id == project);
                check_guest(tx, guest, row.as_ref().map(|row| row.fleet_id))?;
                labelled(tx, &row.ok_or_else(not_found)?)
            })
            .await
    }
}

/// Refuses a user who is no member, unless one of their projects imports the fleet.
fn check_guest(
    tx: &mut dyn Tx,
    guest: Option<UserId>,
    fleet: Option<FleetId>,
) -> Result<(), ApiError> {
    let Some(user) = guest else { return Ok(()) };
    for project in fleet.map_or(Ok(Vec::new()), |id| exports::fleet_importers(tx, id))? {
        if projects::role(tx, project, user)?.is_some() {
            return Ok(());
        }
    }
    Err(ApiError::access_denied())
}

fn in_use(name: &str, numbers: Option<&[u32]>) -> ApiError {
    ApiError::refused(match numbers {
        None => format!("Failed to delete fleet {name}. Fleet is in use."),
        Some(numbers) => format!(
            "Failed to delete fleet {name} instances {numbers:?}. Fleet instances are in use."
        ),
    })
}

fn carry_out(
    tx: &mut dyn Tx,
    project: ProjectId,
    user: UserId,
    mut new: FleetSpec,
    seen: Option<Fleet>,
    force: bool,
    logins: &Logins,
) -> Result<(FleetId, Vec<Hint>), ApiError> {
    let name = match new.configuration.name.clone() {
        Some(name) => name,
        None => {
            let taken = fleets::names(tx, project)?;
            let name = generated::generate(&mut chance(), |name| {
                taken.iter().any(|other| other == name)
            });
            new.configuration.name = Some(name.clone());
            name
        }
    };
    let Some(old) = fleets::by_name(tx, project, &name)? else {
        own_hosts::check_free(tx, &new, None)?;
        let (id, changes) = new_fleet::create(project, user, &name, new, now(), &mut chance());
        own_hosts::store(tx, &changes, logins)?;
        return Ok((id, write(tx, &changes)?));
    };
    let stored = without_keys((*old.spec).clone());
    let update = match fleet_update(&stored, &without_keys(new.clone())) {
        Ok(update) => update,
        Err(_) if seen.is_none() && !force => return Err(ApiError::exists("Resource exists")),
        Err(error) => {
            return Err(ApiError::refused(format!(
                "Failed to update fleet: {error}. Delete the fleet first, then create it anew."
            )));
        }
    };
    let is_current =
        |seen: Fleet| seen.id == old.id.0 && is_as_shown(&without_keys(seen.spec), &stored);
    if !force && !seen.is_some_and(is_current) {
        return Err(ApiError::refused(CHANGED));
    }
    if spec::is_ssh(&new) {
        let hints = update_hosts(tx, &old, new, &update, user, logins)?;
        return Ok((old.id, hints));
    }
    if update == FleetUpdate::default() {
        return Ok((old.id, Vec::new()));
    }
    let changes = new_fleet::update(&old, new, &update.changed, user);
    Ok((old.id, write(tx, &changes)?))
}

/// Hosts come and go; those that could not be prepared are tried again.
fn update_hosts(
    tx: &mut dyn Tx,
    old: &FleetRow,
    new: FleetSpec,
    update: &FleetUpdate,
    user: UserId,
    logins: &Logins,
) -> Result<Vec<Hint>, ApiError> {
    own_hosts::check_free(tx, &new, Some(old.id))?;
    let Some(view) = views::fleet(tx, old.id, now())? else {
        return Err(not_found());
    };
    let mut changes = ssh_hosts::update(&view, &new, &mut chance())
        .map_err(|error| ApiError::refused(format!("Failed to update fleet: {error}.")))?;
    for event in &mut changes.events {
        event.actor = Actor::User(user);
    }
    own_hosts::store(tx, &changes, logins)?;
    let mut hints = write(tx, &changes)?;
    if *update != FleetUpdate::default() {
        let changes = new_fleet::update(old, new, &update.changed, user);
        hints.extend(write(tx, &changes)?);
    }
    Ok(hints)
}

/// The projects to look in; `None` is all.
pub(super) fn visible(
    tx: &mut dyn Tx,
    me: UserId,
    is_admin: bool,
    names: Option<Vec<String>>,
) -> Result<Option<Vec<ProjectId>>, ApiError> {
    let Some(names) = names else {
        return Ok(if is_admin {
            None
        } else {
            Some(projects::ids_of_member(tx, me)?)
        });
    };
    let mut found = Vec::new();
    for name in names {
        let Some(project) = projects::by_name(tx, &name)?.filter(|project| !project.deleted) else {
            continue;
        };
        if is_admin || projects::role(tx, project.id, me)?.is_some() {
            found.push(project.id);
        }
    }
    Ok(Some(found))
}

/// The fleets that these projects import; `None` (all projects) has them all anyway.
fn lent_to(
    tx: &mut dyn Tx,
    projects: Option<&[ProjectId]>,
    wanted: bool,
) -> Result<Vec<FleetId>, ApiError> {
    let mut found = Vec::new();
    for project in projects.filter(|_| wanted).into_iter().flatten() {
        for fleet in exports::imported_fleets(tx, *project)? {
            if !found.contains(&fleet) {
                found.push(fleet);
            }
        }
    }
    Ok(found)
}

fn whole(tx: &mut dyn Tx, rows: Vec<FleetRow>) -> Result<Vec<Whole>, ApiError> {
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let project = projects::get(tx, row.project_id)?
            .map(|project| project.name)
            .unwrap_or_default();
        found.push(Whole {
            instances: instances::of_fleet(tx, row.id)?,
            project,
            row,
        });
    }
    Ok(found)
}

fn show(whole: Whole) -> Fleet {
    let Whole {
        row,
        project,
        instances,
    } = whole;
    Fleet {
        id: row.id.0,
        name: row.name.to_string(),
        project_name: project.clone(),
        spec: without_keys((*row.spec).clone()),
        created_at: row.created_at,
        status: row.status,
        status_message: row.status_message,
        instances: instances
            .iter()
            .map(|instance| view(instance, &project, &row.name))
            .collect(),
    }
}
