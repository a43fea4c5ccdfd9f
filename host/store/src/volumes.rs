//! Volumes, and which jobs have them.

use std::sync::Arc;

use dstack_api::jobs::JobStatus;
use dstack_engine::changes::VolumePatch;
use dstack_engine::ids::{InstanceId, JobId, ProjectId, VolumeId};
use dstack_engine::model::{AttachmentRow, Held, VolumeRow};
use dstack_engine::volumes::mounts::Named;
use jiff::Timestamp;

use crate::error::DbError;
use crate::page::Page;
use crate::patch::Patch;
use crate::sql::Sql;
use crate::tx::{Query, Row, Tx, json, json_opt};
use crate::{params, sql};

macro_rules! columns {
    () => {
        "SELECT v.id, v.project_id, v.user_id, v.name, v.configuration, v.external, v.status, v.status_message, \
         v.created_at, v.last_processed_at, v.last_job_at, v.provider_ref, v.attempted_at, v.provisioning_data, \
         v.delete_asked, v.first_end_failure_at, v.deleted_at FROM volumes v "
    };
}
const GET: Sql = sql!(columns!(), "WHERE v.id = ?1");
const BY_NAME: Sql = sql!(
    columns!(),
    "WHERE v.project_id = ?1 AND v.name = ?2 AND v.deleted_at IS NULL"
);
const OF_PROJECT: Sql = sql!(
    columns!(),
    "WHERE v.project_id = ?1 AND v.deleted_at IS NULL ORDER BY v.created_at DESC, v.id ASC"
);
const INSERT: Sql = sql!(
    "INSERT INTO volumes (id, project_id, user_id, name, configuration, external, status, status_message, created_at, \
     last_job_at, provider_ref, attempted_at, provisioning_data, delete_asked, first_end_failure_at, deleted_at, \
     last_processed_at, look_again_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, \
     ?17, ?18)"
);
const NAMES: Sql =
    sql!("SELECT name FROM volumes WHERE project_id = ?1 AND deleted_at IS NULL ORDER BY name");
const PUT_ATTACHMENT: Sql = sql!(
    "INSERT INTO volume_attachments (volume_id, job_id, instance_id, data, detach_began_at) \
     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (volume_id, job_id) DO UPDATE SET instance_id = excluded.instance_id, \
     data = excluded.data, detach_began_at = excluded.detach_began_at"
);
const REMOVE_ATTACHMENT: Sql =
    sql!("DELETE FROM volume_attachments WHERE volume_id = ?1 AND job_id = ?2");
const ATTACHMENTS: Sql = sql!(
    "SELECT volume_id, job_id, instance_id, data, detach_began_at FROM volume_attachments \
     WHERE volume_id = ?1 ORDER BY job_id"
);
const ALL_ATTACHMENTS: Sql = sql!(
    "SELECT volume_id, job_id, instance_id, data, detach_began_at FROM volume_attachments ORDER BY volume_id, job_id"
);
const HELD: Sql = sql!(
    "SELECT a.volume_id, a.job_id, a.instance_id, a.data, a.detach_began_at FROM volume_attachments a \
     JOIN volumes v ON v.id = a.volume_id WHERE a.job_id = ?1 ORDER BY v.name"
);
const HOLDERS: Sql = sql!(
    "SELECT j.status FROM volume_attachments a JOIN jobs j ON j.id = a.job_id \
     WHERE a.volume_id = ?1 AND a.job_id <> ?2 ORDER BY a.job_id"
);
const PLACES: Sql = sql!(
    "SELECT i.name, f.name, i.instance_num, i.id, a.data FROM volume_attachments a \
     JOIN instances i ON i.id = a.instance_id JOIN fleets f ON f.id = i.fleet_id \
     WHERE a.volume_id = ?1 ORDER BY i.name"
);
pub(crate) const IS_FREE: Sql = sql!(
    "SELECT 1 FROM volumes v WHERE v.id = ?1 AND v.status = 'active' AND v.delete_asked = 0 AND v.deleted_at IS NULL \
     AND (?2 = 0 OR NOT EXISTS (SELECT 1 FROM volume_attachments a WHERE a.volume_id = v.id))"
);
pub(crate) const IS_USED: Sql =
    sql!("SELECT 1 FROM volume_attachments WHERE volume_id = ?1 LIMIT 1");
const OWNED: Sql =
    sql!("SELECT 1 FROM volumes WHERE provider_ref = ?1 AND deleted_at IS NULL LIMIT 1");
/// Specifications of unfinished jobs of the project in whose text the name stands.
const NAMING: Sql = sql!(
    "SELECT d.spec FROM runs r JOIN jobs j ON j.run_id = r.id JOIN job_data d ON d.id = j.id \
     WHERE r.project_id = ?1 AND r.active = 1 AND j.status IN ('submitted', 'provisioning', 'pulling', 'running') \
     AND d.spec LIKE '%\"' || ?2 || '\"%'"
);

/// The statements of this file, for the test of query plans.
#[cfg(test)]
pub(crate) const SQL: &[(&str, Sql)] = &[
    ("volume", GET),
    ("volume by name", BY_NAME),
    ("volumes of a project", OF_PROJECT),
    ("attachments of a volume", ATTACHMENTS),
    ("volumes of a job", HELD),
    ("jobs with a volume", HOLDERS),
    ("places of a volume", PLACES),
    ("free volume", IS_FREE),
    ("used volume", IS_USED),
    ("volume of a reference", OWNED),
    ("jobs that name a volume", NAMING),
];

pub(crate) fn from_row(mut row: Row<'_>) -> Result<VolumeRow, DbError> {
    Ok(VolumeRow {
        id: row.take()?,
        project_id: row.take()?,
        user_id: row.take()?,
        name: row.take()?,
        configuration: Arc::new(row.json()?),
        external: row.take()?,
        status: row.take()?,
        status_message: row.take()?,
        created_at: row.take()?,
        last_processed_at: row.take()?,
        last_job_at: row.take()?,
        provider_ref: row.take()?,
        attempted_at: row.take()?,
        provisioning_data: row.json_opt()?.map(Arc::new),
        delete_asked: row.take()?,
        first_end_failure_at: row.take()?,
        deleted_at: row.take()?,
    })
}

fn attachment(mut row: Row<'_>) -> Result<AttachmentRow, DbError> {
    Ok(AttachmentRow {
        volume_id: row.take()?,
        job_id: row.take()?,
        instance_id: row.take()?,
        data: row.json_opt()?,
        detach_began_at: row.take()?,
    })
}

/// A volume by id, also a deleted one.
pub fn get(tx: &mut dyn Tx, id: VolumeId) -> Result<Option<VolumeRow>, DbError> {
    tx.first(GET, params![id], from_row)
}

/// A volume by name.
pub fn by_name(
    tx: &mut dyn Tx,
    project: ProjectId,
    name: &str,
) -> Result<Option<VolumeRow>, DbError> {
    tx.first(BY_NAME, params![project, name], from_row)
}

/// The volumes of a project, newest first.
pub fn of_project(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<VolumeRow>, DbError> {
    tx.all(OF_PROJECT, params![project], from_row)
}

/// The names that are taken in a project.
pub fn names(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<String>, DbError> {
    tx.all(NAMES, params![project], |mut row| row.take())
}

/// Stores a new volume, due at once.
pub fn insert(tx: &mut dyn Tx, volume: &VolumeRow, now: Timestamp) -> Result<(), DbError> {
    let data = volume.provisioning_data.as_deref();
    tx.exec(
        INSERT,
        params![
            volume.id,
            volume.project_id,
            volume.user_id,
            &volume.name,
            json("the configuration of a volume", &*volume.configuration)?,
            volume.external,
            volume.status,
            volume.status_message.as_deref(),
            volume.created_at,
            volume.last_job_at,
            &volume.provider_ref,
            volume.attempted_at,
            json_opt("the data of a volume", data)?,
            volume.delete_asked,
            volume.first_end_failure_at,
            volume.deleted_at,
            volume.last_processed_at,
            now,
        ],
    )?;
    Ok(())
}

/// Writes the changed columns; an unknown id changes nothing.
pub(crate) fn patch(tx: &mut dyn Tx, patch: &VolumePatch, now: Timestamp) -> Result<(), DbError> {
    let data = patch.provisioning_data.as_ref();
    let data = data
        .map(|data| json_opt("the data of a volume", data.as_deref()))
        .transpose()?;
    let mut row = Patch::of("volumes");
    row.set("last_processed_at", Some(now));
    row.set("status", patch.status);
    row.set(
        "status_message",
        patch.status_message.as_ref().map(Option::as_deref),
    );
    row.set("last_job_at", patch.last_job_at);
    row.set("attempted_at", patch.attempted_at);
    row.set("provisioning_data", data);
    row.set("delete_asked", patch.delete_asked);
    row.set("first_end_failure_at", patch.first_end_failure_at);
    row.set("deleted_at", patch.deleted_at);
    row.run(tx, patch.id)?;
    Ok(())
}

/// Stores a hold on a volume, or what has changed of it.
pub(crate) fn attach(tx: &mut dyn Tx, row: &AttachmentRow) -> Result<(), DbError> {
    tx.exec(
        PUT_ATTACHMENT,
        params![
            row.volume_id,
            row.job_id,
            row.instance_id,
            json_opt("the attachment of a volume", row.data.as_ref())?,
            row.detach_began_at,
        ],
    )?;
    Ok(())
}

/// Forgets a hold on a volume.
pub(crate) fn detach(tx: &mut dyn Tx, volume: VolumeId, job: JobId) -> Result<(), DbError> {
    tx.exec(REMOVE_ATTACHMENT, params![volume, job])?;
    Ok(())
}

/// Who has a volume.
pub fn attachments(tx: &mut dyn Tx, volume: VolumeId) -> Result<Vec<AttachmentRow>, DbError> {
    tx.all(ATTACHMENTS, params![volume], attachment)
}

/// All holds on volumes.
pub fn all_attachments(tx: &mut dyn Tx) -> Result<Vec<AttachmentRow>, DbError> {
    tx.all(ALL_ATTACHMENTS, params![], attachment)
}

/// The volumes that a job has, by name.
pub fn held(tx: &mut dyn Tx, job: JobId) -> Result<Vec<Held>, DbError> {
    let mut held = Vec::new();
    for attachment in tx.all(HELD, params![job], attachment)? {
        if let Some(volume) = get(tx, attachment.volume_id)? {
            let volume = Arc::new(volume);
            held.push(Held { attachment, volume });
        }
    }
    Ok(held)
}

/// The volumes of these names, each with the statuses of the jobs but `job` that have it.
pub fn named<'a>(
    tx: &mut dyn Tx,
    project: ProjectId,
    names: impl Iterator<Item = &'a str>,
    job: Option<JobId>,
) -> Result<Vec<Named>, DbError> {
    let job = job.unwrap_or(JobId(uuid::Uuid::nil()));
    let mut found = Vec::new();
    for name in names {
        if let Some(volume) = by_name(tx, project, name)? {
            let holders: Vec<JobStatus> =
                tx.all(HOLDERS, params![volume.id, job], |mut row| row.take())?;
            let volume = Arc::new(volume);
            found.push(Named { volume, holders });
        }
    }
    Ok(found)
}

/// Where a volume is attached, for people: instance, fleet, number, id, and how it hangs there.
#[derive(Debug, Clone, PartialEq)]
pub struct AttachedAt {
    /// Name of the instance.
    pub instance: String,
    /// Name of its fleet.
    pub fleet: String,
    /// Its number in the fleet.
    pub instance_num: u32,
    /// Its id.
    pub instance_id: InstanceId,
    /// How the volume hangs there.
    pub data: Option<dstack_backend_types::VolumeAttachmentData>,
}

/// The machines that have a volume.
pub fn places(tx: &mut dyn Tx, volume: VolumeId) -> Result<Vec<AttachedAt>, DbError> {
    tx.all(PLACES, params![volume], |mut row| {
        Ok(AttachedAt {
            instance: row.take()?,
            fleet: row.take()?,
            instance_num: row.take()?,
            instance_id: row.take()?,
            data: row.json_opt()?,
        })
    })
}

/// Whether a job has the volume.
pub fn is_used(tx: &mut dyn Tx, volume: VolumeId) -> Result<bool, DbError> {
    Ok(tx.first(IS_USED, params![volume], |_| Ok(()))?.is_some())
}

/// Whether a not deleted volume carries this reference.
pub fn is_owner(tx: &mut dyn Tx, provider_ref: &str) -> Result<bool, DbError> {
    Ok(tx
        .first(OWNED, params![provider_ref], |_| Ok(()))?
        .is_some())
}

/// Whether a job that is not ending names the volume, attached or not.
pub fn is_named(tx: &mut dyn Tx, project: ProjectId, name: &str) -> Result<bool, DbError> {
    use dstack_engine::volumes::mounts;
    let specs: Vec<dstack_api::jobs::JobSpec> =
        tx.all(NAMING, params![project, name], |mut row| row.json())?;
    Ok(specs
        .iter()
        .any(|spec| mounts::names(spec).any(|other| other == name)))
}

/// Which volumes to list.
#[derive(Debug, Clone, Default)]
pub struct VolumesFilter {
    /// Only these projects; `None` is all.
    pub projects: Option<Vec<ProjectId>>,
    /// Only not deleted ones.
    pub only_active: bool,
    /// Which part of the list.
    pub page: Page,
}

/// One page of volumes by creation time.
pub fn list(tx: &mut dyn Tx, filter: &VolumesFilter) -> Result<Vec<VolumeRow>, DbError> {
    let Some(projects) = &filter.projects else {
        return tx.all_of(&list_query(filter, None), from_row);
    };
    let mut out = Vec::new();
    for project in projects {
        out.extend(tx.all_of(&list_query(filter, Some(*project)), from_row)?);
    }
    if projects.len() > 1 {
        filter.page.merge(&mut out, |it| (it.created_at, it.id.0));
    }
    Ok(out)
}

fn list_query(filter: &VolumesFilter, project: Option<ProjectId>) -> Query<'_> {
    let mut query = Query::new(columns!());
    query.text("WHERE 1 = 1");
    if let Some(project) = project {
        query.text(" AND v.project_id = ").bind(project);
    }
    if filter.only_active {
        query.text(" AND v.deleted_at IS NULL");
    }
    filter.page.append(&mut query, "v.created_at", "v.id");
    query
}
