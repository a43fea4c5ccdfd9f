//! Host service `catalog`: what providers rent out, from the sources of the configuration.
//!
//! The plugin folders are sources, too, and the first ones: for provider `acme` the files `acme.catalog.csv` and
//! `catalog/acme.csv` in them.

use dstack_backend_catalog::{Catalog, CatalogError, NoWeb, Reply, Request, Source, Web, WebError};
use dstack_backend_types::{
    BackendError, ErrorKind,
    services::{CatalogQuery, CatalogReply, HttpRequest},
};
use std::{path::PathBuf, sync::Arc, time::SystemTime};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::http::{Http, HttpTape};
use crate::config::PluginsConfig;

/// For one file of a catalog.
const FETCH_LIMIT_MS: u64 = 60_000;
const MAX_FILE_BYTES: u64 = 64 << 20;
const REDIRECTS: u32 = 5;

/// The catalog of this host.
pub(crate) struct Catalogs {
    pub(crate) catalog: Arc<Catalog>,
    first_folder: Option<PathBuf>,
    stop: CancellationToken,
}

/// The host's network, for threads that may wait.
struct HostWeb {
    http: Http,
    runtime: Handle,
    stop: CancellationToken,
}

impl Web for HostWeb {
    fn send(&self, request: &Request) -> Result<Reply, WebError> {
        let head = HttpRequest {
            method: request.method.to_owned(),
            url: request.url.clone(),
            headers: request.headers.clone(),
            timeout_ms: Some(FETCH_LIMIT_MS),
            redirects: REDIRECTS,
            is_idempotent: true,
            max_reply_bytes: Some(MAX_FILE_BYTES),
            ..HttpRequest::default()
        };
        let body = request.body.clone().unwrap_or_default();
        let reply = self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => Err(WebError("the host is stopping".to_owned())),
                reply = self.http.fetch(&head, body) => reply.map_err(|error| WebError(error.message)),
            }
        });
        let (head, body) = reply?;
        Ok(Reply {
            status: head.status,
            body: body.into(),
        })
    }
}

impl Catalogs {
    pub(crate) fn new(config: &PluginsConfig) -> Arc<Self> {
        let stop = CancellationToken::new();
        let web: Arc<dyn Web> = match config.http.tape {
            // What is replayed is what backends asked for; nothing is sent.
            Some(HttpTape::Replay(_)) => Arc::new(NoWeb),
            Some(HttpTape::Record(_)) | None => Arc::new(HostWeb {
                http: Http::new(&super::HttpConfig {
                    proxy: config.http.proxy,
                    tape: None,
                }),
                runtime: Handle::current(),
                stop: stop.clone(),
            }),
        };
        let mut sources = config.catalog.clone();
        let folders = config.folders.iter().cloned().map(Source::Folder);
        sources.sources.splice(0..0, folders);
        Arc::new(Self {
            catalog: Arc::new(Catalog::new(sources, web)),
            first_folder: config.folders.first().cloned(),
            stop,
        })
    }

    /// Ends what is being fetched.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn query(
        self: &Arc<Self>,
        query: CatalogQuery,
    ) -> Result<CatalogReply, BackendError> {
        // Files are read and thousands of rows looked at: not on a thread of the runtime.
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let now = SystemTime::now().try_into().unwrap_or_default();
            this.catalog
                .select(&query, now)
                .map_err(|error| this.refused(error))
        })
        .await
        .unwrap_or_else(|error| {
            Err(BackendError::internal(format!(
                "the catalog was not read: {error}"
            )))
        })
    }

    fn refused(&self, error: CatalogError) -> BackendError {
        match error {
            CatalogError::Name(_) => BackendError::invalid(error.to_string()),
            CatalogError::Unknown(name) | CatalogError::Missing(name) => {
                let folder = self.first_folder.as_ref().map_or_else(
                    || "the plugin folder".to_owned(),
                    |folder| folder.display().to_string(),
                );
                BackendError::new(
                    ErrorKind::NoCatalog,
                    format!(
                        "this host has no catalog of {name}; put {name}.catalog.csv into {folder}, \
                         or name a source that has it in DSTACK_CATALOG_SOURCES"
                    ),
                )
            }
            CatalogError::Source { provider, source } => {
                let mut text = format!("the catalog of {provider} is not usable");
                let mut next: Option<&dyn std::error::Error> = Some(&source);
                while let Some(error) = next {
                    text.push_str(&format!(": {error}"));
                    next = error.source();
                }
                BackendError::new(ErrorKind::NoCatalog, text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Catalogs;
    use crate::config::PluginsConfig;
    use dstack_backend_catalog::Source;
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
        let folders = vec![first.path().to_owned(), second.path().to_owned()];
        let catalogs = Catalogs::new(&PluginsConfig::new(folders));
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
        let catalogs = Catalogs::new(&PluginsConfig::new(vec![folder.path().to_owned()]));
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

    #[tokio::test]
    async fn known_clouds_have_prices_without_any_file() {
        let catalogs = Catalogs::new(&PluginsConfig::new(Vec::new()));
        let reply = catalogs.query(query("runpod")).await.unwrap();
        assert_eq!(reply.items.len(), 48);
        assert!(reply.version.unwrap().starts_with("snapshot"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_source_that_does_not_answer_is_named() {
        let mut config = PluginsConfig::new(Vec::new());
        // Nobody listens on the port of a socket that is closed again.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let base = format!("http://127.0.0.1:{port}/v3");
        config.catalog.sources = vec![Source::parse(&base).unwrap()];
        let catalogs = Catalogs::new(&config);
        let error = catalogs.query(query("acme")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoCatalog);
        assert!(error.message.contains(&base), "{error}");
        catalogs.stop();
    }
}
