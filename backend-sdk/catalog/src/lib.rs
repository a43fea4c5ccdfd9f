#![doc = include_str!("../README.md")]

mod archive;
mod catalog;
mod check;
pub mod collect;
mod copies;
mod filter;
mod folder;
mod known;
mod merge;
mod needs;
mod published;
mod remote;
mod search;
mod snapshot;
mod source;
mod table;
mod web;
mod write;

pub use archive::{ArchiveError, publish, read_zip, write_zip};
pub use catalog::{Catalog, CatalogConfig, CatalogError, ProviderItem, ProviderStatus, Refreshed};
pub use check::{CheckReport, Coverage, check};
pub use filter::{Filter, FilterError};
pub use known::{correct_memory_gib, is_superchip};
pub use needs::select;
pub use search::{Found, KNOWN_FLAGS, Search, backend_of, provider_of};
pub use snapshot::{Snapshot, SnapshotAbout, SnapshotSource};
pub use source::{Source, SourceError};
pub use table::{Loaded, Table};
pub use web::{NoWeb, Reply, Request, Web, WebError};
pub use write::write_csv;

/// Providers whose prices are collected and published as files, in the order in which equal prices are listed.
pub const OFFLINE: [&str; 9] = [
    "aws",
    "azure",
    "verda",
    "gcp",
    "lambdalabs",
    "nebius",
    "oci",
    "runpod",
    "cloudrift",
];

/// Providers that backends ask live, with the user's credentials.
pub const ONLINE: [&str; 9] = [
    "crusoe",
    "daytona",
    "digitalocean",
    "hotaisle",
    "jarvislabs",
    "lium",
    "seeweb",
    "vastai",
    "vultr",
];
