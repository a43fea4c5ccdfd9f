//! Verda (once DataCrunch): types, each in every location, on-demand and spot. Client credentials of the account are needed.

use dstack_backend_types::AcceleratorVendor;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::{Items, Surroundings, machine, with_gpus};
use crate::known::model_in;
use crate::web::Request;

const API: &str = "https://api.verda.com/v1";
const NAMES: &str = "VERDA_CLIENT_ID and VERDA_CLIENT_SECRET";

#[derive(Deserialize)]
struct Token {
    access_token: String,
}

#[derive(Deserialize)]
struct InstanceType {
    instance_type: String,
    #[serde(deserialize_with = "number")]
    price_per_hour: f64,
    #[serde(deserialize_with = "number")]
    spot_price: f64,
    cpu: Cpu,
    memory: Size,
    gpu: Gpu,
    gpu_memory: Size,
}

#[derive(Deserialize)]
struct Cpu {
    number_of_cores: u32,
}

#[derive(Deserialize)]
struct Gpu {
    #[serde(default)]
    description: String,
    number_of_gpus: u32,
}

/// Of all accelerators together, where it is theirs.
#[derive(Deserialize)]
struct Size {
    size_in_gigabytes: f64,
}

#[derive(Deserialize)]
struct Location {
    code: String,
}

/// Prices are texts, here and there numbers.
fn number<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(f64),
        Text(String),
    }
    match Either::deserialize(input)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text
            .parse()
            .map_err(|_| serde::de::Error::custom(format!("{text:?} is no price"))),
    }
}

pub(super) fn collect(around: &Surroundings<'_>) -> Items {
    let id = around.needed("verda", "VERDA_CLIENT_ID", NAMES)?;
    let secret = around.needed("verda", "VERDA_CLIENT_SECRET", NAMES)?;
    let login = json!({
        "grant_type": "client_credentials", "client_id": id, "client_secret": secret,
    });
    let token: Token = around.json(&Request::post_json(format!("{API}/oauth2/token"), &login))?;
    let get = |what: &str| {
        let bearer = format!("Bearer {}", token.access_token);
        Request::get(format!("{API}/{what}")).header("Authorization", bearer)
    };
    let types: Vec<InstanceType> = around.json(&get("instance-types"))?;
    let locations: Vec<Location> = around.json(&get("locations"))?;
    let mut items = Vec::new();
    for one in &types {
        let is_amd = one.gpu.description.contains("MI3") || one.gpu.description.contains("AMD");
        let vendor = if is_amd {
            AcceleratorVendor::Amd
        } else {
            AcceleratorVendor::Nvidia
        };
        let count = one.gpu.number_of_gpus;
        let model = model_in(&one.gpu.description, vendor);
        if count > 0 && model.is_none() {
            let (name, gpu) = (&one.instance_type, &one.gpu.description);
            tracing::warn!(name, gpu, "its accelerator is not known");
            continue;
        }
        for location in &locations {
            for (spot, price) in [(false, one.price_per_hour), (true, one.spot_price)] {
                let memory = one.memory.size_in_gigabytes;
                let cores = one.cpu.number_of_cores;
                let mut item = machine(&one.instance_type, &location.code, price, cores, memory);
                item.spot = spot;
                if let Some(model) = model.filter(|_| count > 0) {
                    let each = one.gpu_memory.size_in_gigabytes / f64::from(count);
                    item = with_gpus(item, vendor, model.name, each, count);
                }
                items.push(item);
            }
        }
    }
    Ok(items)
}
