//! Catalogs for tests.

use std::path::Path;
use std::sync::{Arc, Mutex};

use dstack_backend_catalog::{
    Catalog, CatalogConfig, NoWeb, ProviderItem, Reply, Request, Source, Web, WebError,
};
use jiff::Timestamp;

/// Any moment will do: the library has no clock.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// The rows that the program carries.
pub(crate) fn snapshot() -> Catalog {
    let config = CatalogConfig {
        has_snapshot: true,
        ..CatalogConfig::default()
    };
    Catalog::new(config, Arc::new(NoWeb))
}

/// All rows of the snapshot, by provider.
pub(crate) fn rows() -> Vec<ProviderItem> {
    snapshot()
        .query(&dstack_backend_catalog::Filter::default(), at(0))
        .unwrap()
}

pub(crate) fn folder(path: &Path) -> Source {
    Source::Folder(path.to_owned())
}

/// A server that answers from a folder, or fails as it is told, and counts what it is asked.
#[derive(Default)]
pub(crate) struct FakeWeb {
    pub(crate) root: Mutex<std::path::PathBuf>,
    /// Answered to everything, if not 0.
    pub(crate) status: Mutex<u16>,
    pub(crate) asked: Mutex<Vec<String>>,
}

pub(crate) const BASE: &str = "https://prices.example/v3";

impl Web for FakeWeb {
    fn send(&self, request: &Request) -> Result<Reply, WebError> {
        let path = request
            .url
            .strip_prefix(BASE)
            .unwrap()
            .trim_start_matches('/');
        self.asked.lock().unwrap().push(path.to_owned());
        let status = *self.status.lock().unwrap();
        if status == 1 {
            return Err(WebError("connection refused".to_owned()));
        }
        let body = Vec::new();
        if status != 0 {
            return Ok(Reply { status, body });
        }
        Ok(match std::fs::read(self.root.lock().unwrap().join(path)) {
            Ok(body) => Reply { status: 200, body },
            Err(_) => Reply { status: 404, body },
        })
    }
}
