//! Azure: prices are public, shapes are answered to an account of any subscription.

use std::collections::BTreeMap;

use dstack_backend_types::{AcceleratorVendor, CatalogItem, CpuArchitecture};
use serde::Deserialize;

use super::{CollectError, Items, Surroundings, machine, with_gpus};
use crate::web::Request;

const PRICES: &str = "https://prices.azure.com/api/retail/prices";
const WANTED: &str =
    "serviceName%20eq%20%27Virtual%20Machines%27%20and%20priceType%20eq%20%27Consumption%27";
const NAMES: &str =
    "AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_SUBSCRIPTION_ID";
/// More pages than there can be.
const MOST_PAGES: usize = 10_000;

/// Accelerators by how a size's name begins and ends: model and memory of one, in GiB. From the provider's documents of sizes.
const GPUS: [(&str, &str, &str, f64); 8] = [
    ("Standard_NC", "ads_A100_v4", "A100", 80.0),
    ("Standard_ND96amsr", "_A100_v4", "A100", 80.0),
    ("Standard_ND96asr", "_v4", "A100", 40.0),
    ("Standard_NC", "ads_H100_v5", "H100NVL", 94.0),
    ("Standard_NC", "adis_H100_v5", "H100NVL", 94.0),
    ("Standard_ND96isr", "_H200_v5", "H200", 141.0),
    ("Standard_NC", "as_T4_v3", "T4", 16.0),
    ("Standard_NV", "ads_A10_v5", "A10", 24.0),
];

#[derive(Deserialize)]
struct Token {
    access_token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PricePage {
    items: Vec<Price>,
    next_page_link: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Price {
    retail_price: f64,
    unit_of_measure: String,
    currency_code: String,
    #[serde(default)]
    arm_region_name: String,
    #[serde(default)]
    arm_sku_name: String,
    #[serde(default)]
    product_name: String,
    #[serde(default)]
    meter_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SkuPage {
    value: Vec<Sku>,
    next_link: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sku {
    resource_type: String,
    name: String,
    #[serde(default)]
    capabilities: Vec<Capability>,
}

#[derive(Deserialize)]
struct Capability {
    name: String,
    value: String,
}

impl Sku {
    fn capability(&self, name: &str) -> Option<&str> {
        let one = self.capabilities.iter().find(|one| one.name == name)?;
        Some(&one.value)
    }
}

/// The published catalog has no basic sizes and none of the retired series with accelerators.
pub(super) fn is_published(item: &CatalogItem) -> bool {
    item.instance_name.starts_with("Standard_")
}

pub(super) fn collect(around: &Surroundings<'_>) -> Items {
    let shapes = shapes(around)?;
    let mut items = Vec::new();
    let mut url = format!("{PRICES}?$filter={WANTED}");
    for _ in 0..MOST_PAGES {
        let page: PricePage = around.json(&Request::get(url))?;
        items.extend(page.items.iter().filter_map(|price| item(price, &shapes)));
        match page.next_page_link.filter(|link| !link.is_empty()) {
            Some(next) => url = next,
            None => return Ok(items),
        }
    }
    Err(CollectError::Shape {
        url: PRICES.to_owned(),
        reason: format!("more than {MOST_PAGES} pages"),
    })
}

/// A machine without its price, by the name of its size.
fn shapes(around: &Surroundings<'_>) -> Result<BTreeMap<String, CatalogItem>, CollectError> {
    let var = |name| around.needed("azure", name, NAMES);
    let (tenant, subscription) = (var("AZURE_TENANT_ID")?, var("AZURE_SUBSCRIPTION_ID")?);
    let (id, secret) = (var("AZURE_CLIENT_ID")?, var("AZURE_CLIENT_SECRET")?);
    let mut login = Request::get(format!(
        "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token"
    ))
    .header("Content-Type", "application/x-www-form-urlencoded");
    login.method = "POST";
    let scope = "https%3A%2F%2Fmanagement.azure.com%2F.default";
    let form = format!(
        "grant_type=client_credentials&client_id={}&client_secret={}&scope={scope}",
        encoded(&id),
        encoded(&secret)
    );
    login.body = Some(form.into_bytes());
    let token: Token = around.json(&login)?;
    let mut url = format!(
        "https://management.azure.com/subscriptions/{subscription}/providers/Microsoft.Compute/skus?api-version=2021-07-01"
    );
    let mut shapes = BTreeMap::new();
    for _ in 0..MOST_PAGES {
        let bearer = format!("Bearer {}", token.access_token);
        let page: SkuPage =
            around.json(&Request::get(url.clone()).header("Authorization", bearer))?;
        for sku in page
            .value
            .iter()
            .filter(|sku| sku.resource_type == "virtualMachines")
        {
            if let Some(shape) = shape(sku) {
                shapes.insert(sku.name.clone(), shape);
            }
        }
        match page.next_link.filter(|link| !link.is_empty()) {
            Some(next) => url = next,
            None => break,
        }
    }
    Ok(shapes)
}

fn shape(sku: &Sku) -> Option<CatalogItem> {
    let cpu = sku.capability("vCPUs")?.parse().ok()?;
    let memory = sku.capability("MemoryGB")?.parse().ok()?;
    let mut item = machine(&sku.name, "", 0.0, cpu, memory);
    if sku.capability("CpuArchitectureType") == Some("Arm64") {
        item.cpu_arch = CpuArchitecture::Arm;
    }
    match sku.capability("GPUs") {
        None | Some("0") => Some(item),
        Some(count) => {
            // A part of one is no whole number, and is left out.
            let count = count.parse().ok()?;
            let (_, _, model, memory) = GPUS.iter().find(|(start, end, _, _)| {
                sku.name.starts_with(start) && sku.name.ends_with(end)
            })?;
            Some(with_gpus(
                item,
                AcceleratorVendor::Nvidia,
                model,
                *memory,
                count,
            ))
        }
    }
}

fn item(price: &Price, shapes: &BTreeMap<String, CatalogItem>) -> Option<CatalogItem> {
    let is_hour = price.unit_of_measure == "1 Hour" && price.currency_code == "USD";
    let is_other = price.product_name.contains("Windows")
        || price.meter_name.contains("Low Priority")
        || price.product_name.contains("Cloud Services")
        || price.product_name.contains("Dedicated Host");
    if !is_hour || is_other || price.retail_price <= 0.0 || price.arm_region_name.is_empty() {
        return None;
    }
    let mut item = shapes.get(&price.arm_sku_name)?.clone();
    item.location.clone_from(&price.arm_region_name);
    item.price = price.retail_price;
    item.spot = price.meter_name.contains("Spot");
    Some(item)
}

/// A text as part of a form.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
