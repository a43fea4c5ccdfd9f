//! Vultr: virtual machines and bare metal, without an account. Fractions of accelerators are left out.

use dstack_backend_types::AcceleratorVendor;
use serde::Deserialize;

use super::{CollectError, Items, Surroundings, machine, with_gpus};
use crate::known::model_in;
use crate::web::Request;

const API: &str = "https://api.vultr.com/v2";
/// Hours of a month, where only the month has a price.
const MONTH_HOURS: f64 = 730.0;
/// More pages than there can be.
const MOST_PAGES: usize = 100;

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    plans: Vec<Plan>,
    #[serde(default)]
    plans_metal: Vec<Plan>,
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    links: Option<Links>,
}

#[derive(Deserialize)]
struct Links {
    #[serde(default)]
    next: String,
}

#[derive(Deserialize)]
struct Plan {
    id: String,
    vcpu_count: Option<u32>,
    /// Of bare metal.
    cpu_threads: Option<u32>,
    /// MiB.
    ram: f64,
    /// GB of one.
    disk: f64,
    disk_count: Option<f64>,
    hourly_cost: Option<f64>,
    monthly_cost: f64,
    #[serde(default)]
    locations: Vec<String>,
    gpu_type: Option<String>,
    gpu_vram_gb: Option<f64>,
    gpu_count: Option<u32>,
}

fn pages(around: &Surroundings<'_>, what: &str) -> Result<Vec<Plan>, CollectError> {
    let first = format!("{API}/{what}?per_page=500");
    let (mut url, mut plans) = (first.clone(), Vec::new());
    for _ in 0..MOST_PAGES {
        let page: Page = around.json(&Request::get(url))?;
        plans.extend(page.plans);
        plans.extend(page.plans_metal);
        let next = page
            .meta
            .and_then(|meta| meta.links)
            .map(|links| links.next);
        match next.filter(|cursor| !cursor.is_empty()) {
            Some(cursor) => url = format!("{first}&cursor={cursor}"),
            None => return Ok(plans),
        }
    }
    Err(CollectError::Shape {
        url: format!("{API}/{what}"),
        reason: format!("more than {MOST_PAGES} pages"),
    })
}

pub(super) fn collect(around: &Surroundings<'_>) -> Items {
    let mut plans = pages(around, "plans")?;
    plans.extend(pages(around, "plans-metal")?);
    let mut items = Vec::new();
    for plan in plans {
        let Some(cpu) = plan.vcpu_count.or(plan.cpu_threads) else {
            continue;
        };
        let gpu = match gpu(&plan) {
            Ok(gpu) => gpu,
            Err(why) => {
                tracing::debug!(plan = plan.id, why, "a plan is left out");
                continue;
            }
        };
        let price = plan.hourly_cost.unwrap_or(plan.monthly_cost / MONTH_HOURS);
        for location in &plan.locations {
            let mut item = machine(&plan.id, location, price, cpu, plan.ram / 1024.0);
            item.disk_size = Some(plan.disk * plan.disk_count.unwrap_or(1.0));
            if let Some((vendor, name, memory, count)) = gpu {
                item = with_gpus(item, vendor, name, memory, count);
            }
            items.push(item);
        }
    }
    Ok(items)
}

type Gpus = (AcceleratorVendor, &'static str, f64, u32);

/// The accelerators of a plan: their number is that of whole ones which its memory makes.
fn gpu(plan: &Plan) -> Result<Option<Gpus>, &'static str> {
    let Some(described) = plan.gpu_type.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let vendor = if described.to_ascii_uppercase().contains("AMD") {
        AcceleratorVendor::Amd
    } else {
        AcceleratorVendor::Nvidia
    };
    let model = model_in(described, vendor).ok_or("its accelerator is not known")?;
    let total = plan.gpu_vram_gb.ok_or("its accelerators have no memory")?;
    let whole = |size: u32| {
        let count = total / f64::from(size);
        (count >= 1.0 && count.fract() == 0.0).then_some((size, count))
    };
    let fitting = model.memory_gib.iter().rev().find_map(|size| whole(*size));
    let (size, count) = fitting.ok_or("it has a part of an accelerator")?;
    let count = plan.gpu_count.unwrap_or_else(|| {
        (1_u32..=64)
            .find(|whole| f64::from(*whole) >= count)
            .unwrap_or(1)
    });
    Ok(Some((vendor, model.name, f64::from(size), count)))
}
