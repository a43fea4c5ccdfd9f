//! Host service `catalog`: CSV files that lie beside the plugins.
//!
//! For provider `acme` each plugin folder is searched for `acme.catalog.csv` and `catalog/acme.csv`; the first file found is the
//! catalog. A file that has changed is read again.

use dstack_backend_types::{
    BackendError, CatalogItem, ErrorKind,
    catalog::read_csv,
    services::{CatalogQuery, CatalogReply},
};
use std::{
    collections::HashMap,
    fs::Metadata,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

/// A longer file is a mistake: the largest catalog known has a tenth of it.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Bad rows that are told one by one.
const TOLD_ROWS: usize = 5;

/// What a file was when it was read.
#[derive(Clone, PartialEq, Eq)]
struct Edition {
    changed: Option<SystemTime>,
    bytes: u64,
}

impl Edition {
    fn of(metadata: &Metadata) -> Self {
        Self {
            changed: metadata.modified().ok(),
            bytes: metadata.len(),
        }
    }
}

type Items = Arc<[CatalogItem]>;

/// The catalogs of the plugin folders.
pub(crate) struct Catalogs {
    folders: Vec<PathBuf>,
    read: Mutex<HashMap<PathBuf, (Edition, Items)>>,
}

impl Catalogs {
    pub(crate) fn new(folders: Vec<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            folders,
            read: Mutex::default(),
        })
    }

    pub(crate) async fn query(
        self: &Arc<Self>,
        query: CatalogQuery,
    ) -> Result<CatalogReply, BackendError> {
        // Files are read and thousands of rows looked at: not on a thread of the runtime.
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let items = this.items(&query.provider)?;
            let fitting = items.iter().filter(|item| fits(item, &query));
            Ok(CatalogReply {
                version: None,
                items: fitting.cloned().collect(),
            })
        })
        .await
        .unwrap_or_else(|error| {
            Err(BackendError::internal(format!(
                "the catalog was not read: {error}"
            )))
        })
    }

    fn items(&self, provider: &str) -> Result<Items, BackendError> {
        let name = provider.to_ascii_lowercase();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(BackendError::invalid(format!(
                "{provider:?} is no provider's name"
            )));
        }
        for folder in &self.folders {
            for file in [format!("{name}.catalog.csv"), format!("catalog/{name}.csv")] {
                let path = folder.join(file);
                match std::fs::metadata(&path) {
                    Ok(metadata) => return self.file(&path, &metadata),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(unreadable(&path, &error.to_string())),
                }
            }
        }
        let folder = self.folders.first().map_or_else(
            || "the plugin folder".to_owned(),
            |f| f.display().to_string(),
        );
        Err(BackendError::new(
            ErrorKind::NoCatalog,
            format!("this host has no catalog of {name}; put {name}.catalog.csv into {folder}"),
        ))
    }

    fn file(&self, path: &Path, metadata: &Metadata) -> Result<Items, BackendError> {
        let edition = Edition::of(metadata);
        {
            let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((known, items)) = read.get(path)
                && *known == edition
            {
                return Ok(Arc::clone(items));
            }
        }
        if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
            return Err(unreadable(
                path,
                &format!("it is no file of at most {MAX_FILE_BYTES} bytes"),
            ));
        }
        let text = std::fs::read_to_string(path).map_err(|e| unreadable(path, &e.to_string()))?;
        let (items, bad) = read_csv(&text);
        for row in bad.iter().take(TOLD_ROWS) {
            tracing::warn!(path = %path.display(), line = row.line, reason = row.reason, "a row of the catalog is left out");
        }
        if bad.len() > TOLD_ROWS {
            tracing::warn!(path = %path.display(), count = bad.len(), "rows of the catalog are left out");
        }
        if items.is_empty()
            && let Some(first) = bad.first()
        {
            let reason = format!("no row is usable; line {}: {}", first.line, first.reason);
            return Err(unreadable(path, &reason));
        }
        let items: Items = items.into();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(path.to_owned(), (edition, Arc::clone(&items)));
        Ok(items)
    }
}

fn unreadable(path: &Path, reason: &str) -> BackendError {
    BackendError::new(
        ErrorKind::NoCatalog,
        format!("the catalog {} is not usable: {reason}", path.display()),
    )
}

fn fits(item: &CatalogItem, query: &CatalogQuery) -> bool {
    let is_here = |locations: &Vec<String>| {
        locations
            .iter()
            .any(|location| location.eq_ignore_ascii_case(&item.location))
    };
    query.locations.as_ref().is_none_or(is_here)
        && query
            .flags
            .as_ref()
            .is_none_or(|flags| item.has_only_flags(flags))
        && query
            .requirements
            .as_ref()
            .is_none_or(|needs| item.fits(needs, query.is_disk_configurable))
}

#[cfg(test)]
mod tests {
    use super::Catalogs;
    use dstack_backend_types::{ErrorKind, services::CatalogQuery};
    use serde_json::json;
    use std::{fs, sync::Arc};

    const HEADER: &str = "instance_name,location,price,cpu,memory,gpu_count,spot,flags\n";

    fn query(provider: &str) -> CatalogQuery {
        CatalogQuery {
            provider: provider.to_owned(),
            ..CatalogQuery::default()
        }
    }

    async fn names(catalogs: &Arc<Catalogs>, query: CatalogQuery) -> Vec<String> {
        let reply = catalogs.query(query).await.unwrap();
        reply
            .items
            .into_iter()
            .map(|item| item.instance_name)
            .collect()
    }

    #[tokio::test]
    async fn files_are_found_filtered_and_read_again() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let catalogs = Catalogs::new(vec![first.path().to_owned(), second.path().to_owned()]);
        let put = |text: &str| {
            fs::create_dir_all(second.path().join("catalog")).unwrap();
            let text = format!("{HEADER}{text}");
            fs::write(second.path().join("catalog/acme.csv"), text).unwrap();
        };
        put("a,north,1,2,8,0,False,\nb,south,2,8,32,0,True,new\nbad,south,,8,32,0,True,\n");
        assert_eq!(names(&catalogs, query("ACME")).await, ["a", "b"]);
        let mut some = query("acme");
        some.locations = Some(vec!["South".to_owned()]);
        assert_eq!(names(&catalogs, some).await, ["b"]);
        let mut some = query("acme");
        some.flags = Some(Vec::new());
        assert_eq!(names(&catalogs, some).await, ["a"]);
        let mut some = query("acme");
        some.requirements = serde_json::from_value(
            json!({"resources": {"cpu": "4..", "memory": "8GB..", "disk": null}}),
        )
        .unwrap();
        assert_eq!(names(&catalogs, some).await, ["b"]);
        put("a,north,1,2,8,0,False,\nb,south,2,8,32,0,True,new\nlater,north,1,2,8,0,False,\n");
        assert_eq!(names(&catalogs, query("acme")).await, ["a", "b", "later"]);
        // The folder that is looked at first wins.
        let text = format!("{HEADER}mine,north,1,2,8,0,False,\n");
        fs::write(first.path().join("acme.catalog.csv"), text).unwrap();
        assert_eq!(names(&catalogs, query("acme")).await, ["mine"]);
    }

    #[tokio::test]
    async fn without_a_file_the_provider_is_skipped_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let catalogs = Catalogs::new(vec![folder.path().to_owned()]);
        let error = catalogs.query(query("acme")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoCatalog);
        assert!(error.message.contains("acme.catalog.csv"), "{error}");
        fs::write(folder.path().join("acme.catalog.csv"), "no,catalog\n1,2\n").unwrap();
        let error = catalogs.query(query("acme")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoCatalog);
        assert!(error.message.contains("line 2"), "{error}");
        for name in ["", "../acme", "a/b"] {
            let error = catalogs.query(query(name)).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid, "{name}");
        }
    }
}
