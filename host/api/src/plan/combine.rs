//! A run inside a fleet: what both ask for together. `None` everywhere means that nothing fits both.

use std::collections::BTreeSet;

use dstack_backend_types::Requirements;
use dstack_backend_types::resources::{Bound, CpuSpec, DiskSpec, GpuSpec, Range, ResourcesSpec};

use crate::config::{BackendOptions, ProfileParams, SpotPolicy, VastAiOptions};

/// Both values must agree where both are there.
fn agree<T: PartialEq + Clone>(a: Option<&T>, b: Option<&T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => None,
        (a, b) => Some(a.or(b).cloned()),
    }
}

/// One value if only one is there, else `f` of both.
fn either<T: Clone>(a: Option<&T>, b: Option<&T>, f: impl FnOnce(&T, &T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(f(a, b)),
        (a, b) => a.or(b).cloned(),
    }
}

fn common_words(fleet: &[String], run: &[String]) -> Vec<String> {
    let run: BTreeSet<_> = run.iter().map(|word| word.to_lowercase()).collect();
    let wanted = |word: &&String| run.contains(&word.to_lowercase());
    fleet.iter().filter(wanted).cloned().collect()
}

fn words(fleet: Option<&Vec<String>>, run: Option<&Vec<String>>) -> Option<Vec<String>> {
    either(fleet, run, |fleet, run| common_words(fleet, run))
}

/// Combines where and how to provision. What only runs have comes from the run.
pub fn profiles(fleet: &ProfileParams, run: &ProfileParams) -> Option<ProfileParams> {
    let spot_policy = match (fleet.spot_policy, run.spot_policy) {
        (Some(SpotPolicy::Auto), Some(other)) | (Some(other), Some(SpotPolicy::Auto)) => {
            Some(other)
        }
        (fleet, run) => agree(fleet.as_ref(), run.as_ref())?,
    };
    let idle_duration = either(
        fleet.idle_duration.as_ref(),
        run.idle_duration.as_ref(),
        |a, b| match (*a, *b) {
            (a, b) if a < 0 => b,
            (a, b) if b < 0 => a,
            (a, b) => a.min(b),
        },
    );
    let tags = either(fleet.tags.as_ref(), run.tags.as_ref(), |fleet, run| {
        let mut tags = fleet.clone();
        tags.extend(run.clone());
        tags
    });
    Some(ProfileParams {
        backends: either(
            fleet.backends.as_ref(),
            run.backends.as_ref(),
            |fleet, run| {
                fleet
                    .iter()
                    .filter(|backend| run.contains(backend))
                    .cloned()
                    .collect()
            },
        ),
        regions: words(fleet.regions.as_ref(), run.regions.as_ref()),
        availability_zones: words(
            fleet.availability_zones.as_ref(),
            run.availability_zones.as_ref(),
        ),
        instance_types: words(fleet.instance_types.as_ref(), run.instance_types.as_ref()),
        reservation: agree(fleet.reservation.as_ref(), run.reservation.as_ref())?,
        spot_policy,
        max_price: either(fleet.max_price.as_ref(), run.max_price.as_ref(), |a, b| {
            a.min(*b)
        }),
        idle_duration,
        tags,
        backend_options: options(fleet.backend_options.as_ref(), run.backend_options.as_ref())?,
        ..run.clone()
    })
}

fn options(
    fleet: Option<&Vec<BackendOptions>>,
    run: Option<&Vec<BackendOptions>>,
) -> Option<Option<Vec<BackendOptions>>> {
    let (Some(fleet), Some(run)) = (fleet, run) else {
        return Some(fleet.or(run).cloned());
    };
    let mut all = Vec::new();
    for mine in fleet {
        all.push(
            match run.iter().find(|other| other.backend() == mine.backend()) {
                Some(other) => option(mine, other)?,
                None => mine.clone(),
            },
        );
    }
    let new = |options: &&BackendOptions| !fleet.iter().any(|f| f.backend() == options.backend());
    all.extend(run.iter().filter(new).cloned());
    Some(Some(all))
}

fn option(fleet: &BackendOptions, run: &BackendOptions) -> Option<BackendOptions> {
    match (fleet, run) {
        (BackendOptions::VastAi(fleet), BackendOptions::VastAi(run)) => {
            let reliability = (fleet.min_reliability.as_ref(), run.min_reliability.as_ref());
            Some(BackendOptions::VastAi(VastAiOptions {
                kind: fleet.kind,
                offer_order: agree(fleet.offer_order.as_ref(), run.offer_order.as_ref())?,
                min_reliability: either(reliability.0, reliability.1, |a, b| a.max(*b)),
                min_score: either(fleet.min_score.as_ref(), run.min_score.as_ref(), |a, b| {
                    *a.max(b)
                }),
            }))
        }
        (fleet, run) => (fleet == run).then(|| run.clone()),
    }
}

fn ranges<T: Bound>(fleet: Option<&Range<T>>, run: Option<&Range<T>>) -> Option<Option<Range<T>>> {
    match (fleet, run) {
        (Some(fleet), Some(run)) => fleet.intersect(run).map(Some),
        (fleet, run) => Some(fleet.or(run).copied()),
    }
}

fn gpus(fleet: &GpuSpec, run: &GpuSpec) -> Option<GpuSpec> {
    Some(GpuSpec {
        vendor: agree(fleet.vendor.as_ref(), run.vendor.as_ref())?,
        name: words(fleet.name.as_ref(), run.name.as_ref()),
        count: fleet.count.intersect(&run.count)?,
        memory: ranges(fleet.memory.as_ref(), run.memory.as_ref())?,
        total_memory: ranges(fleet.total_memory.as_ref(), run.total_memory.as_ref())?,
        compute_capability: fleet.compute_capability.max(run.compute_capability),
    })
}

/// Combines hardware.
pub fn resources(fleet: &ResourcesSpec, run: &ResourcesSpec) -> Option<ResourcesSpec> {
    let gpu = match (&fleet.gpu, &run.gpu) {
        (Some(fleet), Some(run)) => Some(gpus(fleet, run)?),
        (fleet, run) => fleet.clone().or_else(|| run.clone()),
    };
    let disk = match (fleet.disk, run.disk) {
        (Some(fleet), Some(run)) => Some(DiskSpec {
            size: fleet.size.intersect(&run.size)?,
        }),
        (fleet, run) => fleet.or(run),
    };
    let smaller = |a: &_, b: &_| if a < b { *a } else { *b };
    Some(ResourcesSpec {
        cpu: CpuSpec {
            arch: agree(fleet.cpu.arch.as_ref(), run.cpu.arch.as_ref())?,
            count: fleet.cpu.count.intersect(&run.cpu.count)?,
        },
        memory: fleet.memory.intersect(&run.memory)?,
        shm_size: either(fleet.shm_size.as_ref(), run.shm_size.as_ref(), smaller),
        gpu,
        disk,
    })
}

/// Combines requirements.
pub fn requirements(fleet: &Requirements, run: &Requirements) -> Option<Requirements> {
    let backend_options = match (&fleet.backend_options, &run.backend_options) {
        (Some(fleet), Some(run)) => {
            let typed = |list: &[serde_json::Value]| -> Option<Vec<BackendOptions>> {
                list.iter()
                    .map(|options| serde_json::from_value(options.clone()).ok())
                    .collect()
            };
            let both = options(Some(&typed(fleet)?), Some(&typed(run)?))?;
            both.map(|list| super::jobs::options_json(&list))
        }
        (fleet, run) => fleet.clone().or_else(|| run.clone()),
    };
    Some(Requirements {
        resources: resources(&fleet.resources, &run.resources)?,
        max_price: either(fleet.max_price.as_ref(), run.max_price.as_ref(), |a, b| {
            a.min(*b)
        }),
        spot: agree(fleet.spot.as_ref(), run.spot.as_ref())?,
        reservation: agree(fleet.reservation.as_ref(), run.reservation.as_ref())?,
        multinode: either(fleet.multinode.as_ref(), run.multinode.as_ref(), |a, b| {
            *a || *b
        }),
        backend_options,
    })
}
