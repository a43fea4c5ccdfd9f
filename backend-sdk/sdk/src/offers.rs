//! Ready-made `get_offers`: a cache over what the provider says, then filtering by requirements.
//!
//! | cache | for providers whose answer |
//! |---|---|
//! | [`AllOffersCache`] | is the same whatever is asked for |
//! | [`FilteredOffersCache`] | depends on the requirements |
//!
//! Both keep an answer for 180 seconds and never ask twice at once for the same: a second caller waits for the first.
//!
//! Where the rows come from is a [`Provider`]: [`Csv`] (a file in the backend), [`HostCatalog`] (the catalog that the server
//! keeps up to date), or a function that asks the cloud. [`from_items`] makes offers of them.
//!
//! ```
//! use dstack_backend_sdk::offers::{self, AllOffers, Csv, FirstOf, HostCatalog, Provider};
//! use dstack_backend_sdk::types::{InstanceOfferWithAvailability, methods::GetOffersRequest};
//! use dstack_backend_sdk::BackendError;
//!
//! const ROWS: Csv = Csv("instance_name,location,price,cpu,memory,gpu_count,spot\nsmall,north,0.05,2,8,0,False\n");
//! struct Acme { regions: Vec<String> }
//!
//! impl AllOffers for Acme {
//!     fn all_offers(&self, request: &GetOffersRequest) -> Result<Vec<InstanceOfferWithAvailability>, BackendError> {
//!         let items = FirstOf(HostCatalog::new("acme"), ROWS).items(&request.requirements)?;
//!         Ok(offers::from_items("acme", items, &self.regions))
//!     }
//! }
//! ```

mod cache;
mod provider;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use dstack_backend_types::matching;
use dstack_backend_types::methods::{GetOffersReply, GetOffersRequest};
use dstack_backend_types::resources::{Memory, Range};
use dstack_backend_types::{BackendError, InstanceOfferWithAvailability, Requirements};

use cache::Cache;
pub use provider::{Csv, FirstOf, HostCatalog, Provider, defects, from_items, from_rows};

/// What an offer's disk is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DiskPolicy {
    /// Comes with the machine: an offer is dropped if its disk does not fit. Size 0 is unknown and fits.
    Fixed,
    /// Chosen at creation within this range of GB: the offer gets the smallest size that fits.
    Configurable(Range<Memory>),
}

impl DiskPolicy {
    /// Chosen at creation, from `min_gb` to `max_gb`.
    pub fn configurable(min_gb: u32, max_gb: u32) -> Self {
        let (min, max) = (Memory(min_gb.into()), Memory(max_gb.into()));
        Self::Configurable(Range::between(min, max))
    }
}

/// What [`AllOffersCache`] needs of a backend. Order of work: [`modify`](Self::modify), filter, disk, [`keep`](Self::keep).
pub trait AllOffers {
    /// All offers of the provider, with their availability. Asked at most every 180 seconds.
    ///
    /// # Errors
    /// Those of `get_offers`; an error is not kept.
    fn all_offers(
        &self,
        request: &GetOffersRequest,
    ) -> Result<Vec<InstanceOfferWithAvailability>, BackendError>;

    /// Whether the answer differs between requests with and without `unallocated_resources`; then both are kept.
    const DEPENDS_ON_UNALLOCATED: bool = false;

    /// Changes an offer before it is filtered, e.g. cuts a slice off a node. `None` drops it.
    fn modify(
        &self,
        offer: InstanceOfferWithAvailability,
        _request: &GetOffersRequest,
    ) -> Option<InstanceOfferWithAvailability> {
        Some(offer)
    }

    /// What the disk of this offer is.
    fn disk(&self, _offer: &InstanceOfferWithAvailability) -> DiskPolicy {
        DiskPolicy::Fixed
    }

    /// The last word, for what the common filter does not know: reservation, multinode, options of the backend.
    fn keep(&self, _offer: &InstanceOfferWithAvailability, _requirements: &Requirements) -> bool {
        true
    }
}

/// Offers of a provider whose answer does not depend on the requirements.
#[derive(Debug)]
pub struct AllOffersCache {
    cache: Cache<bool>,
}

impl Default for AllOffersCache {
    fn default() -> Self {
        Self {
            cache: Cache::new(2),
        }
    }
}

impl AllOffersCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The offers that fit the request.
    ///
    /// # Errors
    /// Those of [`AllOffers::all_offers`].
    pub fn get_offers<A: AllOffers>(
        &self,
        backend: &A,
        request: &GetOffersRequest,
    ) -> Result<GetOffersReply, BackendError> {
        let key = A::DEPENDS_ON_UNALLOCATED && request.unallocated_resources;
        let all = self
            .cache
            .get_or_fetch(&key, || backend.all_offers(request))?;
        let requirements = &request.requirements;
        let offers = all
            .iter()
            .filter_map(|offer| backend.modify(offer.clone(), request))
            .filter(|offer| matching::matches_without_disk(offer, requirements))
            .filter_map(|mut offer| {
                let range = match backend.disk(&offer) {
                    DiskPolicy::Fixed => None,
                    DiskPolicy::Configurable(range) => Some(range),
                };
                matching::fit_disk(&mut offer.instance, &requirements.resources, range)
                    .then_some(offer)
            })
            .filter(|offer| backend.keep(offer, requirements))
            .collect();
        Ok(GetOffersReply { offers })
    }

    /// As [`get_offers`](Self::get_offers) for a backend that needs nothing of [`AllOffers`] but the offers and one policy for all
    /// disks.
    ///
    /// # Errors
    /// Those of `fetch`; an error is not kept.
    pub fn fitting(
        &self,
        request: &GetOffersRequest,
        disk: DiskPolicy,
        fetch: impl Fn() -> Result<Vec<InstanceOfferWithAvailability>, BackendError>,
    ) -> Result<GetOffersReply, BackendError> {
        self.get_offers(&Plain { disk, fetch }, request)
    }

    /// Forgets what was fetched, e.g. after the provider said that something is sold out.
    pub fn clear(&self) {
        self.cache.clear();
    }
}

struct Plain<F> {
    disk: DiskPolicy,
    fetch: F,
}

impl<F> AllOffers for Plain<F>
where
    F: Fn() -> Result<Vec<InstanceOfferWithAvailability>, BackendError>,
{
    fn all_offers(
        &self,
        _request: &GetOffersRequest,
    ) -> Result<Vec<InstanceOfferWithAvailability>, BackendError> {
        (self.fetch)()
    }

    fn disk(&self, _offer: &InstanceOfferWithAvailability) -> DiskPolicy {
        self.disk
    }
}

/// Offers of a provider whose answer depends on the requirements. Keeps the ten latest.
#[derive(Debug)]
pub struct FilteredOffersCache {
    cache: Cache<String>,
}

impl Default for FilteredOffersCache {
    fn default() -> Self {
        Self {
            cache: Cache::new(10),
        }
    }
}

impl FilteredOffersCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The offers that `fetch` returns for this request, or has returned for an equal one.
    ///
    /// # Errors
    /// Those of `fetch`; an error is not kept.
    pub fn get_offers(
        &self,
        request: &GetOffersRequest,
        fetch: impl FnOnce() -> Result<Vec<InstanceOfferWithAvailability>, BackendError>,
    ) -> Result<GetOffersReply, BackendError> {
        // Requirements hold floats, so their text is the key.
        let key = serde_json::to_string(request).map_err(|error| {
            BackendError::internal(format!("request cannot be a cache key: {error}"))
        })?;
        let offers: Arc<[_]> = self.cache.get_or_fetch(&key, fetch)?;
        Ok(GetOffersReply {
            offers: offers.to_vec(),
        })
    }

    /// Forgets what was fetched.
    pub fn clear(&self) {
        self.cache.clear();
    }
}
