//! RunPod: types of accelerators, then the price of each number of them in each data center; without an account.

use std::collections::BTreeMap;

use dstack_backend_types::AcceleratorVendor;
use serde::Deserialize;
use serde_json::json;

use super::{CollectError, Items, Surroundings, machine, rounded, with_gpus};
use crate::known::{correct_memory_gib, model_in};
use crate::web::Request;

const API: &str = "https://api.runpod.io/graphql";
const MOST_GPUS: u32 = 8;
const TYPES: &str =
    "query { gpuTypes { id manufacturer memoryInGb maxGpuCount } dataCenters { id listed } }";

#[derive(Deserialize)]
struct Answer<T> {
    data: Option<T>,
    #[serde(default)]
    errors: Vec<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    gpu_types: Vec<GpuType>,
    data_centers: Vec<DataCenter>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GpuType {
    id: String,
    #[serde(default)]
    manufacturer: String,
    memory_in_gb: f64,
    max_gpu_count: Option<u32>,
}

#[derive(Deserialize)]
struct DataCenter {
    id: String,
    listed: Option<bool>,
}

/// Prices of every type, by the name that the question gave each number of accelerators.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Priced {
    gpu_types: Vec<PricedType>,
}

#[derive(Deserialize)]
struct PricedType {
    id: String,
    #[serde(flatten)]
    prices: BTreeMap<String, Option<LowestPrice>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LowestPrice {
    /// Of one accelerator.
    uninterruptable_price: Option<f64>,
    minimum_bid_price: Option<f64>,
    min_vcpu: Option<u32>,
    min_memory: Option<f64>,
}

fn ask<T: serde::de::DeserializeOwned>(
    around: &Surroundings<'_>,
    query: &str,
) -> Result<T, CollectError> {
    let answer: Answer<T> = around.json(&Request::post_json(API, &json!({ "query": query })))?;
    answer.data.ok_or_else(|| CollectError::Shape {
        url: API.to_owned(),
        reason: answer
            .errors
            .into_iter()
            .next()
            .map_or_else(|| "no data".to_owned(), |fault| fault.message),
    })
}

/// One question for all types in one data center.
fn prices_in(data_center: &str) -> String {
    let place = json!(data_center);
    let fields = "uninterruptablePrice minimumBidPrice minVcpu minMemory";
    let counts: Vec<String> = (1..=MOST_GPUS)
        .map(|count| {
            format!(
                "n{count}: lowestPrice(input: {{gpuCount: {count}, secureCloud: true, \
                 dataCenterId: {place}}}) {{ {fields} }}"
            )
        })
        .collect();
    format!("query {{ gpuTypes {{ id {} }} }}", counts.join(" "))
}

pub(super) fn collect(around: &Surroundings<'_>) -> Items {
    let known: Known = ask(around, TYPES)?;
    let types: BTreeMap<&str, &GpuType> = known
        .gpu_types
        .iter()
        .map(|one| (one.id.as_str(), one))
        .collect();
    let mut items = Vec::new();
    for center in known
        .data_centers
        .iter()
        .filter(|one| one.listed != Some(false))
    {
        let priced: Priced = ask(around, &prices_in(&center.id))?;
        for one in &priced.gpu_types {
            let Some(kind) = types.get(one.id.as_str()) else {
                continue;
            };
            let is_amd = kind.manufacturer.eq_ignore_ascii_case("amd");
            let vendor = if is_amd {
                AcceleratorVendor::Amd
            } else {
                AcceleratorVendor::Nvidia
            };
            let Some(model) = model_in(&kind.id, vendor) else {
                tracing::debug!(kind = kind.id, "its accelerator is not known");
                continue;
            };
            let memory = correct_memory_gib(model.name, kind.memory_in_gb * 1024.0);
            for count in 1..=kind.max_gpu_count.unwrap_or(MOST_GPUS).min(MOST_GPUS) {
                let Some(Some(price)) = one.prices.get(&format!("n{count}")) else {
                    continue;
                };
                let (Some(cpu), Some(ram)) = (price.min_vcpu, price.min_memory) else {
                    continue;
                };
                let both = [
                    (false, price.uninterruptable_price),
                    (true, price.minimum_bid_price),
                ];
                for (spot, each) in both {
                    let Some(each) = each.filter(|each| *each > 0.0) else {
                        continue;
                    };
                    let total = rounded(each * f64::from(count));
                    let mut item = machine(&kind.id, &center.id, total, cpu, ram);
                    item.spot = spot;
                    items.push(with_gpus(item, vendor, model.name, memory, count));
                }
            }
        }
    }
    Ok(items)
}
