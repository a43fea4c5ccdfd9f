//! Gateways: plan, apply, look, delete, and which one services use by default.

use std::sync::Arc;

use dstack_api::config::GatewayConfiguration;
use dstack_api::gateways::{
    ApplyGatewayPlanRequest, Gateway, GatewayPlan, GatewayReplica, GatewaySpec, GatewayStatus,
    SetDefaultGatewayRequest, SetWildcardDomainRequest,
};
use dstack_api::plan::{PlanLimits, check_gateway};
use dstack_api::runs::ApplyAction;
use dstack_backend_types::capability;
use dstack_engine::changes::Hint;
use dstack_engine::gateways as gateway_step;
use dstack_engine::ids::{ProjectId, UserId};
use dstack_engine::model::{GatewayReplicaRow, GatewayRow};
use dstack_engine::names as generated;
use dstack_store::{DbError, Store, Tx, gateways, projects};

use super::names;
use super::runs::write;
use crate::app::{HintSink, chance, now};
use crate::error::ApiError;
use crate::extract::Access;
use crate::ports::Clouds;

const CHANGED: &str =
    "Failed to apply plan. Resource has been changed. Try again or use force apply.";

/// The gateways of all projects.
pub(crate) struct Gateways {
    store: Store,
    clouds: Arc<dyn Clouds>,
    hints: HintSink,
    max_replicas: u32,
}

/// A gateway with what it shows.
struct Whole {
    row: GatewayRow,
    replicas: Vec<GatewayReplicaRow>,
    project: String,
    is_default: bool,
}

fn not_found() -> ApiError {
    ApiError::not_exists("Resource not found")
}

impl Gateways {
    pub(crate) fn new(
        store: Store,
        clouds: Arc<dyn Clouds>,
        hints: HintSink,
        max_replicas: u32,
    ) -> Self {
        Self {
            store,
            clouds,
            hints,
            max_replicas,
        }
    }

    /// The project's gateways, newest first.
    pub(crate) async fn of_project(&self, project: ProjectId) -> Result<Vec<Gateway>, ApiError> {
        let found = self
            .store
            .read_as(move |tx| {
                let rows = gateways::of_project(tx, project)?;
                whole(tx, rows, project)
            })
            .await?;
        found.into_iter().map(show).collect()
    }

    /// A gateway by name.
    pub(crate) async fn get(&self, project: ProjectId, name: String) -> Result<Gateway, ApiError> {
        let found = self
            .store
            .read_as(move |tx| {
                let row = gateways::by_name(tx, project, &name)?;
                whole(tx, row.into_iter().collect(), project)
            })
            .await?;
        show(found.into_iter().next().ok_or_else(not_found)?)
    }

    /// What applying a specification would do.
    pub(crate) async fn plan(
        &self,
        access: &Access,
        spec: GatewaySpec,
    ) -> Result<GatewayPlan, ApiError> {
        self.check(&spec.configuration)?;
        let project = access.project.id;
        let (name, wanted) = (spec.configuration.name.clone(), spec.configuration.clone());
        let (current, action) = self
            .store
            .read_as(move |tx| {
                let Some(name) = name else {
                    return Ok((None, ApplyAction::Create));
                };
                let Some(row) = gateways::by_name(tx, project, &name)? else {
                    return Ok((None, ApplyAction::Create));
                };
                check_state(&row)?;
                let action = match changes_of(&row.configuration, &wanted) {
                    Some(_) => ApplyAction::Update,
                    None => ApplyAction::Create,
                };
                let found = whole(tx, vec![row], project)?;
                Ok::<_, ApiError>((found.into_iter().next(), action))
            })
            .await?;
        Ok(GatewayPlan {
            project_name: access.project.name.clone(),
            user: access.user.name.clone(),
            effective_spec: spec.clone(),
            spec,
            current_resource: current.map(show).transpose()?,
            action,
        })
    }

    fn check(&self, configuration: &GatewayConfiguration) -> Result<(), ApiError> {
        if let Some(name) = &configuration.name {
            names::check_resource(name)?;
        }
        let limits = PlanLimits {
            gateway_replicas: self.max_replicas,
            ..PlanLimits::default()
        };
        check_gateway(configuration, &limits).map_err(|error| ApiError::refused(error.to_string()))
    }

    /// Makes a gateway, or changes the one of that name.
    pub(crate) async fn apply(
        &self,
        access: &Access,
        request: ApplyGatewayPlanRequest,
    ) -> Result<Gateway, ApiError> {
        let ApplyGatewayPlanRequest { plan, force } = request;
        let configuration = plan.spec.configuration;
        self.check(&configuration)?;
        self.check_backend(access.project.id, &configuration)
            .await?;
        let order = Order {
            project: access.project.id,
            user: access.user.id,
            configuration,
            seen: plan.current_resource,
            force,
        };
        let project = access.project.id;
        let (found, hints) = self
            .store
            .write_as(move |tx| {
                let (name, hints) = order.carry_out(tx)?;
                let row = gateways::by_name(tx, project, &name)?;
                let found = whole(tx, row.into_iter().collect(), project)?;
                Ok::<_, ApiError>((found, hints))
            })
            .await?;
        (self.hints)(&hints);
        show(found.into_iter().next().ok_or_else(not_found)?)
    }

    /// The backend has to be there when something is to be made.
    async fn check_backend(
        &self,
        project: ProjectId,
        configuration: &GatewayConfiguration,
    ) -> Result<(), ApiError> {
        let backend = &configuration.backend;
        let opened = self.clouds.open(project, backend).await;
        let opened = opened.map_err(|error| {
            tracing::info!(
                backend = backend.as_str(),
                error = error.message,
                "a gateway's backend cannot be used"
            );
            ApiError::backend_not_available()
        })?;
        let manifest = opened.manifest();
        let mut needs = vec![(capability::GATEWAY, "gateways")];
        if !configuration.public_ip {
            let what = "gateways without a public address";
            needs.push((capability::PRIVATE_GATEWAY, what));
        }
        if gateway_step::has_balancer(configuration) {
            let what = "load balancers before gateways";
            needs.push((capability::GATEWAY_LOAD_BALANCER, what));
        }
        match needs.iter().find(|(need, _)| !manifest.has(need)) {
            Some((_, what)) => Err(ApiError::refused(format!(
                "The backend {backend} has no {what}"
            ))),
            None => Ok(()),
        }
    }

    /// Asks for the end of gateways. Unknown ones are ignored.
    pub(crate) async fn delete(
        &self,
        access: &Access,
        wanted: Vec<String>,
    ) -> Result<(), ApiError> {
        let (project, user) = (access.project.id, access.user.id);
        let hints = self
            .store
            .write_as(move |tx| {
                let mut hints = Vec::new();
                for name in wanted {
                    let Some(row) = gateways::by_name(tx, project, &name)? else {
                        continue;
                    };
                    gateways::unset_default(tx, project, row.id)?;
                    hints.extend(write(tx, &gateway_step::delete(&row, user))?);
                }
                Ok::<_, ApiError>(hints)
            })
            .await?;
        (self.hints)(&hints);
        Ok(())
    }

    /// Makes a gateway the one that services of the project use by default.
    pub(crate) async fn set_default(
        &self,
        access: &Access,
        request: SetDefaultGatewayRequest,
    ) -> Result<(), ApiError> {
        let (project, user) = (access.project.id, access.user.id);
        let own = access.project.name.clone();
        self.store
            .write_as(move |tx| {
                if request.gateway_project.is_some_and(|other| other != own) {
                    return Err(not_found());
                }
                let row = gateways::by_name(tx, project, &request.name)?.ok_or_else(not_found)?;
                if row.delete_asked {
                    return Err(ApiError::refused(
                        "Cannot set gateway marked for deletion as default",
                    ));
                }
                make_default(tx, project, &row, user)
            })
            .await
    }

    /// Changes the domain of a gateway.
    pub(crate) async fn set_domain(
        &self,
        access: &Access,
        request: SetWildcardDomainRequest,
    ) -> Result<Gateway, ApiError> {
        let (project, user) = (access.project.id, access.user.id);
        let SetWildcardDomainRequest {
            name,
            wildcard_domain,
        } = request;
        let wanted = name.clone();
        let row = self
            .store
            .read(move |tx| gateways::by_name(tx, project, &wanted))
            .await?;
        let row = row.ok_or_else(not_found)?;
        let configuration = GatewayConfiguration {
            domain: wildcard_domain,
            ..GatewayConfiguration::clone(&row.configuration)
        };
        self.check(&configuration)?;
        let hints = self
            .store
            .write_as(move |tx| {
                check_state(&row)?;
                let changes = gateway_step::update(&row, configuration, &["domain"], user);
                write(tx, &changes)
            })
            .await?;
        (self.hints)(&hints);
        self.get(project, name).await
    }
}

/// What becomes of an applied configuration.
struct Order {
    project: ProjectId,
    user: UserId,
    configuration: GatewayConfiguration,
    seen: Option<Gateway>,
    force: bool,
}

impl Order {
    fn carry_out(self, tx: &mut dyn Tx) -> Result<(String, Vec<Hint>), ApiError> {
        let Self {
            project,
            user,
            mut configuration,
            seen,
            force,
        } = self;
        let wants_default = configuration.default.take();
        let name = match configuration.name.clone() {
            Some(name) => name,
            None => {
                let taken = gateways::names(tx, project)?;
                let is_taken = |name: &str| taken.iter().any(|other| other == name);
                generated::generate(&mut chance(), is_taken)
            }
        };
        configuration.name = Some(name.clone());
        let Some(old) = gateways::by_name(tx, project, &name)? else {
            let (row, changes) =
                gateway_step::create(project, user, &name, configuration, now(), &mut chance());
            let hints = write(tx, &changes)?;
            let has_none = gateways::default_of(tx, project)?.is_none();
            if wants_default.unwrap_or(has_none) {
                make_default(tx, project, &row, user)?;
            }
            return Ok((name, hints));
        };
        check_state(&old)?;
        let Some(changed) = changes_of(&old.configuration, &configuration) else {
            if seen.is_none() && !force {
                return Err(ApiError::exists("Resource exists"));
            }
            return Err(ApiError::refused(format!(
                "Gateway {name} cannot be updated in-place. Delete it and re-apply."
            )));
        };
        if !force && !seen.is_some_and(|seen| is_same(&seen, &old)) {
            return Err(ApiError::refused(CHANGED));
        }
        let mut hints = Vec::new();
        if !changed.is_empty() {
            let changes = gateway_step::update(&old, configuration, &changed, user);
            hints = write(tx, &changes)?;
        }
        match wants_default {
            Some(true) => make_default(tx, project, &old, user)?,
            Some(false) if gateways::unset_default(tx, project, old.id)? => {
                write(tx, &gateway_step::tell_default(&old, false, user))?;
            }
            Some(false) | None => {}
        }
        Ok((name, hints))
    }
}

fn make_default(
    tx: &mut dyn Tx,
    project: ProjectId,
    row: &GatewayRow,
    user: UserId,
) -> Result<(), ApiError> {
    let before = gateways::default_of(tx, project)?;
    if before.as_ref().is_some_and(|before| before.id == row.id) {
        return Ok(());
    }
    gateways::set_default(tx, project, row.id)?;
    if let Some(before) = before {
        write(tx, &gateway_step::tell_default(&before, false, user))?;
    }
    write(tx, &gateway_step::tell_default(row, true, user))?;
    Ok(())
}

fn check_state(row: &GatewayRow) -> Result<(), ApiError> {
    let name = &row.name;
    if row.delete_asked {
        return Err(ApiError::refused(format!(
            "Gateway {name} is being deleted. Wait until it is gone."
        )));
    }
    if row.status == GatewayStatus::Failed {
        return Err(ApiError::refused(format!(
            "Gateway {name} has failed and cannot be updated. Delete it and re-apply."
        )));
    }
    Ok(())
}

/// The fields that an update in place would change; `None` if it cannot be one.
fn changes_of(old: &GatewayConfiguration, new: &GatewayConfiguration) -> Option<Vec<&'static str>> {
    let same = GatewayConfiguration {
        domain: old.domain.clone(),
        replicas: old.replicas,
        default: old.default,
        ..new.clone()
    };
    if same != *old {
        return None;
    }
    let mut changed = Vec::new();
    if old.domain != new.domain {
        changed.push("domain");
    }
    if gateway_step::wanted_replicas(old) != gateway_step::wanted_replicas(new) {
        changed.push("replicas");
    }
    Some(changed)
}

/// Whether the client saw the gateway as it is stored.
fn is_same(seen: &Gateway, row: &GatewayRow) -> bool {
    let stated: Result<GatewayConfiguration, _> =
        serde_json::from_value(seen.configuration.clone());
    let Ok(mut stated) = stated else {
        return false;
    };
    stated.default = row.configuration.default;
    seen.id == row.id.0 && stated == *row.configuration
}

fn whole(
    tx: &mut dyn Tx,
    rows: Vec<GatewayRow>,
    project: ProjectId,
) -> Result<Vec<Whole>, DbError> {
    let default = gateways::default_of(tx, project)?.map(|row| row.id);
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let name = projects::get(tx, row.project_id)?.map(|project| project.name);
        found.push(Whole {
            replicas: gateways::replicas(tx, row.id)?,
            project: name.unwrap_or_default(),
            is_default: default == Some(row.id),
            row,
        });
    }
    Ok(found)
}

fn show(whole: Whole) -> Result<Gateway, ApiError> {
    let Whole {
        row,
        replicas,
        project,
        is_default,
    } = whole;
    let configuration = GatewayConfiguration {
        default: Some(is_default),
        ..GatewayConfiguration::clone(&row.configuration)
    };
    let shown = serde_json::to_value(&configuration)
        .map_err(|error| ApiError::Internal(error.to_string()))?;
    let shown_replicas: Vec<GatewayReplica> = replicas
        .iter()
        .filter(|replica| replica.is_living() || row.status == GatewayStatus::Failed)
        .map(|replica| show_replica(replica, &configuration))
        .collect();
    let balancer = row.load_balancer.as_deref();
    Ok(Gateway {
        id: row.id.0,
        name: row.name.to_string(),
        project_name: project,
        hostname: balancer.map(|balancer| balancer.hostname.clone()).or_else(
            || match shown_replicas.as_slice() {
                [only] => only.hostname.clone(),
                _ => None,
            },
        ),
        wildcard_domain: configuration.domain.clone(),
        configuration: shown,
        created_at: row.created_at,
        status: row.status,
        status_message: row.status_message.clone(),
        default: is_default,
        replicas: shown_replicas,
        backend: None,
        region: None,
        ip_address: None,
        instance_id: None,
    })
}

fn show_replica(
    replica: &GatewayReplicaRow,
    configuration: &GatewayConfiguration,
) -> GatewayReplica {
    let machine = replica.provisioning_data.as_deref();
    GatewayReplica {
        hostname: machine.map(|machine| {
            let name = machine.hostname.clone();
            name.unwrap_or_else(|| machine.ip_address.clone())
        }),
        replica_num: replica.replica_num,
        backend: Some(configuration.backend.clone()),
        region: Some(machine.map_or_else(|| configuration.region.clone(), |it| it.region.clone())),
        created_at: replica.created_at,
        status: replica.status,
        status_message: replica.status_message.clone(),
    }
}
