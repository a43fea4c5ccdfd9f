//! Settings of the catalog of prices.

use std::path::Path;

use dstack_backend_catalog::{CatalogConfig, Source};

use super::{Reader, SettingsError, Vars};

/// Where prices come from; the reference's two variables stand behind our own one.
pub(super) fn catalog<V: Vars>(
    read: &Reader<'_, V>,
    server_dir: &Path,
) -> Result<CatalogConfig, SettingsError> {
    let mut sources = Vec::new();
    for name in [
        "DSTACK_CATALOG_SOURCES",
        "GPUHUNT_CATALOG_DIR",
        "GPUHUNT_CATALOG_URL",
    ] {
        let Some(text) = read.text(name) else {
            continue;
        };
        let listed = if name == "GPUHUNT_CATALOG_DIR" {
            Ok(vec![Source::Folder(text.clone().into())])
        } else {
            Source::parse_list(&text)
        };
        sources.extend(listed.map_err(|_| SettingsError {
            name,
            value: text,
            wanted: "a list of folders and https:// or file:// addresses",
        })?);
    }
    Ok(CatalogConfig {
        sources,
        copies: Some(server_dir.join("data/catalog")),
        version: read.text("DSTACK_CATALOG_VERSION"),
        has_snapshot: true,
    })
}
