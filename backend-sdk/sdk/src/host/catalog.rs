//! The host's catalog of offers, for backends that do not ask their provider.
//!
//! ```no_run
//! # fn f() -> Result<(), dstack_backend_sdk::BackendError> {
//! use dstack_backend_sdk::{host::catalog, types::services::CatalogQuery};
//! let reply = catalog::query(&CatalogQuery {
//!     provider: "acme".to_owned(),
//!     ..CatalogQuery::default()
//! })?;
//! for item in reply.items {
//!     println!("{} in {} for {} $/h", item.instance_name, item.location, item.price);
//! }
//! # Ok(()) }
//! ```

use super::ask;
use dstack_backend_types::{
    BackendError, BackendType, InstanceOffer,
    catalog::read_csv,
    services::{CATALOG, CatalogQuery, CatalogReply},
};

/// What the catalog has of a provider.
///
/// # Errors
/// `no_catalog` if the host has none of this provider, `cancelled`; `unsupported` outside of a host.
pub fn query(query: &CatalogQuery) -> Result<CatalogReply, BackendError> {
    ask(CATALOG, query)
}

/// All offers of a catalog that is part of the backend, e.g. by `include_str!`. Rows that are not understood are logged and
/// left out.
pub fn offers_from_csv(backend: &BackendType, text: &str) -> Vec<InstanceOffer> {
    let (items, bad) = read_csv(text);
    for row in bad {
        tracing::warn!(
            line = row.line,
            reason = row.reason,
            "a row of the catalog is left out"
        );
    }
    items.iter().map(|item| item.offer(backend)).collect()
}
