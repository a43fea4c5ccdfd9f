//! What decisions read besides rows.
//!
//! Each pipeline has its own `View` beside its `plan`; the parts that several of them share are here. Views
//! are loaded by `store` through indexed ids only, and by the [`World`](crate::world::World).

use std::sync::Arc;
use std::time::Duration;

use dstack_backend_types::{BackendType, InstanceOfferWithAvailability};

use crate::ids::FleetId;
use crate::model::{FleetRow, InstanceRow};

/// Limits and habits that the server's settings may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Offers tried in one provisioning step. Default 25.
    pub offers_tried: usize,
    /// Backend offers looked at for each fleet while choosing one. Default 100.
    pub offers_per_fleet: usize,
    /// How long agents may be silent before a job is given up. Default 120 s.
    pub job_silence: Duration,
    /// How long a machine may be silent before it is given up. Default 20 min.
    pub instance_silence: Duration,
    /// How long the provider may refuse to end a machine before the row is closed. Default 15 min.
    pub end_patience: Duration,
    /// How long the remaining logs of a stopping job are read. Default 30 s.
    pub last_logs: Duration,
    /// How late after `max_duration` the server ends a job that its runner did not. Default 120 s.
    pub max_duration_grace: Duration,
    /// How long a call without an answer may still be at work at the provider. Default 5 min.
    pub call_echo: Duration,
    /// Whether containers are removed from the machine when their job ends. Default true.
    pub remove_containers: bool,
    /// Which jobs use the machine's own network. Default [`JobNetwork::HostForWhole`].
    pub job_network: JobNetwork,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            offers_tried: 25,
            offers_per_fleet: 100,
            job_silence: Duration::from_secs(120),
            instance_silence: Duration::from_secs(20 * 60),
            end_patience: Duration::from_secs(15 * 60),
            last_logs: Duration::from_secs(30),
            max_duration_grace: Duration::from_secs(120),
            call_echo: Duration::from_secs(5 * 60),
            remove_containers: true,
            job_network: JobNetwork::HostForWhole,
        }
    }
}

/// Which jobs use the network of the machine itself; others get a network of their own with mapped ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobNetwork {
    /// Jobs of several nodes that have the whole machine.
    HostForMultinode,
    /// Jobs that have the whole machine.
    HostForWhole,
    /// None.
    Bridge,
}

/// What a configured backend of the project can do; from its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one capability")]
pub struct BackendAbilities {
    /// Its type.
    pub name: BackendType,
    /// Makes machines with a shim (`create_instance`); others start the job's container themselves (`run_job`).
    pub creates_instances: bool,
    /// Its machines of one region reach each other.
    pub multinode: bool,
    /// Knows reservations.
    pub reservations: bool,
    /// Its containers may be privileged.
    pub privileged: bool,
    /// Its jobs may mount folders of the machine.
    pub instance_mounts: bool,
    /// How long a machine may take to be ready, when the offer does not say. Default 600 s.
    pub provisioning_timeout: Duration,
}

/// A fleet that a job may be placed in.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetFacts {
    /// The fleet.
    pub fleet: Arc<FleetRow>,
    /// The project that owns it.
    pub project_name: Arc<str>,
    /// Its instances that are idle or busy with at least one free block, reachable, not failing; at most
    /// 50, cheapest first, then by number.
    pub pool: Vec<InstanceRow>,
    /// Instances that are neither terminating nor terminated nor deleted.
    pub living: u32,
    /// Those of them with jobs on them, or placeholders of submitted jobs. A machine whose last job has ended is free,
    /// even before its own step has made it idle.
    pub taken: u32,
    /// The instance that fixes backend, region and zone of a cluster: the oldest living one with
    /// provisioning data. Only for cluster fleets.
    pub master: Option<InstanceRow>,
}

/// What the backends offered for one fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetOffers {
    /// The fleet that the question was for.
    pub fleet_id: FleetId,
    /// Merged by price, unavailable ones last; blocks set.
    pub offers: Vec<InstanceOfferWithAvailability>,
}

/// How long a machine may take from the order until it is ready.
///
/// The offer's own word counts first, then a few machine types that are known to be slow, then the backend's.
pub fn provisioning_timeout(
    backends: &[BackendAbilities],
    offer: Option<&InstanceOfferWithAvailability>,
) -> Duration {
    const DEFAULT: Duration = Duration::from_secs(600);
    let Some(offer) = offer else { return DEFAULT };
    if let Some(own) = offer.provisioning_timeout_s {
        return Duration::from_secs(own);
    }
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    match (offer.backend.as_str(), offer.instance.name.as_str()) {
        ("oci", name) if name.starts_with("BM.") => minutes(20),
        ("vultr", name) if name.starts_with("vbm") => minutes(55),
        ("gcp", "a4-highgpu-8g") => minutes(16),
        (backend, _) => backends
            .iter()
            .find(|known| known.name.as_str() == backend)
            .map_or(DEFAULT, |known| known.provisioning_timeout),
    }
}
