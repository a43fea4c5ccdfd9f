//! One client, with its pool of connections, for each set of options that a connection depends on.

use super::HttpProxy;
use dstack_backend_types::{BackendError, services::HttpRequest};
use reqwest::{Client, redirect};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::OnceCell;

/// More than this many sets of options at once are not to be expected; the one that was not used for longest goes.
const MAX_CLIENTS: usize = 128;
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
const IDLE_CONNECTION: Duration = Duration::from_secs(60);
const IDLE_CONNECTIONS_PER_HOST: usize = 16;
const KEEPALIVE: Duration = Duration::from_secs(30);
const USER_AGENT: &str = concat!("dstack/", env!("CARGO_PKG_VERSION"));

/// What connections must have in common to be shared.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    ca_pem: Option<String>,
    client_pem: Option<String>,
    unix_socket: Option<String>,
    http2: bool,
}

#[derive(Default)]
struct Known {
    clients: HashMap<Key, (u64, Client)>,
    uses: u64,
}

pub(super) struct Clients {
    proxy: HttpProxy,
    known: Mutex<Known>,
    roots: OnceCell<Arc<RootCertStore>>,
}

impl Clients {
    pub(super) fn new(proxy: HttpProxy) -> Self {
        Self {
            proxy,
            known: Mutex::default(),
            roots: OnceCell::new(),
        }
    }

    /// The client for a request.
    pub(super) async fn of(&self, request: &HttpRequest) -> Result<Client, BackendError> {
        let key = Key {
            ca_pem: request.ca_pem.clone(),
            client_pem: request.client_pem.clone(),
            unix_socket: request.unix_socket.clone(),
            http2: request.http2,
        };
        if let Some(client) = self.find(&key) {
            return Ok(client);
        }
        let client = self.build(&key).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.clients.len() >= MAX_CLIENTS {
            let oldest = known
                .clients
                .iter()
                .min_by_key(|(_, (used, _))| *used)
                .map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                known.clients.remove(&oldest);
            }
        }
        let used = known.uses;
        // Another call may have built one meanwhile: its connections are then the ones to share.
        let (_, client) = known.clients.entry(key).or_insert((used, client));
        Ok(client.clone())
    }

    fn find(&self, key: &Key) -> Option<Client> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.uses += 1;
        let now = known.uses;
        let (used, client) = known.clients.get_mut(key)?;
        *used = now;
        Some(client.clone())
    }

    async fn build(&self, key: &Key) -> Result<Client, BackendError> {
        let mut builder = Client::builder()
            .tls_backend_preconfigured(self.tls(key).await?)
            .redirect(redirect::Policy::none())
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_LIMIT)
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_PER_HOST)
            .tcp_keepalive(KEEPALIVE);
        if self.proxy == HttpProxy::None {
            builder = builder.no_proxy();
        }
        if let Some(path) = &key.unix_socket {
            builder = builder.unix_socket(path.as_str()).no_proxy();
        }
        if key.http2 {
            builder = builder.http2_prior_knowledge();
        }
        builder
            .build()
            .map_err(|e| BackendError::internal(format!("no HTTP client can be made: {e}")))
    }

    async fn tls(&self, key: &Key) -> Result<ClientConfig, BackendError> {
        let roots = match &key.ca_pem {
            Some(pem) => Arc::new(authorities(pem)?),
            None => Arc::clone(self.roots.get_or_init(system_roots).await),
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| BackendError::internal(format!("TLS cannot be set up: {e}")))?
            .with_root_certificates(roots);
        let mut config = match &key.client_pem {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let chain = certificates(pem, "client_pem")?;
                let secret = PrivateKeyDer::from_pem_slice(pem.as_bytes())
                    .map_err(|e| BackendError::invalid(format!("client_pem has no key: {e}")))?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|e| BackendError::invalid(format!("client_pem is not usable: {e}")))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        if !key.http2 {
            config.alpn_protocols.push(b"http/1.1".to_vec());
        }
        Ok(config)
    }
}

fn certificates(pem: &str, what: &str) -> Result<Vec<CertificateDer<'static>>, BackendError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(BackendError::invalid(format!("{what} has no certificate"))),
        Err(error) => Err(BackendError::invalid(format!(
            "{what} is not understood: {error}"
        ))),
    }
}

fn authorities(pem: &str) -> Result<RootCertStore, BackendError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "ca_pem")? {
        roots
            .add(certificate)
            .map_err(|e| BackendError::invalid(format!("ca_pem is not usable: {e}")))?;
    }
    Ok(roots)
}

/// The system's authorities, read once. Without any, only requests with their own `ca_pem` or without TLS succeed.
async fn system_roots() -> Arc<RootCertStore> {
    let read = tokio::task::spawn_blocking(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "certificate authorities of this system");
        }
        let (added, ignored) = roots.add_parsable_certificates(found.certs);
        tracing::debug!(added, ignored, "certificate authorities of this system");
        if roots.is_empty() {
            tracing::warn!(
                "this system has no certificate authorities; install ca-certificates or set SSL_CERT_FILE"
            );
        }
        roots
    });
    Arc::new(read.await.unwrap_or_else(|error| {
        tracing::error!(%error, "certificate authorities of this system were not read");
        RootCertStore::empty()
    }))
}
