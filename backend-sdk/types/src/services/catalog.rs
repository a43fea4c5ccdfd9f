//! The offer catalog as a host service.

use crate::{catalog::CatalogItem, requirements::Requirements};
use serde::{Deserialize, Serialize};

/// Asks for what a provider rents out. An unknown provider, or one without a catalog on this host, is an error of kind
/// `no_catalog`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CatalogQuery {
    /// The catalog's word for the provider; mostly the backend's name.
    pub provider: String,
    /// Only what fits; the rules are those of [`CatalogItem::fits`]. `None`: everything.
    pub requirements: Option<Requirements>,
    /// The disk is chosen at creation, so an item's own disk size is not looked at.
    pub is_disk_configurable: bool,
    /// Only in these locations, in any case. `None`: everywhere.
    pub locations: Option<Vec<String>>,
    /// Items with a flag that is not among these are left out. `None`: all items.
    pub flags: Option<Vec<String>>,
}

/// What the catalog has, in its own order, mostly by price.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CatalogReply {
    /// Which edition of the catalog this is from, if it has a name.
    pub version: Option<String>,
    /// What fits.
    pub items: Vec<CatalogItem>,
}
