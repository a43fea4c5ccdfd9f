//! The configured clusters as a backend.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dstack_backend_sdk::boot::RUNNER_SSH_PORT;
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::types::{ComputeGroupProvisioningData, RegionFailure, RunInfo};
use dstack_backend_sdk::{host, types};

use crate::cluster::{Cluster, Place};
use crate::config::{SlurmConfig, SlurmConfigurator};
use crate::offers as nodes;
use crate::place::{Placed, Wish, place};
use crate::queue::{Entry, instance_id, job_of};

/// After a cluster had no nodes for a run, its further offers are left out for so long.
const SKIP_S: i64 = 60;
/// So many of such are remembered.
const SKIPS: usize = 1000;

/// The clusters of a configuration.
pub(crate) struct Slurm {
    clusters: Vec<Cluster>,
    offers: AllOffersCache,
    /// Run and cluster, with the second until which it is skipped.
    skips: Mutex<BTreeMap<(String, String), i64>>,
}

impl Backend for Slurm {
    type Configurator = SlurmConfigurator;

    fn new(config: SlurmConfig) -> Result<Self> {
        Ok(Self {
            clusters: config.settle()?,
            offers: AllOffersCache::new(),
            skips: Mutex::default(),
        })
    }
}

impl Slurm {
    fn cluster(&self, region: &str) -> Result<&Cluster> {
        let mut all = self.clusters.iter();
        all.find(|cluster| cluster.name() == region).ok_or_else(|| {
            BackendError::not_found(format!("there is no cluster {region} any more"))
        })
    }

    /// Places a job; a cluster that has no nodes is left alone by the run for a while.
    fn placed(&self, run: &RunInfo, cluster: &Cluster, wish: &Wish<'_>) -> Result<Placed> {
        wish.check()?;
        let key = (run.id.to_string(), cluster.name().to_owned());
        let now = host::now().as_second();
        let mut skips = self.skips.lock().unwrap_or_else(PoisonError::into_inner);
        skips.retain(|_, until| *until > now);
        if skips.contains_key(&key) {
            return Err(BackendError::new(
                ErrorKind::SkipOffer,
                format!(
                    "cluster {} had no nodes for this run a moment ago",
                    cluster.name()
                ),
            ));
        }
        drop(skips);
        let placed = place(cluster, wish);
        if let Err(error) = &placed
            && matches!(error.kind, ErrorKind::NoCapacity | ErrorKind::Quota)
        {
            let until = host::now().as_second().saturating_add(SKIP_S);
            let mut skips = self.skips.lock().unwrap_or_else(PoisonError::into_inner);
            if skips.len() >= SKIPS {
                skips.pop_first();
            }
            skips.insert(key, until);
        }
        placed
    }

    /// Cancels, and looks once whether the job is over.
    fn end(&self, region: &str, name: &str, id: u64) -> Result<Done> {
        match self.cluster(region)?.cancel(id, name)? {
            Some(entry) if !entry.is_over() => Err(provisioning::still_there(&format!(
                "job {id} ({})",
                entry.state
            ))),
            _ => Ok(Done {}),
        }
    }
}

impl AllOffers for Slurm {
    fn all_offers(
        &self,
        _request: &GetOffersRequest,
    ) -> Result<Vec<InstanceOfferWithAvailability>> {
        let mut all = Vec::new();
        let mut failed = None;
        for cluster in &self.clusters {
            match nodes::of_cluster(cluster) {
                Ok(offers) => all.extend(offers),
                Err(error) if error.kind == ErrorKind::Cancelled => return Err(error),
                Err(error) => {
                    tracing::warn!(
                        cluster = cluster.name(),
                        error = error.message,
                        "a cluster is left out"
                    );
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if all.is_empty() => Err(error),
            _ => Ok(all),
        }
    }

    fn modify(
        &self,
        mut offer: InstanceOfferWithAvailability,
        request: &GetOffersRequest,
    ) -> Option<InstanceOfferWithAvailability> {
        if !request.full_offers {
            nodes::cut(
                &mut offer.instance.resources,
                &request.requirements.resources,
            );
        }
        Some(offer)
    }
}

impl Compute for Slurm {
    fn get_offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply> {
        let offers = self.offers.get_offers(self, request)?.offers;
        Ok(GetOffersReply {
            offers: nodes::merged(offers),
        })
    }

    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply> {
        let cluster = self.cluster(&request.offer.region)?;
        no_volumes(&request.volumes)?;
        let wish = Wish {
            name: names::job_name_with_ref(&request.run, &request.job, names::MAX_NAME_LEN),
            provider_ref: request.job.provider_ref.as_deref(),
            offer: &request.offer,
            jobs: vec![&request.job],
            project_key: &request.project_key.public,
            other_keys: &request.extra_authorized_keys,
        };
        let Placed { entry, places } = self.placed(&request.run, cluster, &wish)?;
        let mut nodes = places.iter();
        let node = nodes
            .next()
            .ok_or_else(|| BackendError::internal(format!("job {} has no node", entry.id)))?;
        Ok(data(cluster, &request.offer, &entry, node).into())
    }

    fn update_provisioning_data(
        &self,
        request: &UpdateProvisioningDataRequest,
    ) -> Result<UpdateProvisioningDataReply> {
        let data = &request.provisioning_data;
        let (name, id) = job_of(&data.instance_id)
            .ok_or_else(|| BackendError::provisioning(format!("{} is no job", data.instance_id)))?;
        let entry = self.cluster(&data.region)?.job(id)?;
        match entry.filter(|entry| entry.name == name) {
            Some(entry) if entry.is_ending() => Err(BackendError::provisioning(entry.waits_for())),
            None => Err(BackendError::provisioning(format!("job {id} is gone"))),
            Some(_) => Ok(data.clone().into()),
        }
    }

    fn terminate_instance(&self, request: &TerminateInstanceRequest) -> Result<Done> {
        match job_of(&request.instance_id) {
            Some((name, id)) => self.end(&request.region, name, id),
            None => Ok(Done {}),
        }
    }

    fn health(&self, _request: &HealthRequest) -> Result<HealthReply> {
        for cluster in &self.clusters {
            cluster.ping()?;
        }
        Ok(HealthReply::default())
    }
}

impl GroupProvisioning for Slurm {
    fn run_jobs(&self, request: &RunJobsRequest) -> Result<RunJobsReply> {
        let cluster = self.cluster(&request.offer.region)?;
        for job in &request.jobs {
            no_volumes(&job.volumes)?;
        }
        let (run, offer) = (&request.run, &request.offer);
        let wish = Wish {
            name: names::unique_name(&run.run_name, Some(&run.project_name), names::MAX_NAME_LEN),
            provider_ref: None,
            offer,
            jobs: request.jobs.iter().map(|job| &job.job).collect(),
            project_key: &request.project_key.public,
            other_keys: &request.extra_authorized_keys,
        };
        let Placed { entry, places } = self.placed(run, cluster, &wish)?;
        let nodes = places.iter();
        Ok(RunJobsReply {
            group: ComputeGroupProvisioningData {
                compute_group_id: entry.id.to_string(),
                compute_group_name: entry.name.clone(),
                backend: offer.backend.clone(),
                region: offer.region.clone(),
                job_provisioning_datas: nodes
                    .map(|node| data(cluster, offer, &entry, node))
                    .collect(),
                backend_data: None,
            },
        })
    }

    fn terminate_compute_group(&self, request: &TerminateComputeGroupRequest) -> Result<Done> {
        let group = &request.group.provisioning_data;
        match group.compute_group_id.parse() {
            Ok(id) => self.end(&group.region, &group.compute_group_name, id),
            Err(_) => Ok(Done {}),
        }
    }
}

impl ResourceListing for Slurm {
    fn list_resource_groups(
        &self,
        request: &ListResourceGroupsRequest,
    ) -> Result<ListResourceGroupsReply> {
        let mut reply = ListResourceGroupsReply::default();
        for cluster in &self.clusters {
            let name = cluster.name();
            if !request.regions.is_empty() && !request.regions.iter().any(|asked| asked == name) {
                continue;
            }
            match cluster.queue() {
                Ok(jobs) => reply
                    .groups
                    .extend(jobs.iter().filter_map(|job| group(name, job))),
                Err(error) if error.kind == ErrorKind::Cancelled => return Err(error),
                Err(error) => reply.failures.push(RegionFailure {
                    region: name.to_owned(),
                    message: error.message,
                }),
            }
        }
        Ok(reply)
    }

    fn delete_resource_group(&self, request: &DeleteResourceGroupRequest) -> Result<Done> {
        let group = &request.group;
        let cluster = self.cluster(&group.region)?;
        for job in cluster.queue()? {
            if job.provider_ref() == Some(group.provider_ref.as_str()) && !job.is_ending() {
                self.end(&group.region, &job.name, job.id)?;
            }
        }
        Ok(Done {})
    }
}

fn group(region: &str, job: &Entry) -> Option<ResourceGroup> {
    let reference = job.provider_ref().filter(|_| !job.is_ending())?;
    Some(ResourceGroup {
        created_at_us: job.submitted_at_us,
        ..provisioning::group(reference, region, job.instance_id())
    })
}

fn no_volumes(volumes: &[types::Volume]) -> Result<()> {
    if volumes.is_empty() {
        return Ok(());
    }
    Err(BackendError::unsupported(
        "slurm: volumes are not supported",
    ))
}

/// One node of a job that runs. The container shares the node's network, so its address is the node's, behind the login node.
fn data(
    cluster: &Cluster,
    offer: &InstanceOfferWithAvailability,
    entry: &Entry,
    node: &Place,
) -> JobProvisioningData {
    JobProvisioningData {
        hostname: Some(node.address.clone()),
        internal_ip: Some(node.address.clone()),
        ssh_port: Some(RUNNER_SSH_PORT),
        ssh_proxy: Some(cluster.proxy()),
        availability_zone: Some(entry.partition.clone()),
        ..provisioning::container(offer, instance_id(&entry.name, entry.id, &node.node))
    }
}
