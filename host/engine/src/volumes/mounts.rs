//! The network volumes of a job: which there are, which it may take, and where its machine must be for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use dstack_api::config::MountPoint;
use dstack_api::jobs::{JobSpec, JobStatus};
use dstack_api::volumes::VolumeStatus;
use dstack_backend_types::BackendType;

use crate::changes::{Changes, Guard, Pipeline};
use crate::ids::{InstanceId, JobId};
use crate::model::{AttachmentRow, VolumeRow};

/// A volume that a job names.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    /// The volume; not deleted.
    pub volume: Arc<VolumeRow>,
    /// Statuses of the other jobs that have it.
    pub holders: Vec<JobStatus>,
}

/// Why a job cannot have its volumes now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// A job that is ending has one: it is free soon.
    Soon,
    /// The job fails, for this reason.
    Never(String),
}

/// Where a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Who keeps it.
    pub backend: BackendType,
    /// Where; `None` is anywhere.
    pub region: Option<String>,
    /// Its zone, if it is tied to one.
    pub zone: Option<String>,
}

impl Place {
    fn of(volume: &VolumeRow) -> Self {
        let region = volume.configuration.place.region();
        Self {
            backend: volume.configuration.backend.clone(),
            region: (!region.is_empty()).then(|| region.to_owned()),
            zone: volume
                .provisioning_data
                .as_ref()
                .and_then(|data| data.availability_zone.clone()),
        }
    }

    /// Whether a machine there can have the volume. An unknown zone passes.
    pub fn reaches(&self, backend: &BackendType, region: &str, zone: Option<&str>) -> bool {
        self.backend == *backend
            && self
                .region
                .as_deref()
                .is_none_or(|own| own.eq_ignore_ascii_case(region))
            && self
                .zone
                .as_deref()
                .zip(zone)
                .is_none_or(|(own, zone)| own == zone)
    }
}

/// The volumes of each mount point that the job may take, in its order of preference.
pub type Choices = Vec<Vec<Arc<VolumeRow>>>;

/// Names of the job's network volumes, alternatives included.
pub fn names(job: &JobSpec) -> impl Iterator<Item = &str> {
    mounts(job).flat_map(|(names, _)| names).map(String::as_str)
}

/// The job's mount points of network volumes: names and path.
pub fn mounts(job: &JobSpec) -> impl Iterator<Item = (&[String], &str)> {
    job.volumes
        .iter()
        .flatten()
        .filter_map(|mount| match mount {
            MountPoint::Volume { name, path } => Some((name.as_slice(), path.as_str())),
            MountPoint::Instance { .. } => None,
        })
}

/// What the job may take.
///
/// # Errors
/// [`Lack`] when a mount point has no usable volume, or the mount points have none in a common place.
pub fn choices(job: &JobSpec, named: &[Named]) -> Result<Choices, Lack> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for (names, path) in mounts(job) {
        let mut free = Vec::new();
        let mut soon = false;
        let mut why = None;
        for name in names {
            if !seen.insert(name) {
                return Err(Lack::Never(format!("volume {name} is mounted twice")));
            }
            match usable(name, named) {
                Ok(volume) => free.push(volume),
                Err(Lack::Soon) => soon = true,
                Err(Lack::Never(reason)) => {
                    why.get_or_insert(reason);
                }
            }
        }
        match (free.is_empty(), soon) {
            (false, _) => all.push(free),
            (true, true) => return Err(Lack::Soon),
            (true, false) => {
                let why = why.unwrap_or_else(|| format!("no volume is named for {path}"));
                return Err(Lack::Never(why));
            }
        }
    }
    if has_common_place(&all) {
        Ok(all)
    } else {
        let why = "the volumes are not in one backend and region".to_owned();
        Err(Lack::Never(why))
    }
}

fn usable(name: &str, named: &[Named]) -> Result<Arc<VolumeRow>, Lack> {
    let found = named.iter().find(|it| *it.volume.name == *name);
    let Some(Named { volume, holders }) = found else {
        let why = format!("volume {name} does not exist in the project");
        return Err(Lack::Never(why));
    };
    if volume.delete_asked || volume.is_deleted() {
        return Err(Lack::Never(format!("volume {name} is being deleted")));
    }
    if volume.status != VolumeStatus::Active {
        let status = volume.status;
        return Err(Lack::Never(format!(
            "volume {name} is {status}, not active"
        )));
    }
    if !volume.is_exclusive() || holders.is_empty() {
        Ok(Arc::clone(volume))
    } else if holders.iter().all(|it| *it == JobStatus::Terminating) {
        Err(Lack::Soon)
    } else {
        Err(Lack::Never(format!(
            "volume {name} is in use by another job"
        )))
    }
}

/// Whether some volume of the first mount point has company in every other one.
fn has_common_place(choices: &Choices) -> bool {
    let Some((first, rest)) = choices.split_first() else {
        return true;
    };
    let meets = |a: &Place, b: &Place| {
        let zones = a.zone.as_ref().zip(b.zone.as_ref());
        let regions = a.region.as_ref().zip(b.region.as_ref());
        a.backend == b.backend
            && regions.is_none_or(|(a, b)| a.eq_ignore_ascii_case(b))
            && zones.is_none_or(|(a, b)| a == b)
    };
    first.iter().map(|volume| Place::of(volume)).any(|place| {
        rest.iter()
            .all(|mount| mount.iter().any(|other| meets(&place, &Place::of(other))))
    })
}

/// The places of each mount point's volumes; a machine must be in one place of each.
pub fn places(choices: &Choices) -> Vec<Vec<Place>> {
    let of_mount = |mount: &Vec<Arc<VolumeRow>>| mount.iter().map(|it| Place::of(it)).collect();
    choices.iter().map(of_mount).collect()
}

/// The first volume of each mount point that a machine there can have; `None` if one has none.
pub fn choose(
    choices: &Choices,
    backend: &BackendType,
    region: &str,
    zone: Option<&str>,
) -> Option<Vec<Arc<VolumeRow>>> {
    let fits = |it: &&Arc<VolumeRow>| Place::of(it).reaches(backend, region, zone);
    let of_mount = |mount: &Vec<Arc<VolumeRow>>| mount.iter().find(fits).cloned();
    choices.iter().map(of_mount).collect()
}

/// Writes down that a job has these volumes on its machine, if they are still free then. What need not be attached is
/// attached by that.
pub(crate) fn hold(
    changes: &mut Changes,
    job_id: JobId,
    instance_id: InstanceId,
    volumes: &[Arc<VolumeRow>],
) {
    for volume in volumes {
        changes
            .guards
            .push(Guard::VolumeFree(volume.id, volume.is_exclusive()));
        changes.attachments.push(AttachmentRow {
            volume_id: volume.id,
            job_id,
            instance_id,
            data: (!volume.is_exclusive()).then(Default::default),
            detach_began_at: None,
        });
        changes.hint(Pipeline::Volumes, volume.id);
    }
}
