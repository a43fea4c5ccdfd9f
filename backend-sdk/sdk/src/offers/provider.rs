//! Where a backend's offers come from.

use dstack_backend_types::services::CatalogQuery;
use dstack_backend_types::{
    BackendError, BackendType, CatalogItem, ErrorKind, InstanceAvailability,
    InstanceOfferWithAvailability, Requirements, catalog, gpus,
};

use crate::host;

/// What a provider rents out, as rows of a catalog.
///
/// **Offline**: rows that change seldom, [`Csv`] or [`HostCatalog`]. **Online**: asked of the provider at the very moment; write
/// a function of the requirements, it is a `Provider`. Credentials it needs come from
/// [`credentials::find`](crate::credentials::find): without them it ends with an error that names what to set, and this backend
/// alone has no offers.
pub trait Provider {
    /// All rows, or those that may fit: the requirements are a hint that spares the provider work, the rows are filtered again.
    ///
    /// # Errors
    /// `auth`, `rate_limited`, `transport`; `no_catalog`.
    fn items(&self, hint: &Requirements) -> Result<Vec<CatalogItem>, BackendError>;
}

impl<F: Fn(&Requirements) -> Result<Vec<CatalogItem>, BackendError>> Provider for F {
    fn items(&self, hint: &Requirements) -> Result<Vec<CatalogItem>, BackendError> {
        self(hint)
    }
}

/// Rows of a CSV text that is part of the backend: `Csv(include_str!("offers.csv"))`. Columns: see
/// [`CatalogItem`]. Rows that are not understood are logged and left out; [`defects`] finds them in a test.
#[derive(Debug, Clone, Copy)]
pub struct Csv(pub &'static str);

impl Provider for Csv {
    fn items(&self, _hint: &Requirements) -> Result<Vec<CatalogItem>, BackendError> {
        let (items, bad) = catalog::read_csv(self.0);
        for row in bad {
            tracing::warn!(
                line = row.line,
                reason = row.reason,
                "a row of the catalog is left out"
            );
        }
        Ok(items)
    }
}

/// Rows of the catalog that the server keeps: downloaded editions, or files of its administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCatalog {
    provider: String,
    flags: Vec<String>,
}

impl HostCatalog {
    /// The rows of one provider, those without flags.
    pub fn new(provider: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            flags: Vec::new(),
        }
    }

    /// Also rows with these flags, which the backend knows how to handle.
    #[must_use]
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        self
    }
}

impl Provider for HostCatalog {
    fn items(&self, _hint: &Requirements) -> Result<Vec<CatalogItem>, BackendError> {
        // Everything: the answer is cached for all requirements.
        let reply = host::catalog::query(&CatalogQuery {
            provider: self.provider.clone(),
            flags: Some(self.flags.clone()),
            ..CatalogQuery::default()
        })?;
        Ok(reply.items)
    }
}

/// The first one; the second one if the host has no catalog for the first.
#[derive(Debug, Clone, Copy)]
pub struct FirstOf<A, B>(pub A, pub B);

impl<A: Provider, B: Provider> Provider for FirstOf<A, B> {
    fn items(&self, hint: &Requirements) -> Result<Vec<CatalogItem>, BackendError> {
        match self.0.items(hint) {
            Err(error) if matches!(error.kind, ErrorKind::NoCatalog | ErrorKind::Unsupported) => {
                self.1.items(hint)
            }
            other => other,
        }
    }
}

/// Offers of rows of which nobody knows whether they can be had; else as [`from_rows`].
pub fn from_items(
    backend: &str,
    items: Vec<CatalogItem>,
    regions: &[String],
) -> Vec<InstanceOfferWithAvailability> {
    let unknown = |item| (item, InstanceAvailability::Unknown);
    from_rows(backend, items.into_iter().map(unknown), regions)
}

/// Offers of rows and whether they can be had, cheapest first, of these regions; of all if there are none. Regions are compared
/// in any case. Rows that make no sense are logged and left out.
pub fn from_rows(
    backend: &str,
    rows: impl IntoIterator<Item = (CatalogItem, InstanceAvailability)>,
    regions: &[String],
) -> Vec<InstanceOfferWithAvailability> {
    let backend = BackendType::new(backend.to_owned());
    let is_used = |(item, _): &(CatalogItem, _)| {
        let mut used = regions.iter();
        regions.is_empty() || used.any(|region| region.eq_ignore_ascii_case(&item.location))
    };
    let mut offers = Vec::new();
    for (item, availability) in rows.into_iter().filter(is_used) {
        let item = normalised(item);
        if let Some(defect) = defect(&item) {
            tracing::warn!(
                instance = item.instance_name,
                location = item.location,
                defect,
                "a row of the provider is left out"
            );
            continue;
        }
        let offer = item.offer(&backend);
        offers.push(InstanceOfferWithAvailability::new(offer, availability));
    }
    // The host merges the lists of all backends by price, and keeps each one's order.
    offers.sort_by(|a, b| a.price.total_cmp(&b.price));
    offers
}

/// What is wrong with a CSV text or its rows, a line each; for a test of the data. An empty catalog is wrong too.
pub fn defects(csv: &str) -> Vec<String> {
    let (items, bad) = catalog::read_csv(csv);
    let mut found: Vec<String> = bad
        .into_iter()
        .map(|row| format!("line {}: {}", row.line, row.reason))
        .collect();
    for item in &items {
        if let Some(defect) = defect(item) {
            found.push(format!(
                "{} in {}: {defect}",
                item.instance_name, item.location
            ));
        }
    }
    let key = |item: &CatalogItem| (item.instance_name.clone(), item.location.clone(), item.spot);
    let mut keys: Vec<_> = items.iter().map(key).collect();
    keys.sort();
    for twice in keys.windows(2).filter(|pair| pair[0] == pair[1]) {
        let (name, location, spot) = &twice[0];
        found.push(format!(
            "{name} in {location} (spot: {spot}) stands there twice"
        ));
    }
    if items.is_empty() {
        found.push("no rows".to_owned());
    }
    found
}

/// The maker is known by the model, where a provider names the model alone.
fn normalised(mut item: CatalogItem) -> CatalogItem {
    if item.gpu_count > 0 && item.gpu_vendor.is_none() {
        item.gpu_vendor = item.gpu_name.as_deref().and_then(gpus::vendor_by_name);
    }
    item
}

fn defect(item: &CatalogItem) -> Option<&'static str> {
    let is_positive = |number: f64| number.is_finite() && number > 0.0;
    if item.instance_name.trim().is_empty() {
        Some("no instance_name")
    } else if item.location.trim().is_empty() {
        Some("no location")
    } else if !item.price.is_finite() || item.price < 0.0 {
        Some("price is no amount of money")
    } else if item.cpu == 0 {
        Some("cpu is 0")
    } else if !is_positive(item.memory) {
        Some("memory is not above 0")
    } else if item.disk_size.is_some_and(|size| !is_positive(size)) {
        Some("disk_size is not above 0")
    } else if item.gpu_count > 0
        && (item.gpu_name.is_none() || item.gpu_memory.is_none_or(|gib| !is_positive(gib)))
    {
        Some("accelerators without gpu_name or gpu_memory")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Csv, FirstOf, HostCatalog, Provider, defects, from_items};
    use crate::credentials;
    use crate::testing::{Host, Reply};
    use dstack_backend_types::services::CATALOG;
    use dstack_backend_types::{
        AcceleratorVendor, BackendError, CatalogItem, ErrorKind, Requirements,
        resources::ResourcesSpec,
    };
    use serde_json::json;

    const ROWS: &str = "\
instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot
small,north,0.05,2,8,0,,,False
gpu,South,1.5,16,64,2,L4,24,True
";

    fn nothing() -> Requirements {
        Requirements::of(ResourcesSpec::default())
    }

    fn named(items: &[CatalogItem]) -> Vec<&str> {
        items
            .iter()
            .map(|item| item.instance_name.as_str())
            .collect()
    }

    #[test]
    fn rows_of_the_backend_become_offers_of_its_regions() {
        let items = Csv(ROWS).items(&nothing()).unwrap();
        let offers = from_items("acme", items.clone(), &["south".to_owned()]);
        assert_eq!(offers.len(), 1);
        let has = &offers[0].instance.resources;
        assert_eq!((has.cpus, has.memory_mib, has.gpus.len()), (16, 65_536, 2));
        assert!(has.spot && offers[0].price > 1.0);
        let dear_first = items.into_iter().rev().collect();
        let prices: Vec<f64> = from_items("acme", dear_first, &[])
            .iter()
            .map(|offer| offer.price)
            .collect();
        assert_eq!(prices, [0.05, 1.5]);
    }

    #[test]
    fn rows_without_sense_are_left_out_and_makers_are_found() {
        let mut items = Csv(ROWS).items(&nothing()).unwrap();
        items[0].price = f64::NAN;
        items[1].gpu_vendor = None;
        items[1].gpu_name = Some("MI300X".to_owned());
        let offers = from_items("acme", items, &[]);
        assert_eq!(offers.len(), 1);
        let gpu = &offers[0].instance.resources.gpus[0];
        assert_eq!(gpu.vendor, Some(AcceleratorVendor::Amd));
    }

    #[test]
    fn a_catalog_of_the_host_comes_before_the_file() {
        let host = Host::new(|_| Reply::cut());
        let both = FirstOf(HostCatalog::new("acme"), Csv(ROWS));
        assert_eq!(named(&both.items(&nothing()).unwrap()), ["small", "gpu"]);
        let item =
            json!({"instance_name": "big", "location": "north", "price": 1, "cpu": 1, "memory": 1});
        host.answer(CATALOG, &json!({"version": "1", "items": [item]}));
        assert_eq!(named(&both.items(&nothing()).unwrap()), ["big"]);
    }

    #[test]
    fn an_online_provider_without_credentials_is_left_out_with_a_reason() {
        let online = |_: &Requirements| -> Result<Vec<CatalogItem>, BackendError> {
            let key = credentials::find("creds.api_key", None, "ACME_API_KEY")?;
            panic!("{}", key.expose().len());
        };
        let error = FirstOf(online, Csv(ROWS)).items(&nothing()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Auth);
        assert!(error.message.contains("ACME_API_KEY"), "{error}");
    }

    #[test]
    fn a_test_of_the_data_finds_what_is_wrong() {
        assert_eq!(defects(ROWS), [] as [&str; 0]);
        let bad = "\
instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot
a,north,1,0,8,0,,,False
b,north,1,2,8,1,,,False
c,north,x,2,8,0,,,False
d,north,1,2,8,0,,,False
d,north,2,2,8,0,,,False
";
        let found = defects(bad);
        for part in ["cpu is 0", "without gpu_name", "line 4", "twice"] {
            assert!(
                found.iter().any(|line| line.contains(part)),
                "{part}: {found:?}"
            );
        }
        assert_eq!(defects(""), ["no rows"]);
    }
}
