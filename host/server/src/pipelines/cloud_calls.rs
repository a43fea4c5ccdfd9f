//! Orders and questions to backends, as the jobs' and the instances' steps put them.

use std::sync::Arc;

use dstack_backend_types::methods::{CreateInstanceRequest, RunJobRequest};
use dstack_backend_types::{
    BackendError, BackendType, ErrorKind, InstanceConfiguration,
    InstanceOfferWithAvailability as Offer, JobInfo, JobMount, JobProvisioningData, RunInfo,
    Volume,
};
use dstack_engine::combine::Wanted;
use dstack_engine::ids::ProjectId;
use dstack_engine::job_submitted::Attempt;
use dstack_engine::model::{JobRow, RunRow};
use dstack_engine::offers::{self, Sharing};
use dstack_engine::volumes::mounts::{self, Choices};

use super::facts::ProjectFacts;
use super::{Context, volume_calls};
use crate::ports::OfferQuery;

/// Asks the backends and selects what is wanted; a backend that fails offers nothing.
pub(super) async fn offers(
    cx: &Context,
    project: ProjectId,
    backends: Vec<BackendType>,
    wanted: &Wanted,
    sharing: Sharing,
    image: Option<&str>,
) -> Vec<Offer> {
    let answers = cx
        .clouds
        .offers(OfferQuery {
            project,
            requirements: Arc::new(wanted.machine.clone()),
            backends: Some(backends),
            full_offers: false,
            unallocated_resources: false,
            image: image.map(str::to_owned),
        })
        .await;
    let lists = answers
        .into_iter()
        .filter_map(|answer| answer.offers.ok())
        .collect();
    offers::select(lists, wanted, sharing, cx.limits.offers_per_fleet)
}

/// What an order for a machine says beside the offer.
pub(super) struct Order<'a> {
    pub(super) project_id: ProjectId,
    pub(super) project: &'a ProjectFacts,
    pub(super) user: &'a str,
    /// Name of the machine.
    pub(super) name: &'a str,
    pub(super) provider_ref: &'a str,
    pub(super) wanted: &'a Wanted,
    /// The volumes that the job may take.
    pub(super) volumes: &'a Choices,
    /// The job that a backend without machines starts at once, with the user's keys.
    pub(super) job: Option<(&'a RunRow, &'a JobRow, &'a [String])>,
}

/// Tries offers in their order until one holds or one gives no answer.
pub(super) async fn try_in_order(
    cx: &Context,
    order: &Order<'_>,
    offers: &[Offer],
) -> Vec<Attempt> {
    let abilities = cx.clouds.backends(order.project_id).await;
    let mut attempts = Vec::new();
    for offer in offers {
        let volumes = volumes_at(cx, order, offer).await;
        let creates = abilities
            .iter()
            .any(|backend| backend.name == offer.backend && backend.creates_instances);
        let made = if creates {
            cx.clouds
                .create_instance(
                    order.project_id,
                    &offer.backend,
                    instance(order, offer, volumes),
                )
                .await
        } else if let Some(job) = job(order, offer, &volumes) {
            cx.clouds
                .run_job(order.project_id, &offer.backend, job)
                .await
        } else {
            Err(BackendError::unsupported(
                "the backend makes no machines without a job",
            ))
        };
        if let Err(error) = &made {
            let (backend, region) = (offer.backend.as_str(), offer.region.as_str());
            tracing::info!(backend, region, kind = ?error.kind, error = error.message, "an offer did not hold");
        }
        let attempt = judge(offer, made);
        let is_last = matches!(attempt, Attempt::Made(_) | Attempt::Unknown(_));
        attempts.push(attempt);
        if is_last {
            break;
        }
    }
    attempts
}

/// What an answer means: made, surely not made, or unknown.
fn judge(offer: &Offer, made: Result<JobProvisioningData, BackendError>) -> Attempt {
    let error = match made {
        Ok(data) => return Attempt::Made(Box::new(data)),
        Err(error) => error,
    };
    let text = format!(
        "{} {} in {}: {}",
        offer.backend.as_str(),
        offer.instance.name,
        offer.region,
        error.message
    );
    match error.kind {
        ErrorKind::SkipOffer => Attempt::Skipped,
        // The call may have reached the provider.
        ErrorKind::Timeout
        | ErrorKind::Cancelled
        | ErrorKind::Transport
        | ErrorKind::Panic
        | ErrorKind::Internal => Attempt::Unknown(text),
        ErrorKind::NoCapacity
        | ErrorKind::NotFound
        | ErrorKind::Auth
        | ErrorKind::Quota
        | ErrorKind::NotYetTerminated
        | ErrorKind::Invalid
        | ErrorKind::RateLimited
        | ErrorKind::Unsupported
        | ErrorKind::Unavailable
        | ErrorKind::Provisioning
        | ErrorKind::PlacementGroupInUse
        | ErrorKind::PlacementGroupNotSupported
        | ErrorKind::NoCatalog => Attempt::Refused(text),
    }
}

/// The volumes that a machine there would get.
async fn volumes_at(cx: &Context, order: &Order<'_>, offer: &Offer) -> Vec<Volume> {
    let zones = offer.availability_zones.as_deref().unwrap_or_default();
    // Several zones: the backend takes one where the volumes are, since others were filtered out.
    let zone = match zones {
        [one] => Some(one.as_str()),
        _ => None,
    };
    let chosen = mounts::choose(order.volumes, &offer.backend, &offer.region, zone);
    let asked = volume_calls::volumes(cx, &chosen.unwrap_or_default()).await;
    asked.unwrap_or_else(|error| {
        tracing::error!(%error, "the volumes of a job cannot be read");
        Vec::new()
    })
}

fn instance(order: &Order<'_>, offer: &Offer, volumes: Vec<Volume>) -> CreateInstanceRequest {
    CreateInstanceRequest {
        offer: offer.clone(),
        config: InstanceConfiguration {
            project_name: order.project.name.to_string(),
            instance_name: order.name.to_owned(),
            user: order.user.to_owned(),
            ssh_keys: vec![order.project.key()],
            instance_id: None,
            volumes: (!volumes.is_empty()).then_some(volumes),
            reservation: order.wanted.machine.reservation.clone(),
            tags: tags(order.wanted),
            provider_ref: Some(order.provider_ref.to_owned()),
        },
        placement_group: None,
    }
}

fn tags(wanted: &Wanted) -> Option<std::collections::BTreeMap<String, String>> {
    wanted.profile.params.tags.clone()
}

fn job(order: &Order<'_>, offer: &Offer, volumes: &[Volume]) -> Option<RunJobRequest> {
    let (run, job, keys) = order.job?;
    let spec = &job.spec;
    let mounts = spec.volumes.iter().flatten();
    Some(RunJobRequest {
        run: RunInfo {
            id: run.id.0,
            run_name: run.name.to_string(),
            project_name: order.project.name.to_string(),
            user: order.user.to_owned(),
            tags: tags(order.wanted),
        },
        job: JobInfo {
            id: job.id.0,
            job_name: job.name.to_string(),
            job_num: job.job_num,
            replica_num: job.replica_num,
            jobs_per_replica: spec.jobs_per_replica,
            image_name: spec.image_name.clone(),
            registry_auth: spec.registry_auth.clone(),
            privileged: spec.privileged,
            container_user: Some("root".to_owned()),
            mounts: mounts.filter_map(|it| mount(it, volumes)).collect(),
            requirements: order.wanted.machine.clone(),
            provider_ref: Some(order.provider_ref.to_owned()),
        },
        offer: offer.clone(),
        project_key: order.project.key(),
        volumes: volumes.to_vec(),
        placement_group: None,
        extra_authorized_keys: keys.to_vec(),
    })
}

fn mount(mount: &dstack_api::config::MountPoint, volumes: &[Volume]) -> Option<JobMount> {
    match mount {
        dstack_api::config::MountPoint::Instance {
            instance_path,
            path,
            ..
        } => Some(JobMount {
            volume: None,
            instance_path: Some(instance_path.clone()),
            path: path.clone(),
        }),
        dstack_api::config::MountPoint::Volume { name, path } => {
            let names = name.as_slice();
            let volume = volumes.iter().find(|volume| names.contains(&volume.name))?;
            Some(JobMount {
                volume: Some(volume.name.clone()),
                instance_path: None,
                path: path.clone(),
            })
        }
    }
}
