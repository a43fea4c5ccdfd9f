//! Vectors about offers: matching, splitting machines, names of accelerators, tags, names, scaling helpers.

use std::collections::BTreeSet;
use std::path::Path;

use dstack_api::config::{self, Mode, ScalingSpec};
use dstack_backend_sdk::{arch, names, tags};
use dstack_backend_types::matching::{Blocks, gpu_fits, matches, share_of, total_blocks};
use dstack_backend_types::resources::GpuSpec;
use dstack_backend_types::{
    AcceleratorVendor, CpuArchitecture, Disk, Gpu, InstanceOfferWithAvailability, Requirements,
    Resources, gpus,
};
use dstack_engine::scaling;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::vectors::Answer;

/// The offers that requirements are matched against, by their names.
pub(super) struct Offers(Vec<(String, InstanceOfferWithAvailability)>);

fn get<T: DeserializeOwned>(row: &Value, key: &str) -> Result<T, String> {
    serde_json::from_value(row[key].clone()).map_err(|e| format!("{key}: {e}"))
}

impl Offers {
    /// Those of a folder of vectors, none if it has no such file.
    pub(super) fn of(folder: &Path) -> std::io::Result<Self> {
        let path = folder.join("matching-offers.json");
        if !path.exists() {
            return Ok(Self(Vec::new()));
        }
        let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path)?)?;
        let offers = rows
            .iter()
            .map(|row| Ok((get(row, "id")?, get(row, "offer")?)));
        let offers: Result<_, String> = offers.collect();
        offers.map(Self).map_err(std::io::Error::other)
    }

    fn those(&self, fits: impl Fn(&InstanceOfferWithAvailability) -> bool) -> Vec<&str> {
        let fitting = self.0.iter().filter(|(_, offer)| fits(offer));
        fitting.map(|(id, _)| id.as_str()).collect()
    }

    fn share(&self, row: &Value) -> Answer {
        let id = row["offer"].as_str().unwrap_or_default();
        let whole = self.0.iter().find(|(known, _)| known == id);
        let (_, whole) = whole.ok_or_else(|| format!("there is no offer {id}"))?;
        let share = share_of(whole, get(row, "blocks")?, get(row, "total_blocks")?);
        let has = &share.instance.resources;
        Ok(json!({
            "offer": id, "blocks": share.blocks, "total_blocks": share.total_blocks, "cpus": has.cpus,
            "memory_mib": has.memory_mib, "gpus": has.gpus.len(), "disk_mib": has.disk.size_mib, "price": share.price,
        }))
    }
}

/// The answer to a row; none if the file is not about offers.
pub(super) fn answer(name: &str, row: &Value, offers: &Offers) -> Option<Answer> {
    let text = row["input"].as_str().unwrap_or_default();
    Some(match name {
        "matching" => matching(row, offers),
        "gpu-matches-spec" => get::<GpuSpec>(row, "gpu").map(|spec| {
            let first = |offer: &InstanceOfferWithAvailability| {
                let gpu = offer.instance.resources.gpus.first();
                gpu.is_some_and(|gpu| gpu_fits(gpu, &spec))
            };
            json!({"matched": offers.those(first)})
        }),
        "shared-offer" => offers.share(row),
        "blocks-divisible" => divisible(row),
        "nvidia-gpu-name" => Ok(json!(gpus::nvidia_model(text))),
        "amd-gpu-name" => Ok(json!(gpus::amd_model(text))),
        "intel-name" => Ok(json!(gpus::intel_model(text))),
        "gpu-vendor-by-name" => Ok(json!(gpus::vendors_by_name(text))),
        "nvidia-proprietary-kernel-modules" => Ok(json!(gpus::needs_proprietary_modules(text))),
        "normalize-arch" => arch::normalize_arch(row["input"].as_str())
            .map(|arch| json!(arch.download_name()))
            .map_err(|e| e.to_string()),
        "merge-tags" => merged_tags(row),
        "autoscaler" => desired_replicas(row),
        "unique-backend-name" => unique_name(row),
        "lowest-unused-nums" => get::<BTreeSet<u32>>(row, "used").map(|used| {
            let first: Vec<_> = dstack_engine::names::lowest_unused(&used).take(3).collect();
            json!({"first3": first})
        }),
        _ => return None,
    })
}

fn matching(row: &Value, offers: &Offers) -> Answer {
    let asked: Requirements = get(row, "requirements")?;
    // The written form must mean the same.
    if get::<Requirements>(row, "parsed")? != asked {
        return Err("the canonical form reads otherwise".to_owned());
    }
    Ok(json!({"parsed": asked, "matched": offers.those(|offer| matches(offer, &asked))}))
}

fn divisible(row: &Value) -> Answer {
    let gpu = Gpu {
        name: "T4".to_owned(),
        memory_mib: 16384,
        vendor: Some(AcceleratorVendor::Nvidia),
    };
    let has = Resources {
        cpus: get(row, "cpus")?,
        memory_mib: 1024,
        gpus: vec![gpu; get(row, "gpus")?],
        spot: false,
        disk: Disk::default(),
        cpu_arch: Some(CpuArchitecture::X86),
        description: String::new(),
    };
    let total = total_blocks(&has, get::<Blocks>(row, "blocks")?);
    Ok(json!({"divisible": total.is_some(), "total_blocks": total.unwrap_or(0)}))
}

fn merged_tags(row: &Value) -> Answer {
    let layer = |key: &str| get::<Option<tags::Tags>>(row, key);
    let base = layer("base")?.unwrap_or_default();
    let merged = tags::merge(
        &base,
        layer("backend")?.as_ref(),
        layer("resource")?.as_ref(),
    );
    Ok(json!(merged))
}

fn desired_replicas(row: &Value) -> Answer {
    let scaling = match row["manual"] == true {
        true => None,
        false => {
            let mut rules = json!({"metric": "rps"});
            for key in ["target", "window", "scale_up_delay", "scale_down_delay"] {
                rules[key] = row[key].clone();
            }
            let read = config::read::<ScalingSpec>(&rules, Mode::Strict);
            Some(read.map_err(|e| e.to_string())?.value)
        }
    };
    let bounds = (get(row, "min")?, get(row, "max")?);
    let load = scaling::Load {
        requests: get(row, "requests_in_window")?,
        since_scaled: get(row, "seconds_since_last_scaled")?,
    };
    let desired = scaling::desired(bounds, scaling.as_ref(), get(row, "current")?, load);
    Ok(json!({"desired": desired}))
}

/// The random end of a name is replaced by the pattern it fits.
fn unique_name(row: &Value) -> Answer {
    let name = names::unique_name(
        row["resource_name"].as_str().unwrap_or_default(),
        row["project_name"].as_str(),
        get(row, "max_length")?,
    );
    let (prefix, end) = name.rsplit_once('-').unwrap_or_default();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let pattern = match end.len() == 8 && end.chars().all(fits) {
        true => "-[a-z0-9]{8}",
        false => end,
    };
    Ok(json!({"prefix": prefix, "suffix_pattern": pattern, "length": name.len()}))
}
