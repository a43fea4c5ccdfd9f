//! From an offer to a job that runs.

use dstack_backend_sdk::boot::{ContainerSetup, container_agent_urls};
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::types;

use crate::cluster::{Cluster, Place};
use crate::offers;
use crate::queue::Entry;
use crate::script::Batch;

/// So long a job may wait in the queue before it is taken out again, unless the configuration says otherwise.
const PATIENCE_S: u32 = 60;
/// One login waits so long.
const LOOK_S: u32 = 15;

/// What is to run.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) name: String,
    pub(crate) provider_ref: Option<&'a str>,
    pub(crate) offer: &'a InstanceOfferWithAvailability,
    pub(crate) jobs: Vec<&'a types::JobInfo>,
    pub(crate) project_key: &'a str,
    pub(crate) other_keys: &'a [String],
}

/// A job that runs.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) entry: Entry,
    pub(crate) places: Vec<Place>,
}

impl Wish<'_> {
    /// Refuses what cannot be done here.
    ///
    /// # Errors
    /// `unsupported`, with the remedy.
    pub(crate) fn check(&self) -> Result<()> {
        for job in &self.jobs {
            let no = |what: &str| Err(BackendError::unsupported(format!("slurm: {what}")));
            if job.registry_auth.is_some() {
                return no(
                    "images that need a login are not supported: put the login into the nodes' enroot credentials",
                );
            }
            if !job.mounts.is_empty() {
                return no("volumes are not supported");
            }
            if job.privileged {
                return no("privileged containers are not supported");
            }
        }
        let images = self.jobs.iter().map(|job| &job.image_name);
        if images
            .clone()
            .any(|image| Some(image) != images.clone().next())
        {
            return Err(BackendError::unsupported(
                "slurm: all nodes of a group run the same image",
            ));
        }
        Ok(())
    }
}

/// Submits the job unless an earlier call has, waits for its nodes, and lets the keys through the login node.
///
/// # Errors
/// `no_capacity` or `quota` if it does not run within a minute: it is taken out of the queue, the message has Slurm's reason.
pub(crate) fn place(cluster: &Cluster, wish: &Wish<'_>) -> Result<Placed> {
    let keys = crate::keys::authorise(wish.project_key, wish.other_keys)?;
    let queue = cluster.queue()?;
    let found = queue.iter().find(|entry| {
        !entry.is_ending()
            && wish.provider_ref.is_some()
            && entry.provider_ref() == wish.provider_ref
    });
    let (id, name) = match found {
        Some(entry) => (entry.id, entry.name.clone()),
        None => (submit(cluster, wish, &queue)?, wish.name.clone()),
    };
    let entry = wait(cluster, id, &name)?;
    leave_shared(cluster, &entry)?;
    let places = cluster.places(&entry.nodes)?;
    if places.len() != wish.jobs.len() {
        cluster.cancel(id, &name)?;
        return Err(BackendError::internal(format!(
            "cluster {}: job {id} has {} nodes and should have {}",
            cluster.name(),
            places.len(),
            wish.jobs.len()
        )));
    }
    cluster.add_keys(&keys)?;
    Ok(Placed { entry, places })
}

fn submit(cluster: &Cluster, wish: &Wish<'_>, queue: &[Entry]) -> Result<u64> {
    let offer = wish.offer;
    let has = &offer.instance.resources;
    let arch = has.cpu_arch.unwrap_or(CpuArchitecture::X86);
    let mut keys = vec![wish.project_key.trim().to_owned()];
    keys.extend_from_slice(wish.other_keys);
    let busy = queue
        .iter()
        .filter(|entry| entry.is_ours() && !entry.nodes.is_empty() && !entry.is_over());
    let exclude: Vec<String> = busy.map(|entry| entry.nodes.clone()).collect();
    let config = cluster.config();
    let image = wish.jobs.first().map_or("", |job| job.image_name.as_str());
    let batch = Batch {
        name: &wish.name,
        partitions: offer.availability_zones.as_deref().unwrap_or_default(),
        nodes: wish.jobs.len(),
        resources: has,
        gpu_word: offers::gpu_word(offer),
        account: config.account.as_deref(),
        qos: config.qos.as_deref(),
        time_limit: config.time_limit.as_deref(),
        exclude: &exclude,
        image,
        setup: ContainerSetup::new(container_agent_urls()?, arch, keys),
    };
    cluster.submit(&batch.render())
}

/// Waits until the job runs; else it leaves the queue.
fn wait(cluster: &Cluster, id: u64, name: &str) -> Result<Entry> {
    let patience_s = cluster.config().queue_wait_seconds.unwrap_or(PATIENCE_S);
    let mut left = patience_s;
    let mut last = None;
    while left > 0 {
        let seconds = left.min(LOOK_S);
        left -= seconds;
        let Some(entry) = cluster.await_start(id, seconds)? else {
            return Err(BackendError::provisioning(format!(
                "cluster {}: job {id} is gone before it ran",
                cluster.name()
            )));
        };
        if entry.is_running() && !entry.nodes.is_empty() {
            return Ok(entry);
        }
        if entry.is_ending() {
            return Err(BackendError::provisioning(format!(
                "cluster {}: {}",
                cluster.name(),
                entry.waits_for()
            )));
        }
        last = Some(entry);
    }
    cluster.cancel(id, name)?;
    let kind = match &last {
        Some(entry) if entry.is_limited() => ErrorKind::Quota,
        _ => ErrorKind::NoCapacity,
    };
    let why = last.map(|entry| entry.waits_for()).unwrap_or_default();
    Err(BackendError::new(
        kind,
        format!(
            "cluster {}: not started within {patience_s} s and taken out of the queue: {why}",
            cluster.name()
        ),
    ))
}

/// Two runners of one node would listen on the same ports. Of two jobs that came to a node at the same time the later one goes.
fn leave_shared(cluster: &Cluster, entry: &Entry) -> Result<()> {
    let others = cluster.jobs_on(&entry.nodes)?;
    let earlier = others
        .iter()
        .find(|other| other.is_ours() && other.id < entry.id);
    let Some(earlier) = earlier else {
        return Ok(());
    };
    cluster.cancel(entry.id, &entry.name)?;
    Err(BackendError::no_capacity(format!(
        "cluster {}: job {} came to a node where job {} of another run is",
        cluster.name(),
        entry.id,
        earlier.id
    )))
}

#[cfg(test)]
mod tests;
