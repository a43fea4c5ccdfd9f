//! What a machine must be: the needs of a fleet and of a run, combined.
//!
//! | item | rule (nothing set = no limit) |
//! |---|---|
//! | backends, regions, zones, instance types, GPU names | intersection without case, in the fleet's order and spelling |
//! | reservation, CPU architecture, GPU vendor | equal, or one side unset; else they contradict |
//! | spot | `auto` yields to the other; unequal contradict |
//! | `max_price`, `shm_size` | the smaller |
//! | `idle_duration` | the smaller non-negative; a negative one yields |
//! | tags | union, the run wins |
//! | ranges | intersection; empty contradicts |
//! | compute capability | the larger |
//! | multinode | either |

use dstack_api::config::{
    BackendOptions, MountPoint, Profile, ProfileParams, SpotPolicy, VastAiOptions,
};
use dstack_api::fleets::FleetSpec;
use dstack_api::jobs::JobSpec;
use dstack_backend_types::matching::matches;
use dstack_backend_types::resources::{Bound, DiskSpec, GpuSpec, Range, ResourcesSpec};
use dstack_backend_types::{
    BackendType, InstanceOfferWithAvailability as Offer, JobProvisioningData, Requirements,
};

use crate::ids::FleetId;
use crate::model::InstanceRow;
use crate::spec;
use crate::view::BackendAbilities;

/// Where the first machine of a cluster stands; the others must be there, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// Its backend.
    pub backend: BackendType,
    /// Its region.
    pub region: String,
    /// Its zone, if known.
    pub zone: Option<String>,
}

impl Fixed {
    /// Where this machine is.
    pub fn to(data: &JobProvisioningData) -> Self {
        Self {
            backend: data.backend.clone(),
            region: data.region.clone(),
            zone: data.availability_zone.clone(),
        }
    }
}

/// What a machine must be.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The fleet it is for.
    pub fleet_id: FleetId,
    /// Fleet and run combined: places, types, price, idle time, tags.
    pub profile: Profile,
    /// Fleet and job combined.
    pub requirements: Requirements,
    /// All blocks of the machine are needed.
    pub whole: bool,
    /// The job's container is privileged.
    pub privileged: bool,
    /// The job cannot do without folders of the machine.
    pub instance_mounts: bool,
    /// It must stand beside another machine.
    pub fixed: Option<Fixed>,
}

impl Wanted {
    /// What a job needs in a fleet; `None` if both contradict. `run` is the run's merged profile.
    pub fn combine(
        fleet_id: FleetId,
        fleet: &FleetSpec,
        run: &ProfileParams,
        job: &JobSpec,
        fixed: Option<Fixed>,
    ) -> Option<Self> {
        let (own, requirements) = (spec::fleet_profile(fleet), spec::fleet_requirements(fleet));
        let profile = profiles(&own, run)?;
        let mut requirements = combined_requirements(&requirements, &job.requirements)?;
        requirements.backend_options = options_of(&profile);
        let needs_folder = |mount: &MountPoint| {
            matches!(
                mount,
                MountPoint::Instance {
                    optional: false,
                    ..
                }
            )
        };
        Some(Self {
            fleet_id,
            profile: Profile {
                params: profile,
                name: String::new(),
                default: false,
            },
            requirements,
            whole: job.jobs_per_replica > 1,
            privileged: job.privileged,
            instance_mounts: job.volumes.iter().flatten().any(needs_folder),
            fixed,
        })
    }

    /// What a fleet itself needs. `master` is the machine of a cluster that the others follow.
    pub fn of_fleet(fleet_id: FleetId, fleet: &FleetSpec, master: Option<&InstanceRow>) -> Self {
        Self {
            fleet_id,
            profile: Profile {
                params: spec::fleet_profile(fleet),
                name: String::new(),
                default: false,
            },
            requirements: spec::fleet_requirements(fleet),
            whole: spec::is_cluster(fleet),
            privileged: false,
            instance_mounts: false,
            fixed: master
                .and_then(|m| m.provisioning_data.as_deref())
                .map(Fixed::to),
        }
    }

    /// Whether it makes sense to ask this backend at all.
    pub fn accepts_backend(&self, backend: &BackendAbilities) -> bool {
        let named = |list: &Vec<BackendType>| {
            backend.name == BackendType::DSTACK || list.contains(&backend.name)
        };
        self.profile.params.backends.as_ref().is_none_or(named)
            && (backend.multinode || self.requirements.multinode != Some(true))
            && (backend.privileged || !self.privileged)
            && (backend.instance_mounts || !self.instance_mounts)
            && (backend.reservations || self.requirements.reservation.is_none())
            && self
                .fixed
                .as_ref()
                .is_none_or(|fixed| fixed.backend == backend.name)
    }

    /// The offer with only the zones that are wanted; `None` if it is not wanted there at all.
    pub fn narrow(&self, mut offer: Offer) -> Option<Offer> {
        let params = &self.profile.params;
        if !self.right_place(&offer.backend, &offer.region)
            || !one_of(&params.instance_types, &offer.instance.name)
        {
            return None;
        }
        let fixed_zone = self.fixed.as_ref().and_then(|fixed| fixed.zone.as_ref());
        if let Some(zones) = &params.availability_zones {
            let offered = offer.availability_zones.as_mut()?;
            offered.retain(|zone| zones.iter().any(|z| z.eq_ignore_ascii_case(zone)));
        }
        if let (Some(zone), Some(offered)) = (fixed_zone, offer.availability_zones.as_mut()) {
            offered.retain(|z| z == zone);
        }
        (offer
            .availability_zones
            .as_ref()
            .is_none_or(|zones| !zones.is_empty()))
        .then_some(offer)
    }

    /// Whether an existing machine stands where it must, and is of a wanted type. An unknown zone passes.
    pub fn accepts_machine(&self, offer: &Offer, data: &JobProvisioningData) -> bool {
        let params = &self.profile.params;
        let zone = data.availability_zone.as_deref();
        let fixed_zone = self.fixed.as_ref().and_then(|fixed| fixed.zone.as_deref());
        self.right_place(&data.backend, &data.region)
            && one_of(&params.instance_types, &offer.instance.name)
            && zone.is_none_or(|zone| one_of(&params.availability_zones, zone))
            && zone
                .zip(fixed_zone)
                .is_none_or(|(zone, fixed)| zone == fixed)
    }

    fn right_place(&self, backend: &BackendType, region: &str) -> bool {
        let params = &self.profile.params;
        params
            .backends
            .as_ref()
            .is_none_or(|list| list.contains(backend) || *backend == BackendType::DSTACK)
            && one_of(&params.regions, region)
            && self
                .fixed
                .as_ref()
                .is_none_or(|fixed| fixed.backend == *backend && fixed.region == region)
    }

    /// Whether a machine made from this offer still is what is wanted.
    pub fn still_fits(&self, offer: &Offer) -> bool {
        matches(offer, &self.requirements) && self.narrow(offer.clone()).is_some()
    }
}

fn one_of(list: &Option<Vec<String>>, word: &str) -> bool {
    list.as_ref()
        .is_none_or(|list| list.iter().any(|item| item.eq_ignore_ascii_case(word)))
}

/// Combines two profiles; parameters that do not describe a machine are left out. `None` if they contradict.
pub fn profiles(fleet: &ProfileParams, run: &ProfileParams) -> Option<ProfileParams> {
    Some(ProfileParams {
        backends: match (&fleet.backends, &run.backends) {
            (Some(a), Some(b)) => Some(a.iter().filter(|x| b.contains(x)).cloned().collect()),
            (a, b) => a.clone().or_else(|| b.clone()),
        },
        regions: words(&fleet.regions, &run.regions),
        availability_zones: words(&fleet.availability_zones, &run.availability_zones),
        instance_types: words(&fleet.instance_types, &run.instance_types),
        reservation: same(fleet.reservation.as_ref(), run.reservation.as_ref())?.cloned(),
        spot_policy: match (fleet.spot_policy, run.spot_policy) {
            (Some(a), Some(b)) if a == b => Some(a),
            (Some(SpotPolicy::Auto), other) | (other, Some(SpotPolicy::Auto))
                if other.is_some() =>
            {
                other
            }
            (Some(_), Some(_)) => return None,
            (a, b) => a.or(b),
        },
        max_price: least(fleet.max_price, run.max_price),
        idle_duration: match (fleet.idle_duration, run.idle_duration) {
            (Some(a), Some(b)) if a < 0 || b < 0 => Some(a.max(b)),
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        },
        tags: match (&fleet.tags, &run.tags) {
            (Some(a), Some(b)) => {
                let mut both = a.clone();
                both.extend(b.clone());
                Some(both)
            }
            (a, b) => a.clone().or_else(|| b.clone()),
        },
        backend_options: backend_options(
            fleet.backend_options.as_deref(),
            run.backend_options.as_deref(),
        )?,
        ..ProfileParams::default()
    })
}

fn words(fleet: &Option<Vec<String>>, run: &Option<Vec<String>>) -> Option<Vec<String>> {
    match (fleet, run) {
        (Some(a), Some(b)) => Some(
            a.iter()
                .filter(|x| b.iter().any(|y| x.eq_ignore_ascii_case(y)))
                .cloned()
                .collect(),
        ),
        (a, b) => a.clone().or_else(|| b.clone()),
    }
}

/// Equal, or one side unset. The outer `None` is a contradiction.
fn same<T: PartialEq>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) => (a == b).then_some(Some(a)),
        (a, b) => Some(a.or(b)),
    }
}

fn least(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn backend_options(
    fleet: Option<&[BackendOptions]>,
    run: Option<&[BackendOptions]>,
) -> Option<Option<Vec<BackendOptions>>> {
    let (Some(fleet), Some(run)) = (fleet, run) else {
        return Some(fleet.or(run).map(<[BackendOptions]>::to_vec));
    };
    let mut out = Vec::new();
    for ours in fleet {
        let theirs = run.iter().find(|other| other.backend() == ours.backend());
        out.push(match (ours, theirs) {
            (BackendOptions::VastAi(a), Some(BackendOptions::VastAi(b))) => {
                BackendOptions::VastAi(VastAiOptions {
                    offer_order: same(a.offer_order, b.offer_order)?,
                    min_reliability: match (a.min_reliability, b.min_reliability) {
                        (Some(a), Some(b)) => Some(a.max(b)),
                        (a, b) => a.or(b),
                    },
                    min_score: a.min_score.max(b.min_score),
                    ..a.clone()
                })
            }
            (_, theirs) => theirs.unwrap_or(ours).clone(),
        });
    }
    let known = |backend: &str| fleet.iter().any(|ours| ours.backend() == backend);
    out.extend(
        run.iter()
            .filter(|theirs| !known(theirs.backend()))
            .cloned(),
    );
    Some(Some(out))
}

/// The backend options as requirements carry them.
pub(crate) fn options_of(profile: &ProfileParams) -> Option<Vec<serde_json::Value>> {
    let list = profile.backend_options.as_ref()?;
    Some(
        list.iter()
            .filter_map(|options| serde_json::to_value(options).ok())
            .collect(),
    )
}

/// Combines two sets of requirements; `None` if they contradict.
pub fn combined_requirements(fleet: &Requirements, run: &Requirements) -> Option<Requirements> {
    Some(Requirements {
        resources: resources(&fleet.resources, &run.resources)?,
        max_price: least(fleet.max_price, run.max_price),
        spot: same(fleet.spot, run.spot)?,
        reservation: same(fleet.reservation.as_ref(), run.reservation.as_ref())?.cloned(),
        multinode: match (fleet.multinode, run.multinode) {
            (Some(a), Some(b)) => Some(a || b),
            (a, b) => a.or(b),
        },
        backend_options: run
            .backend_options
            .clone()
            .or_else(|| fleet.backend_options.clone()),
    })
}

/// Combines two wishes for resources; `None` if they contradict.
pub fn resources(fleet: &ResourcesSpec, run: &ResourcesSpec) -> Option<ResourcesSpec> {
    let mut cpu = fleet.cpu.clone();
    cpu.arch = same(fleet.cpu.arch, run.cpu.arch)?;
    cpu.count = fleet.cpu.count.intersect(&run.cpu.count)?;
    Some(ResourcesSpec {
        cpu,
        memory: fleet.memory.intersect(&run.memory)?,
        shm_size: match (fleet.shm_size, run.shm_size) {
            (Some(a), Some(b)) => Some(if a < b { a } else { b }),
            (a, b) => a.or(b),
        },
        gpu: match (&fleet.gpu, &run.gpu) {
            (Some(a), Some(b)) => Some(gpus(a, b)?),
            (a, b) => a.clone().or_else(|| b.clone()),
        },
        disk: match (&fleet.disk, &run.disk) {
            (Some(a), Some(b)) => Some(DiskSpec {
                size: a.size.intersect(&b.size)?,
            }),
            (a, b) => (*a).or(*b),
        },
    })
}

fn gpus(fleet: &GpuSpec, run: &GpuSpec) -> Option<GpuSpec> {
    Some(GpuSpec {
        vendor: same(fleet.vendor, run.vendor)?,
        name: words(&fleet.name, &run.name),
        count: fleet.count.intersect(&run.count)?,
        memory: ranges(fleet.memory.as_ref(), run.memory.as_ref())?,
        total_memory: ranges(fleet.total_memory.as_ref(), run.total_memory.as_ref())?,
        compute_capability: fleet.compute_capability.max(run.compute_capability),
    })
}

fn ranges<T: Bound>(a: Option<&Range<T>>, b: Option<&Range<T>>) -> Option<Option<Range<T>>> {
    match (a, b) {
        (Some(a), Some(b)) => a.intersect(b).map(Some),
        (a, b) => Some(a.or(b).copied()),
    }
}
