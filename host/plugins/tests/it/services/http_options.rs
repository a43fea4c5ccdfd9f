//! Options of a connection: TLS with authorities and client certificates, HTTP/2, Unix sockets.

use super::{Probe, server::Server};
use dstack_backend_types::ErrorKind;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// An authority with one certificate for a server and one for a client.
struct Authority {
    ca_pem: String,
    server: (String, String),
    client_pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca_pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let issue = |names: Vec<String>| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(names).unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            (certificate.pem(), key.serialize_pem())
        };
        let (client, client_key) = issue(vec!["client.example".to_owned()]);
        Self {
            ca_pem,
            server: issue(vec!["localhost".to_owned()]),
            client_pem: format!("{client}{client_key}"),
        }
    }

    fn acceptor(&self, wants_client: bool, protocols: &[&str]) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if wants_client {
            let mut roots = RootCertStore::empty();
            let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).unwrap();
            roots.add(ca).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let chain = CertificateDer::from_pem_slice(self.server.0.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(self.server.1.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(vec![chain], key).unwrap();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

fn version(result: &Value) -> String {
    let body = result["body"]
        .as_str()
        .unwrap_or_else(|| panic!("{result}"));
    let seen: Value = serde_json::from_str(body).unwrap();
    seen["version"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_given_authorities_are_trusted() {
    let (probe, ours, theirs) = (Probe::new(), Authority::new(), Authority::new());
    let server = Server::with_tls(ours.acceptor(false, &["http/1.1"])).await;
    let step = |ca: Option<&str>| json!({"do": "http", "url": server.tls_url("/"), "ca_pem": ca});
    assert_eq!(
        version(&probe.one(step(Some(&ours.ca_pem))).await),
        "HTTP/1.1"
    );
    for ca in [Some(theirs.ca_pem.as_str()), None] {
        let error = probe.error(step(ca)).await;
        assert_eq!(error.kind, ErrorKind::Transport);
        assert!(error.message.contains("certificate"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_shown_to_who_asks_for_one() {
    let (probe, ours, theirs) = (Probe::new(), Authority::new(), Authority::new());
    let server = Server::with_tls(ours.acceptor(true, &["http/1.1"])).await;
    let step = |client: Option<&str>| {
        json!({
            "do": "http", "url": server.tls_url("/"), "ca_pem": ours.ca_pem, "client_pem": client,
        })
    };
    assert_eq!(
        version(&probe.one(step(Some(&ours.client_pem))).await),
        "HTTP/1.1"
    );
    // Connections with and without it are not mixed up.
    for client in [None, Some(theirs.client_pem.as_str())] {
        assert_eq!(probe.error(step(client)).await.kind, ErrorKind::Transport);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_is_agreed_upon_or_spoken_from_the_start() {
    let (probe, ours) = (Probe::new(), Authority::new());
    let both = Server::with_tls(ours.acceptor(false, &["h2", "http/1.1"])).await;
    let step = |url: String, http2: bool| json!({"do": "http", "url": url, "ca_pem": ours.ca_pem, "http2": http2});
    for http2 in [false, true] {
        let result = probe.one(step(both.tls_url("/"), http2)).await;
        assert_eq!(version(&result), "HTTP/2.0");
    }
    let plain = Server::start().await;
    let result = probe
        .one(json!({"do": "http", "url": plain.url("/"), "http2": true}))
        .await;
    assert_eq!(version(&result), "HTTP/2.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_go_and_come() {
    let (probe, server) = (Probe::new(), Server::start().await);
    for http2 in [false, true] {
        let result = probe
            .one(json!({
                "do": "http", "url": server.url("/trailers?100000"), "http2": http2,
                "headers": [["te", "trailers"]],
            }))
            .await;
        assert_eq!(result["trailers"], json!([["grpc-status", "0"]]), "{http2}");
        assert_eq!(result["body"].as_str().unwrap().len(), 100_000);
        let result = probe
            .one(json!({
                "do": "http", "method": "POST", "url": server.url("/sink"), "http2": http2, "body": "data",
                "trailers": [["x-sum", "17"]],
            }))
            .await;
        let seen: Value = serde_json::from_str(result["body"].as_str().unwrap()).unwrap();
        assert_eq!(
            seen,
            json!({"bytes": 4, "trailers": [["x-sum", "17"]]}),
            "{http2}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_takes_the_place_of_the_address() {
    let probe = Probe::new();
    let path = probe.folder.path().join("engine.sock");
    Server::at(&path);
    let result = probe
        .one(json!({"do": "http", "url": "http://engine/version?a=1", "unix_socket": path}))
        .await;
    let seen: Value = serde_json::from_str(result["body"].as_str().unwrap()).unwrap();
    assert_eq!(seen["uri"], "/version?a=1");
    let error = probe
        .error(json!({"do": "http", "url": "http://engine/", "unix_socket": "/no/such.sock"}))
        .await;
    assert_eq!(error.kind, ErrorKind::Transport);
}
