//! Volumes: make, look, delete.

use dstack_api::config::VolumeConfiguration;
use dstack_api::plan::check_volume;
use dstack_api::volumes::{
    CreateVolumeRequest, ListVolumesRequest, Volume, VolumeAttachment, VolumeInstance,
};
use dstack_engine::ids::VolumeId;
use dstack_engine::model::VolumeRow;
use dstack_engine::{names as generated, volumes as volume_step};
use dstack_store::apply::{self, Refusal};
use dstack_store::volumes::{self, AttachedAt, VolumesFilter};
use dstack_store::{Page, Store, Tx, projects, users};
use jiff::Timestamp;

use super::fleets::visible;
use super::names;
use super::runs::write;
use crate::app::{HintSink, chance, now};
use crate::error::ApiError;
use crate::extract::{Access, Authenticated};

/// The volumes of all projects.
pub(crate) struct Volumes {
    store: Store,
    hints: HintSink,
}

/// A volume with what it shows.
struct Whole {
    row: VolumeRow,
    project: String,
    user: String,
    places: Vec<AttachedAt>,
}

impl Volumes {
    pub(crate) fn new(store: Store, hints: HintSink) -> Self {
        Self { store, hints }
    }

    /// One page of the volumes of the caller's projects.
    pub(crate) async fn list(
        &self,
        caller: &Authenticated,
        request: ListVolumesRequest,
    ) -> Result<Vec<Volume>, ApiError> {
        names::check_limit(request.limit, 100)?;
        let (me, is_admin) = (caller.0.id, caller.is_admin());
        let found = self
            .store
            .read_as(move |tx| {
                let names = request.project_name.map(|name| vec![name]);
                let projects = visible(tx, me, is_admin, names)?;
                let page = Page {
                    prev_at: request.prev_created_at,
                    prev_id: request.prev_id,
                    limit: request.limit,
                    ascending: request.ascending,
                };
                let filter = VolumesFilter {
                    projects,
                    only_active: request.only_active,
                    page,
                };
                let rows = volumes::list(tx, &filter)?;
                whole(tx, rows)
            })
            .await?;
        show_all(found)
    }

    /// The project's volumes, newest first.
    pub(crate) async fn of_project(&self, access: &Access) -> Result<Vec<Volume>, ApiError> {
        let id = access.project.id;
        let found = self
            .store
            .read_as(move |tx| {
                let rows = volumes::of_project(tx, id)?;
                whole(tx, rows)
            })
            .await?;
        show_all(found)
    }

    /// A volume by name.
    pub(crate) async fn get(&self, access: &Access, name: String) -> Result<Volume, ApiError> {
        let project = access.project.id;
        let found = self
            .store
            .read_as(move |tx| {
                let row = volumes::by_name(tx, project, &name)?;
                whole(tx, row.into_iter().collect())
            })
            .await?;
        first(found)
    }

    /// Makes a volume. Its row is there at once; the provider is called by its pipeline.
    pub(crate) async fn create(
        &self,
        access: &Access,
        request: CreateVolumeRequest,
    ) -> Result<Volume, ApiError> {
        let mut configuration = read(request)?;
        if let Some(name) = &configuration.name {
            names::check_resource(name)?;
        }
        check_volume(&configuration).map_err(|error| ApiError::refused(error.to_string()))?;
        let (project, user) = (access.project.id, access.user.id);
        let (found, hints) = self
            .store
            .write_as(move |tx| {
                let name = match configuration.name.clone() {
                    Some(name) if volumes::by_name(tx, project, &name)?.is_some() => {
                        return Err(ApiError::exists("Resource exists"));
                    }
                    Some(name) => name,
                    None => {
                        let taken = volumes::names(tx, project)?;
                        let is_taken = |name: &str| taken.iter().any(|other| other == name);
                        generated::generate(&mut chance(), is_taken)
                    }
                };
                configuration.name = Some(name.clone());
                let made = (project, user);
                let (id, changes) =
                    volume_step::create(made.0, made.1, &name, configuration, now(), &mut chance());
                let hints = write(tx, &changes)?;
                Ok::<_, ApiError>((by_id(tx, id)?, hints))
            })
            .await?;
        (self.hints)(&hints);
        first(found)
    }

    /// Asks for the end of volumes. Unknown ones are ignored; if one is in use, none is deleted.
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
                    let Some(row) = volumes::by_name(tx, project, &name)? else {
                        continue;
                    };
                    if volumes::is_named(tx, project, &name)? {
                        return Err(in_use(&name));
                    }
                    let changes = volume_step::delete(&row, user);
                    let applied = apply::apply_request(tx, &changes, now())?;
                    match applied.refused {
                        None => hints.extend(applied.hints),
                        Some(Refusal::Guard(_) | Refusal::LeaseLost) => return Err(in_use(&name)),
                    }
                }
                Ok(hints)
            })
            .await?;
        (self.hints)(&hints);
        Ok(())
    }
}

fn in_use(name: &str) -> ApiError {
    ApiError::refused(format!("Failed to delete volume {name}. Volume is in use."))
}

fn read(request: CreateVolumeRequest) -> Result<VolumeConfiguration, ApiError> {
    serde_json::from_value(request.configuration)
        .map_err(|error| ApiError::invalid(&["configuration"], error.to_string()))
}

fn by_id(tx: &mut dyn Tx, id: VolumeId) -> Result<Vec<Whole>, ApiError> {
    let row = volumes::get(tx, id)?;
    whole(tx, row.into_iter().collect())
}

fn whole(tx: &mut dyn Tx, rows: Vec<VolumeRow>) -> Result<Vec<Whole>, ApiError> {
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let project = projects::get(tx, row.project_id)?.map(|project| project.name);
        let user = users::get(tx, row.user_id)?.map(|user| user.name);
        found.push(Whole {
            places: volumes::places(tx, row.id)?,
            project: project.unwrap_or_default(),
            user: user.unwrap_or_default(),
            row,
        });
    }
    Ok(found)
}

fn first(found: Vec<Whole>) -> Result<Volume, ApiError> {
    let one = found.into_iter().next();
    let one = one.ok_or_else(|| ApiError::not_exists("Resource not found"))?;
    show(one, now())
}

fn show_all(found: Vec<Whole>) -> Result<Vec<Volume>, ApiError> {
    let now = now();
    found.into_iter().map(|one| show(one, now)).collect()
}

fn show(whole: Whole, now: Timestamp) -> Result<Volume, ApiError> {
    let Whole {
        row,
        project,
        user,
        places,
    } = whole;
    let configuration = serde_json::to_value(&*row.configuration)
        .map_err(|error| ApiError::Internal(error.to_string()))?;
    let data = row.provisioning_data.as_deref();
    let attachments: Vec<VolumeAttachment> = places.into_iter().map(attachment).collect();
    Ok(Volume {
        cost: volume_step::cost(&row, now),
        id: row.id.0,
        name: row.name.to_string(),
        user,
        project_name: project,
        configuration,
        external: row.external,
        created_at: row.created_at,
        last_processed_at: row.last_processed_at,
        status: row.status,
        status_message: row.status_message.clone(),
        deleted: row.is_deleted(),
        deleted_at: row.deleted_at,
        volume_id: data.map(|data| data.volume_id.clone()),
        provisioning_data: data.cloned(),
        attachment_data: attachments
            .first()
            .and_then(|first| first.attachment_data.clone()),
        attachments: Some(attachments),
    })
}

fn attachment(place: AttachedAt) -> VolumeAttachment {
    VolumeAttachment {
        instance: VolumeInstance {
            name: place.instance,
            fleet_name: Some(place.fleet),
            instance_num: place.instance_num,
            instance_id: Some(place.instance_id.to_string()),
        },
        attachment_data: place.data,
    }
}
