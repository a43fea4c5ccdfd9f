//! AWS: the price list of EC2, which is public, region by region. On-demand prices only: those of spot machines are answered
//! with an account alone.

use std::collections::BTreeMap;

use dstack_backend_types::{AcceleratorVendor, CatalogItem, CpuArchitecture};
use serde::Deserialize;

use super::{CollectError, Items, Surroundings, machine, with_gpus};
use crate::web::Request;

const PRICES: &str = "https://pricing.us-east-1.amazonaws.com";
const REGIONS: &str = "/offers/v1.0/aws/AmazonEC2/current/region_index.json";
/// Lines before the header of a price list.
const HEAD_LINES: usize = 5;

/// The accelerators of each family, which the price list only counts: model and memory of one, in GiB. From the provider's
/// documents of instance types.
const GPUS: [(&str, &str, f64); 14] = [
    ("p6-b300", "B300", 270.0),
    ("p6-b200", "B200", 180.0),
    ("p5en", "H200", 141.0),
    ("p5e", "H200", 141.0),
    ("p5", "H100", 80.0),
    ("p4de", "A100", 80.0),
    ("p4d", "A100", 40.0),
    ("g7e", "RTXPRO6000", 96.0),
    ("g7", "RTXPRO4500", 32.0),
    ("g6e", "L40S", 48.0),
    ("g6", "L4", 24.0),
    ("gr6", "L4", 24.0),
    ("g5", "A10G", 24.0),
    ("g4dn", "T4", 16.0),
];

/// Families that the published catalog has, beside one single type.
const FAMILIES: [&str; 20] = [
    "m7i", "c7i", "r7i", "t3", "c5", "m5", "p6-b300", "p6-b200", "p5", "p5e", "p5en", "p4d",
    "p4de", "g7", "g7e", "g6", "g6e", "gr6", "g5", "g4dn",
];

#[derive(Deserialize)]
struct Index {
    regions: BTreeMap<String, Region>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    current_version_url: String,
}

fn family(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

pub(super) fn is_published(item: &CatalogItem) -> bool {
    let family = family(&item.instance_name);
    item.instance_name == "t2.small" || FAMILIES.contains(&family)
}

pub(super) fn collect(around: &Surroundings<'_>) -> Items {
    let index: Index = around.json(&Request::get(format!("{PRICES}{REGIONS}")))?;
    let mut items = Vec::new();
    for region in index.regions.into_values() {
        let file = region.current_version_url.replace(".json", ".csv");
        let url = format!("{PRICES}{file}");
        let body = around.bytes(&Request::get(url.clone()))?;
        read(&body, &mut items).map_err(|reason| CollectError::Shape { url, reason })?;
    }
    Ok(items)
}

/// The rows of one region's list.
fn read(body: &[u8], items: &mut Vec<CatalogItem>) -> Result<(), String> {
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .has_headers(false)
        .from_reader(body);
    let mut record = csv::StringRecord::new();
    let mut next = |record: &mut csv::StringRecord| {
        reader
            .read_record(record)
            .map_err(|error| error.to_string())
    };
    for _ in 0..HEAD_LINES {
        next(&mut record)?;
    }
    if !next(&mut record)? {
        return Err("there is no header".to_owned());
    }
    let columns: BTreeMap<String, usize> = record
        .iter()
        .enumerate()
        .map(|(at, name)| (name.to_owned(), at))
        .collect();
    for name in [
        "Instance Type",
        "PricePerUnit",
        "Region Code",
        "vCPU",
        "Memory",
    ] {
        if !columns.contains_key(name) {
            return Err(format!("there is no column {name}"));
        }
    }
    while next(&mut record)? {
        let row = Row(&columns, &record);
        if row.is_wanted()
            && let Some(item) = row.item()
        {
            items.push(item);
        }
    }
    Ok(())
}

struct Row<'a>(&'a BTreeMap<String, usize>, &'a csv::StringRecord);

impl Row<'_> {
    fn text(&self, column: &str) -> &str {
        let at = self.0.get(column).copied();
        at.and_then(|at| self.1.get(at)).unwrap_or_default()
    }

    /// On-demand, on shared hardware, with a plain Linux, counted by the hour.
    fn is_wanted(&self) -> bool {
        [
            ("TermType", "OnDemand"),
            ("Tenancy", "Shared"),
            ("Operating System", "Linux"),
            ("CapacityStatus", "Used"),
            ("Unit", "Hrs"),
            ("Currency", "USD"),
            ("Pre Installed S/W", "NA"),
        ]
        .iter()
        .all(|(column, value)| self.text(column) == *value)
    }

    /// `None` for what is free, incomplete, or has accelerators that are unknown or parts.
    fn item(&self) -> Option<CatalogItem> {
        let name = self.text("Instance Type");
        let price: f64 = self.text("PricePerUnit").parse().ok()?;
        let cpu = self.text("vCPU").parse().ok()?;
        let memory = self.text("Memory").strip_suffix(" GiB")?;
        let memory = memory.replace(',', "").parse().ok()?;
        if price <= 0.0 {
            return None;
        }
        let mut item = machine(name, self.text("Region Code"), price, cpu, memory);
        if self.text("Physical Processor").contains("Graviton") {
            item.cpu_arch = CpuArchitecture::Arm;
        }
        let count = self.text("GPU");
        if count.is_empty() || count == "NA" || count == "0" {
            return Some(item);
        }
        let count = count.parse().ok()?;
        let (_, model, memory) = GPUS.iter().find(|(known, _, _)| *known == family(name))?;
        Some(with_gpus(
            item,
            AcceleratorVendor::Nvidia,
            model,
            *memory,
            count,
        ))
    }
}
