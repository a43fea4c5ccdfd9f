//! What container registries tell of an image.

use std::io;
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};
use std::time::Duration;

use dstack_api::plan::ImageFacts;
use dstack_backend_types::CpuArchitecture;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{ImageIndexEntry, OciDescriptor, OciManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use serde::Deserialize;
use tokio::io::AsyncWrite;

/// How long a registry may take for everything.
const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of an image's configuration at most; usual are 2 to 20 kB.
const MAX_CONFIG: usize = 4 << 20;

/// Why nothing is known about an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LookError {
    /// The registry answered: there is no such image, or not for this login.
    #[error("{0}")]
    Refused(String),
    /// No usable answer came.
    #[error("{0}")]
    Silent(String),
}

/// A user name and a password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    pub(crate) username: String,
    pub(crate) password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Asks the registry of an image.
///
/// Each call has a client of its own: the library keeps the first login for a registry, and logins of several projects
/// must not meet.
///
/// # Errors
/// [`LookError`], without any secret in it.
pub(crate) async fn look(image: &str, login: Option<&Login>) -> Result<ImageFacts, LookError> {
    let reference: Reference = image
        .parse()
        .map_err(|error| LookError::Refused(format!("not the name of an image: {error}")))?;
    tokio::time::timeout(DEADLINE, facts(&reference, login))
        .await
        .unwrap_or_else(|_| {
            Err(LookError::Silent(format!(
                "{} did not answer within {} s",
                reference.resolve_registry(),
                DEADLINE.as_secs()
            )))
        })
}

async fn facts(image: &Reference, login: Option<&Login>) -> Result<ImageFacts, LookError> {
    let host = image.resolve_registry();
    use_ring();
    let client = Client::new(ClientConfig {
        protocol: if is_loopback(host) {
            // As container engines do: a registry on the machine itself needs no certificate.
            ClientProtocol::HttpsExcept(vec![host.to_owned()])
        } else {
            ClientProtocol::Https
        },
        connect_timeout: Some(DEADLINE / 2),
        read_timeout: Some(DEADLINE),
        user_agent: "dstack",
        ..ClientConfig::default()
    });
    let auth = login.map_or(RegistryAuth::Anonymous, |login| {
        RegistryAuth::Basic(login.username.clone(), login.password.clone())
    });
    let explain = |error| explained(host, error);
    let (manifest, _) = client.pull_manifest(image, &auth).await.map_err(explain)?;
    let (manifest, architectures) = match manifest {
        OciManifest::Image(manifest) => (manifest, None),
        OciManifest::ImageIndex(index) => {
            let entry = preferred(&index.manifests).ok_or_else(|| {
                LookError::Refused("the image is made for no kind of Linux".to_owned())
            })?;
            let one = image.clone_with_digest(entry.digest.clone());
            let (manifest, _) = client.pull_manifest(&one, &auth).await.map_err(explain)?;
            let OciManifest::Image(manifest) = manifest else {
                return Err(LookError::Refused(
                    "an index of images leads to another index".to_owned(),
                ));
            };
            (manifest, Some(architectures(&index.manifests)))
        }
    };
    let config = configuration(&client, image, &manifest.config).await?;
    Ok(config.facts(architectures))
}

/// Says once which cryptography the library's connections use; it has none of its own here.
fn use_ring() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(_other) = rustls::crypto::ring::default_provider().install_default() {
            tracing::debug!("another part of the program has chosen its cryptography");
        }
    });
}

fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost"
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

/// The part of an image's configuration that matters for starting it.
#[derive(Debug, Default, Deserialize)]
struct ImageConfig {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    config: Option<Start>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Start {
    user: Option<String>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
}

impl ImageConfig {
    fn facts(self, architectures: Option<Vec<CpuArchitecture>>) -> ImageFacts {
        let start = self.config.unwrap_or_default();
        let own = || architecture(&self.architecture).into_iter().collect();
        ImageFacts {
            architectures: architectures.unwrap_or_else(own),
            user: start.user.filter(|user| !user.is_empty()),
            entrypoint: start.entrypoint.unwrap_or_default(),
            command: start.cmd.unwrap_or_default(),
        }
    }
}

async fn configuration(
    client: &Client,
    image: &Reference,
    descriptor: &OciDescriptor,
) -> Result<ImageConfig, LookError> {
    let mut bytes = Limited(Vec::new());
    client
        .pull_blob(image, descriptor, &mut bytes)
        .await
        .map_err(|error| explained(image.resolve_registry(), error))?;
    serde_json::from_slice(&bytes.0)
        .map_err(|error| LookError::Refused(format!("its configuration cannot be read: {error}")))
}

/// Bytes up to [`MAX_CONFIG`].
struct Limited(Vec<u8>);

impl AsyncWrite for Limited {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.0.len() + bytes.len() > MAX_CONFIG {
            return Poll::Ready(Err(io::Error::other("the configuration is too long")));
        }
        self.0.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn architecture(name: &str) -> Option<CpuArchitecture> {
    match name {
        "amd64" => Some(CpuArchitecture::X86),
        "arm64" => Some(CpuArchitecture::Arm),
        _ => None,
    }
}

/// The architectures of an index; its notes about how images were built have none.
fn architectures(entries: &[ImageIndexEntry]) -> Vec<CpuArchitecture> {
    let mut found = Vec::new();
    for known in entries.iter().filter_map(linux) {
        if !found.contains(&known) {
            found.push(known);
        }
    }
    found
}

/// The architecture of an entry for Linux.
fn linux(entry: &ImageIndexEntry) -> Option<CpuArchitecture> {
    let platform = entry.platform.as_ref()?;
    let is_linux = platform.os.to_string() == "linux";
    is_linux
        .then(|| architecture(&platform.architecture.to_string()))
        .flatten()
}

/// The image to look into: x86 if there is one.
fn preferred(entries: &[ImageIndexEntry]) -> Option<&ImageIndexEntry> {
    entries
        .iter()
        .find(|entry| linux(entry) == Some(CpuArchitecture::X86))
        .or_else(|| entries.iter().find(|entry| linux(entry).is_some()))
}

/// What an error of the library means, without its addresses, which may carry signatures.
fn explained(host: &str, error: OciDistributionError) -> LookError {
    use OciDistributionError as E;
    match error {
        E::ImageManifestNotFoundError(_) => {
            LookError::Refused(format!("{host} has no such image or tag"))
        }
        E::UnauthorizedError { .. } | E::AuthenticationFailure(_) => LookError::Refused(format!(
            "{host} has no such image for this login; check the name and `registry_auth`"
        )),
        E::RegistryError { envelope, .. } => {
            let codes: Vec<_> = envelope.errors.iter().map(|error| &error.code).collect();
            let is_final = codes.iter().any(|code| {
                matches!(
                    code,
                    OciErrorCode::ManifestUnknown
                        | OciErrorCode::NameUnknown
                        | OciErrorCode::NameInvalid
                        | OciErrorCode::NotFound
                        | OciErrorCode::Denied
                        | OciErrorCode::Unauthorized
                )
            });
            let text = format!("{host} answered {codes:?}");
            if is_final {
                LookError::Refused(text)
            } else {
                LookError::Silent(text)
            }
        }
        E::ServerError { code, .. } => {
            let text = format!("{host} answered {code}");
            match code {
                401 | 403 | 404 => LookError::Refused(text),
                _ => LookError::Silent(text),
            }
        }
        E::RequestError(error) => {
            LookError::Silent(format!("{host} cannot be reached: {}", error.without_url()))
        }
        other => LookError::Silent(format!(
            "{host} gave an answer that cannot be used: {other}"
        )),
    }
}

#[cfg(test)]
mod tests;
