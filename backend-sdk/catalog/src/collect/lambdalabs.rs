//! Lambda: `instance-types` has prices and shapes, `images` the regions that there are. A key of the account is needed.

use std::collections::{BTreeMap, BTreeSet};

use dstack_backend_types::{AcceleratorVendor, CpuArchitecture};
use serde::Deserialize;

use super::{Items, Surroundings, machine, rounded, with_gpus};
use crate::known::{is_superchip, model_in};
use crate::web::Request;

const API: &str = "https://cloud.lambda.ai/api/v1";
const KEY: &str = "LAMBDA_API_KEY";
/// Sizes are told in GiB and published in this unit.
const UNIT: f64 = 1.074;

#[derive(Deserialize)]
struct Answer<T> {
    data: T,
}

#[derive(Deserialize)]
struct Offered {
    instance_type: InstanceType,
}

#[derive(Deserialize)]
struct InstanceType {
    name: String,
    #[serde(default)]
    gpu_description: String,
    price_cents_per_hour: f64,
    specs: Specs,
}

#[derive(Deserialize)]
struct Specs {
    vcpus: u32,
    memory_gib: f64,
    storage_gib: f64,
    #[serde(default)]
    gpus: u32,
}

#[derive(Deserialize)]
struct Image {
    region: Region,
}

#[derive(Deserialize)]
struct Region {
    name: String,
}

pub(super) fn collect(around: &Surroundings<'_>) -> Items {
    let key = around.needed("lambdalabs", KEY, KEY)?;
    let get = |what: &str| {
        Request::get(format!("{API}/{what}")).header("Authorization", format!("Bearer {key}"))
    };
    let types: Answer<BTreeMap<String, Offered>> = around.json(&get("instance-types"))?;
    let images: Answer<Vec<Image>> = around.json(&get("images"))?;
    let regions: BTreeSet<String> = images
        .data
        .into_iter()
        .map(|image| image.region.name)
        .collect();
    let mut items = Vec::new();
    for Offered { instance_type: one } in types.data.into_values() {
        let model = model_in(&one.gpu_description, AcceleratorVendor::Nvidia);
        let memory = gib_in(&one.gpu_description);
        if one.specs.gpus > 0 && (model.is_none() || memory.is_none()) {
            let (name, gpu) = (&one.name, &one.gpu_description);
            tracing::warn!(name, gpu, "its accelerator is not known");
            continue;
        }
        for region in &regions {
            let price = rounded(one.price_cents_per_hour / 100.0);
            let memory_size = rounded(one.specs.memory_gib * UNIT);
            let mut item = machine(&one.name, region, price, one.specs.vcpus, memory_size);
            item.disk_size = Some(rounded(one.specs.storage_gib * UNIT));
            if let (Some(model), Some(size)) = (model, memory)
                && one.specs.gpus > 0
            {
                item = with_gpus(
                    item,
                    AcceleratorVendor::Nvidia,
                    model.name,
                    size,
                    one.specs.gpus,
                );
                if is_superchip(model.name) {
                    item.cpu_arch = CpuArchitecture::Arm;
                    item.flags = vec!["lambda-arm".to_owned()];
                }
            }
            items.push(item);
        }
    }
    Ok(items)
}

/// 24 of `A10 (24 GB PCIe)`.
fn gib_in(description: &str) -> Option<f64> {
    let (_, inside) = description.split_once('(')?;
    inside.split_whitespace().next()?.parse().ok()
}
