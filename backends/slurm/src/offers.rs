//! Offers: what nodes have, cut down to what is asked for.

use std::collections::BTreeMap;

use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::serde_json::{Map, Value};
use dstack_backend_sdk::types::{Disk, Gpu, InstanceOffer, InstanceType, Resources, ResourcesSpec};

use crate::cluster::{Cluster, Use};
use crate::gpu::Kind;
use crate::node::Node;

/// Key of an offer's data: Slurm's word for the sort of GPU.
const GPU_WORD: &str = "gpu_word";

/// Nodes that are alike for a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    /// Those without come first: a job without GPUs leaves the others alone.
    gpu_count: u32,
    gpu: Option<(String, u64)>,
    word: Option<String>,
    cpus: u32,
    memory_mib: u64,
    arch: CpuArchitecture,
}

#[derive(Debug, Default)]
struct Seen {
    gpu: Option<Gpu>,
    partitions: Vec<String>,
    is_usable: bool,
}

/// Whole nodes of a cluster.
///
/// # Errors
/// `auth`, `transport`.
pub(crate) fn of_cluster(cluster: &Cluster) -> Result<Vec<InstanceOfferWithAvailability>> {
    let known = cluster.partitions()?;
    let nodes = cluster.nodes()?;
    Ok(of_nodes(cluster, &known, &nodes))
}

fn of_nodes(
    cluster: &Cluster,
    known: &[String],
    nodes: &[Node],
) -> Vec<InstanceOfferWithAvailability> {
    let mut shapes: BTreeMap<Shape, Seen> = BTreeMap::new();
    for node in nodes {
        for partition in node.partitions.iter().filter(|name| known.contains(name)) {
            for used in cluster.uses(partition) {
                let Some((shape, gpu)) = shape(node, used) else {
                    continue;
                };
                let seen = shapes.entry(shape).or_default();
                seen.gpu = gpu;
                seen.is_usable |= node.is_usable;
                if !seen.partitions.contains(partition) {
                    seen.partitions.push(partition.clone());
                }
            }
        }
    }
    shapes
        .into_iter()
        .map(|(shape, seen)| offer(cluster.name(), shape, seen))
        .collect()
}

/// What a node is in a partition; `None` if the partition's GPUs are not in it.
fn shape(node: &Node, used: Use<'_>) -> Option<(Shape, Option<Gpu>)> {
    let plain = Shape {
        gpu_count: 0,
        gpu: None,
        word: None,
        cpus: node.cpus,
        memory_mib: node.memory_mib,
        arch: node.arch,
    };
    let Use::With(kind) = used else {
        return Some((plain, None));
    };
    let (gpu_count, word) = counted(node, kind)?;
    let gpu = kind.gpu().clone();
    let shape = Shape {
        gpu_count,
        gpu: Some((gpu.name.clone(), gpu.memory_mib)),
        word,
        ..plain
    };
    Some((shape, Some(gpu)))
}

/// How many GPUs of the model a node has, and Slurm's word for them. Where no word names the model, all are taken for it.
fn counted(node: &Node, kind: &Kind) -> Option<(u32, Option<String>)> {
    let called = node.gpus.iter().find(|sort| {
        sort.word
            .as_deref()
            .is_some_and(|word| kind.is_called(word))
    });
    if let Some(sort) = called {
        return Some((sort.count, sort.word.clone()));
    }
    let count = node.gpus.iter().map(|sort| sort.count).sum();
    (count > 0).then_some((count, None))
}

fn offer(region: &str, shape: Shape, seen: Seen) -> InstanceOfferWithAvailability {
    let gb = shape.memory_mib.div_ceil(1024);
    let mut name = format!("{}cpu-{gb}gb", shape.cpus);
    if let Some((model, _)) = &shape.gpu {
        name = format!("{}x{model}-{name}", shape.gpu_count);
    }
    let count = usize::try_from(shape.gpu_count).unwrap_or_default();
    let mut backend_data = Map::new();
    if let Some(word) = shape.word {
        backend_data.insert(GPU_WORD.to_owned(), Value::String(word));
    }
    let offer = InstanceOffer {
        backend: BackendType::new("slurm".to_owned()),
        instance: InstanceType {
            name,
            resources: Resources {
                cpus: shape.cpus,
                memory_mib: shape.memory_mib,
                gpus: seen.gpu.map_or_else(Vec::new, |gpu| vec![gpu; count]),
                spot: false,
                // Unknown: a container's folder is wherever the site has put it.
                disk: Disk { size_mib: 0 },
                cpu_arch: Some(shape.arch),
                description: String::new(),
            },
        },
        region: region.to_owned(),
        price: 0.0,
        backend_data,
    };
    let availability = if seen.is_usable {
        InstanceAvailability::Unknown
    } else {
        InstanceAvailability::NotAvailable
    };
    InstanceOfferWithAvailability {
        availability_zones: Some(seen.partitions),
        instance_runtime: InstanceRuntime::Runner,
        ..InstanceOfferWithAvailability::new(offer, availability)
    }
}

/// Slurm's word for the sort of GPU of an offer.
pub(crate) fn gpu_word(offer: &InstanceOfferWithAvailability) -> Option<&str> {
    offer.backend_data.get(GPU_WORD).and_then(Value::as_str)
}

/// Leaves of a node what is asked for. What is too small stays as it is: it is filtered out.
pub(crate) fn cut(has: &mut Resources, asked: &ResourcesSpec) {
    let whole = has.clone();
    has.cpus = asked.cpu.count.min.unwrap_or(1).max(1).min(whole.cpus);
    has.memory_mib = memory(&whole, has.cpus, asked);
    if !has.gpus.is_empty() {
        has.gpus.truncate(gpus(&whole, asked));
    }
}

/// The least that will do; where nothing is asked, the share that goes with the processors.
fn memory(whole: &Resources, cpus: u32, asked: &ResourcesSpec) -> u64 {
    let least = asked.memory.min.map_or(0, Memory::mib);
    if least > 0 {
        return least.min(whole.memory_mib);
    }
    let share = whole.memory_mib.saturating_mul(u64::from(cpus)) / u64::from(whole.cpus.max(1));
    let most = asked.memory.max.map_or(u64::MAX, Memory::mib);
    share.min(most).max(1)
}

/// The least that will do, one at least: who asks for none has nodes without.
fn gpus(whole: &Resources, asked: &ResourcesSpec) -> usize {
    let Some(asked) = &asked.gpu else { return 1 };
    let by_count = asked.count.min.unwrap_or(0);
    let each = whole.gpus.first().map_or(1, |gpu| gpu.memory_mib.max(1));
    let total = asked
        .total_memory
        .and_then(|range| range.min)
        .map_or(0, Memory::mib);
    let by_memory = u32::try_from(total.div_ceil(each)).unwrap_or(u32::MAX);
    let least = by_count.max(by_memory).max(1);
    usize::try_from(least).unwrap_or(usize::MAX)
}

/// Cut down, nodes of several sizes are the same offer: their partitions come together.
pub(crate) fn merged(
    offers: Vec<InstanceOfferWithAvailability>,
) -> Vec<InstanceOfferWithAvailability> {
    let mut all: Vec<InstanceOfferWithAvailability> = Vec::new();
    for offer in offers {
        let same = all.iter_mut().find(|known| {
            known.region == offer.region
                && known.instance == offer.instance
                && known.backend_data == offer.backend_data
                && known.availability == offer.availability
        });
        let Some(known) = same else {
            all.push(offer);
            continue;
        };
        let zones = known.availability_zones.get_or_insert_default();
        for zone in offer.availability_zones.unwrap_or_default() {
            if !zones.contains(&zone) {
                zones.push(zone);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests;
