//! Queries of people: a filter with places, names and a limit, and what the answer is worth.

use dstack_backend_types::Requirements;
use dstack_backend_types::resources::Range;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, CatalogError, ProviderItem, ProviderStatus};
use crate::filter::Filter;

/// Flags of rows that this version knows how to handle; rows with others are for later ones.
pub const KNOWN_FLAGS: [&str; 8] = [
    "oci-spot",
    "lambda-arm",
    "gcp-a4",
    "gcp-g4",
    "gcp-dws-calendar-mode",
    "runpod-cpu",
    "runpod-cluster",
    "hotaisle-bm",
];

/// Catalog names of backends that are called otherwise.
const OTHER_NAMES: [(&str, &str); 3] = [
    ("lambda", "lambdalabs"),
    ("datacrunch", "verda"),
    ("amddevcloud", "digitalocean"),
];

/// What is looked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Search {
    /// What a row has.
    pub filter: Filter,
    /// Only in these locations, in any case; a zone is in its region.
    pub locations: Option<Vec<String>>,
    /// Only these types of machines, in any case.
    pub instance_names: Option<Vec<String>>,
    /// Not these providers.
    pub skip: Vec<String>,
    /// The cheapest ones only.
    pub max_items: Option<usize>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Found {
    /// By price.
    pub items: Vec<ProviderItem>,
    /// How many there are without the limit.
    pub total: usize,
    /// The highest price without the limit.
    pub max_price: Option<f64>,
    /// Where the rows of each provider that has some are from.
    pub editions: Vec<ProviderStatus>,
}

/// The catalog's word for a backend.
pub fn provider_of(backend: &str) -> &str {
    OTHER_NAMES
        .iter()
        .find(|(name, _)| *name == backend)
        .map_or(backend, |(_, provider)| provider)
}

/// The backend for the catalog's word.
pub fn backend_of(provider: &str) -> &str {
    match provider {
        "lambdalabs" => "lambda",
        other => other,
    }
}

impl Filter {
    /// The filter for what a job needs, of rows whose flags are known. The rest of what it needs only a backend can judge.
    pub fn of(needs: &Requirements) -> Self {
        let resources = &needs.resources;
        let (min_cpu, max_cpu) = bounds(Some(resources.cpu.count), f64::from);
        let (min_memory, max_memory) = bounds(Some(resources.memory), |size| size.0);
        let (min_disk_size, max_disk_size) =
            bounds(resources.disk.map(|disk| disk.size), |size| size.0);
        let gpu = resources.gpu.as_ref();
        let (min_gpu_count, max_gpu_count) = bounds(gpu.map(|gpu| gpu.count), f64::from);
        let (min_gpu_memory, max_gpu_memory) =
            bounds(gpu.and_then(|gpu| gpu.memory), |size| size.0);
        let (min_total_gpu_memory, max_total_gpu_memory) =
            bounds(gpu.and_then(|gpu| gpu.total_memory), |size| size.0);
        Self {
            cpu_arch: resources.cpu.arch,
            min_cpu,
            max_cpu,
            min_memory,
            max_memory,
            min_gpu_count,
            max_gpu_count,
            gpu_vendor: gpu.and_then(|gpu| gpu.vendor),
            gpu_name: gpu.and_then(|gpu| gpu.name.clone()),
            min_gpu_memory,
            max_gpu_memory,
            min_total_gpu_memory,
            max_total_gpu_memory,
            min_disk_size,
            max_disk_size,
            max_price: needs.max_price,
            min_compute_capability: gpu
                .and_then(|gpu| gpu.compute_capability)
                .map(|least| (least.0, least.1)),
            spot: needs.spot,
            allowed_flags: Some(KNOWN_FLAGS.map(str::to_owned).to_vec()),
            ..Self::default()
        }
    }
}

fn bounds<T>(range: Option<Range<T>>, number: impl Fn(T) -> f64) -> (Option<f64>, Option<f64>) {
    range.map_or((None, None), |range| {
        (range.min.map(&number), range.max.map(&number))
    })
}

impl Search {
    fn wants(&self, found: &ProviderItem) -> bool {
        let is_one = |list: &Option<Vec<String>>, is: &dyn Fn(&str) -> bool| {
            list.as_ref()
                .is_none_or(|all| all.iter().any(|one| is(one)))
        };
        let item = &found.item;
        !self
            .skip
            .iter()
            .any(|name| name.eq_ignore_ascii_case(&found.provider))
            && is_one(&self.locations, &|wanted| is_in(&item.location, wanted))
            && is_one(&self.instance_names, &|wanted| {
                wanted.eq_ignore_ascii_case(&item.instance_name)
            })
    }
}

/// Whether a location is the wanted one, or a zone of it: `us-east1-b` is in `us-east1`.
fn is_in(location: &str, wanted: &str) -> bool {
    let zone = location
        .rsplit_once('-')
        .filter(|(_, letter)| letter.len() == 1)
        .map(|(region, _)| region);
    location.eq_ignore_ascii_case(wanted)
        || zone.is_some_and(|region| region.eq_ignore_ascii_case(wanted))
}

impl Catalog {
    /// Searches all providers.
    ///
    /// # Errors
    /// As [`Catalog::query`].
    pub fn search(&self, search: &Search, now: Timestamp) -> Result<Found, CatalogError> {
        let mut items = self.query(&search.filter, now)?;
        items.retain(|item| search.wants(item));
        items.sort_by(|a, b| a.item.price.total_cmp(&b.item.price));
        let mut editions = self.status();
        editions.retain(|one| items.iter().any(|item| item.provider == one.provider));
        let (total, max_price) = (items.len(), items.last().map(|last| last.item.price));
        items.truncate(search.max_items.unwrap_or(usize::MAX));
        Ok(Found {
            items,
            total,
            max_price,
            editions,
        })
    }
}
