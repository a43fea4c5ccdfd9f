//! What a machine must be: the needs of a fleet and of a run together.
//!
//! How two needs become one is a rule of the configuration language, see
//! [`plan::combine`](dstack_api::plan::combine).

use dstack_api::config::{MountPoint, Profile, ProfileParams};
use dstack_api::fleets::FleetSpec;
use dstack_api::jobs::JobSpec;
use dstack_api::plan::combine;
use dstack_backend_types::matching::matches;
use dstack_backend_types::{
    BackendType, InstanceOfferWithAvailability as Offer, JobProvisioningData, Requirements,
};

use crate::ids::FleetId;
use crate::model::InstanceRow;
use crate::offers::Sharing;
use crate::spec;
use crate::view::BackendAbilities;
use crate::volumes::mounts::Place;

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
    /// What the job's share of a machine must have: fleet and job combined; of a fleet that shares its machines,
    /// what the job alone asks for.
    pub requirements: Requirements,
    /// What the whole machine must have; this is the question to the backends.
    pub machine: Requirements,
    /// All blocks of the machine are needed.
    pub whole: bool,
    /// The job's container is privileged.
    pub privileged: bool,
    /// The job cannot do without folders of the machine.
    pub instance_mounts: bool,
    /// It must stand beside another machine.
    pub fixed: Option<Fixed>,
    /// Where the volumes of each mount point are; it must stand in one place of each.
    pub volumes: Vec<Vec<Place>>,
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
        let own = spec::fleet_requirements(fleet);
        let profile = combine::profiles(&spec::fleet_profile(fleet), run)?;
        let (requirements, machine) = if spec::sharing(fleet) == Sharing::Count(1) {
            let both = combine::requirements(&own, &job.requirements)?;
            (both.clone(), both)
        } else {
            // The fleet speaks of machines, the job of its share: only what is common to both must agree.
            let rest = Requirements {
                resources: own.resources.clone(),
                ..job.requirements.clone()
            };
            (
                job.requirements.clone(),
                combine::requirements(&own, &rest)?,
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
            machine,
            whole: job.jobs_per_replica > 1,
            privileged: job.privileged,
            instance_mounts: needs_folders(job),
            fixed,
            volumes: Vec::new(),
        })
    }

    /// What a job needs of a machine that is already there.
    pub fn of_job(
        fleet_id: FleetId,
        run: &ProfileParams,
        job: &JobSpec,
        fixed: Option<Fixed>,
    ) -> Self {
        Self {
            fleet_id,
            profile: Profile {
                params: run.clone(),
                name: String::new(),
                default: false,
            },
            requirements: job.requirements.clone(),
            machine: job.requirements.clone(),
            whole: job.jobs_per_replica > 1,
            privileged: job.privileged,
            instance_mounts: needs_folders(job),
            fixed,
            volumes: Vec::new(),
        }
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
            machine: spec::fleet_requirements(fleet),
            whole: spec::is_cluster(fleet),
            privileged: false,
            instance_mounts: false,
            fixed: master
                .and_then(|m| m.provisioning_data.as_deref())
                .map(Fixed::to),
            volumes: Vec::new(),
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
            && self
                .volumes
                .iter()
                .all(|mount| mount.iter().any(|place| place.backend == backend.name))
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
        for mount in &self.volumes {
            let near = |zone: Option<&str>| {
                let mut places = mount.iter();
                places.any(|place| place.reaches(&offer.backend, &offer.region, zone))
            };
            if !near(None) {
                return None;
            }
            if let Some(offered) = offer.availability_zones.take() {
                let kept = offered.into_iter().filter(|zone| near(Some(zone.as_str())));
                offer.availability_zones = Some(kept.collect());
            }
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
            && self.volumes.iter().all(|mount| {
                let mut places = mount.iter();
                places.any(|place| place.reaches(&data.backend, &data.region, zone))
            })
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
        matches(offer, &self.machine) && self.narrow(offer.clone()).is_some()
    }
}

/// The job cannot do without folders of the machine.
fn needs_folders(job: &JobSpec) -> bool {
    let needed = |mount: &MountPoint| {
        matches!(
            mount,
            MountPoint::Instance {
                optional: false,
                ..
            }
        )
    };
    job.volumes.iter().flatten().any(needed)
}

fn one_of(list: &Option<Vec<String>>, word: &str) -> bool {
    list.as_ref()
        .is_none_or(|list| list.iter().any(|item| item.eq_ignore_ascii_case(word)))
}
