//! Collectors: a provider's rows out of its public prices.
//!
//! Each asks what its provider documents, one request after another, and turns the answers into rows. The network and the
//! credentials are handed in, so that each is tested with answers that were written down.

mod aws;
mod azure;
mod lambdalabs;
mod runpod;
mod verda;
mod vultr;

use dstack_backend_types::{AcceleratorVendor, CatalogItem, CpuArchitecture};
use serde::de::DeserializeOwned;

use crate::web::{Request, Web, WebError};

/// The start of an answer that is shown.
const SHOWN: usize = 200;

/// What a collector may use.
pub struct Surroundings<'a> {
    /// The network.
    pub web: &'a dyn Web,
    /// Credentials, by the names of variables of the environment.
    pub vars: &'a dyn Fn(&str) -> Option<String>,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Surroundings")
    }
}

/// Why there are no rows.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Nobody wrote one.
    #[error("there is no collector of {0}")]
    NoCollector(String),
    /// The provider wants to know who asks.
    #[error("{provider} answers with an account only; set {names}")]
    Credentials {
        /// The provider.
        provider: &'static str,
        /// Variables of the environment.
        names: &'static str,
    },
    /// The provider did not answer.
    #[error("{url} does not answer")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// Why.
        #[source]
        source: WebError,
    },
    /// The provider refused.
    #[error("{url} answers with status {status}: {text}")]
    Status {
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
        /// The start of the answer.
        text: String,
    },
    /// The provider answered something that its documents do not tell of.
    #[error("the answer of {url} is not understood: {reason}")]
    Shape {
        /// What was asked for.
        url: String,
        /// Where reading stopped.
        reason: String,
    },
    /// All was answered, and nothing can be rented.
    #[error("{0} has no rows")]
    Nothing(String),
}

type Items = Result<Vec<CatalogItem>, CollectError>;

/// One provider.
struct Collector {
    provider: &'static str,
    collect: fn(&Surroundings<'_>) -> Items,
    /// Which rows the published catalog has.
    is_published: fn(&CatalogItem) -> bool,
}

const ALL: [Collector; 6] = [
    Collector {
        provider: "aws",
        collect: aws::collect,
        is_published: aws::is_published,
    },
    Collector {
        provider: "azure",
        collect: azure::collect,
        is_published: azure::is_published,
    },
    Collector {
        provider: "lambdalabs",
        collect: lambdalabs::collect,
        is_published: |_| true,
    },
    Collector {
        provider: "runpod",
        collect: runpod::collect,
        is_published: |item| item.location != "AR",
    },
    Collector {
        provider: "verda",
        collect: verda::collect,
        is_published: |item| item.gpu_vendor != Some(AcceleratorVendor::Amd),
    },
    Collector {
        provider: "vultr",
        collect: vultr::collect,
        is_published: |_| true,
    },
];

/// The providers that there are collectors of.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|one| one.provider).collect()
}

/// A provider's rows by price; `only_published` leaves out what the published catalog leaves out. Rows that cannot be are left
/// out, too, and told in the log.
///
/// # Errors
/// [`CollectError`].
pub fn collect(provider: &str, around: &Surroundings<'_>, only_published: bool) -> Items {
    let collector = ALL
        .iter()
        .find(|one| one.provider == provider)
        .ok_or_else(|| CollectError::NoCollector(provider.to_owned()))?;
    let mut items = (collector.collect)(around)?;
    items.retain(|item| {
        let defects = crate::check::of_row(item);
        if let Some(defect) = defects.first() {
            let (name, location) = (&item.instance_name, &item.location);
            tracing::warn!(provider, name, location, defect, "a row is left out");
        }
        defects.is_empty() && (!only_published || (collector.is_published)(item))
    });
    if items.is_empty() {
        return Err(CollectError::Nothing(provider.to_owned()));
    }
    items.sort_by(|a, b| {
        let price = a.price.total_cmp(&b.price);
        price
            .then_with(|| a.instance_name.cmp(&b.instance_name))
            .then_with(|| a.location.cmp(&b.location))
            .then_with(|| a.spot.cmp(&b.spot))
    });
    Ok(items)
}

impl Surroundings<'_> {
    /// A variable that is needed.
    fn needed(
        &self,
        provider: &'static str,
        name: &str,
        names: &'static str,
    ) -> Result<String, CollectError> {
        (self.vars)(name).ok_or(CollectError::Credentials { provider, names })
    }

    /// The body of an answer of status 200.
    fn bytes(&self, request: &Request) -> Result<Vec<u8>, CollectError> {
        let url = place(&request.url);
        let reply = self
            .web
            .send(request)
            .map_err(|source| CollectError::Unreachable {
                url: url.clone(),
                source,
            })?;
        if reply.status == 200 {
            return Ok(reply.body);
        }
        let text = String::from_utf8_lossy(&reply.body)
            .chars()
            .take(SHOWN)
            .collect();
        Err(CollectError::Status {
            url,
            status: reply.status,
            text,
        })
    }

    /// The answer as JSON.
    fn json<T: DeserializeOwned>(&self, request: &Request) -> Result<T, CollectError> {
        let body = self.bytes(request)?;
        serde_json::from_slice(&body).map_err(|error| CollectError::Shape {
            url: place(&request.url),
            reason: error.to_string(),
        })
    }
}

/// An address without its query, which may carry keys.
fn place(url: &str) -> String {
    url.split('?').next().unwrap_or_default().to_owned()
}

/// A row without accelerators, on-demand; the rest is filled in by whoever knows it.
fn machine(name: &str, location: &str, price: f64, cpu: u32, memory: f64) -> CatalogItem {
    CatalogItem {
        instance_name: name.to_owned(),
        location: location.to_owned(),
        price,
        cpu,
        memory,
        gpu_count: 0,
        gpu_name: None,
        gpu_memory: None,
        spot: false,
        disk_size: None,
        gpu_vendor: None,
        flags: Vec::new(),
        cpu_arch: CpuArchitecture::X86,
        provider_data: serde_json::Map::new(),
    }
}

/// Gives a row its accelerators.
fn with_gpus(
    mut item: CatalogItem,
    vendor: AcceleratorVendor,
    name: &str,
    memory: f64,
    count: u32,
) -> CatalogItem {
    item.gpu_vendor = Some(vendor);
    item.gpu_name = Some(name.to_owned());
    item.gpu_memory = Some(memory);
    item.gpu_count = count;
    item
}

/// A sum of money without what binary fractions add to it.
fn rounded(price: f64) -> f64 {
    (price * 1e6).round() / 1e6
}
