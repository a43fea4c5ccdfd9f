//! Fetches an agent's binary and puts it in place at once, so that running copies go on with the old file.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::LOCATION;
use http::{Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

const DOWNLOAD_LIMIT: Duration = Duration::from_secs(600);
const MOST_REDIRECTS: usize = 10;

/// A complete download beside its place. The file is deleted with this value, unless it was put in place.
#[derive(Debug)]
pub(crate) struct Fetched {
    temporary: PathBuf,
    target: PathBuf,
}

impl Fetched {
    pub(crate) fn path(&self) -> &Path {
        &self.temporary
    }

    /// Replaces the target at once, so that running copies go on with the old file.
    pub(crate) fn put_in_place(self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.target)
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        // Gone under this name when it was put in place.
        drop(fs::remove_file(&self.temporary));
    }
}

/// Downloads `url` into an executable file beside `path`.
pub(crate) async fn fetch(url: &str, path: &Path) -> anyhow::Result<Fetched> {
    let name = path
        .file_name()
        .context("the target has no file name")?
        .to_string_lossy();
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .subsec_nanos();
    // In the same directory, since a rename does not cross file systems.
    let fetched = Fetched {
        temporary: path.with_file_name(format!(".{nanos}-{name}")),
        target: path.to_owned(),
    };
    tokio::time::timeout(DOWNLOAD_LIMIT, download(url, &fetched.temporary))
        .await
        .with_context(|| format!("{url} took longer than {} s", DOWNLOAD_LIMIT.as_secs()))??;
    Ok(fetched)
}

async fn download(url: &str, path: &Path) -> anyhow::Result<()> {
    let mut response = get(url).await?;
    if response.status() != StatusCode::OK {
        bail!("{url} answered {}", response.status());
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(path)?;
    while let Some(frame) = response.frame().await {
        if let Ok(data) = frame.context("the connection broke")?.into_data() {
            file.write_all(&data)?;
        }
    }
    // The mode at creation is cut by the umask.
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    file.sync_all()?;
    Ok(())
}

async fn get(url: &str) -> anyhow::Result<Response<Incoming>> {
    let connector = HttpsConnectorBuilder::new()
        .with_native_roots()
        .context("the machine's certificates cannot be read")?
        .https_or_http()
        .enable_http1()
        .build();
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let mut uri: Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
    for _ in 0..MOST_REDIRECTS {
        let response = client
            .get(uri.clone())
            .await
            .with_context(|| format!("GET {uri}"))?;
        match response.headers().get(LOCATION) {
            Some(location) if response.status().is_redirection() => {
                uri = redirected(&uri, location.to_str()?)?;
            }
            _ => return Ok(response),
        }
    }
    bail!("{url} redirects too often")
}

fn redirected(from: &Uri, location: &str) -> anyhow::Result<Uri> {
    let to: Uri = location.parse()?;
    let mut parts = to.into_parts();
    if parts.authority.is_none() {
        parts.scheme = from.scheme().cloned();
        parts.authority = from.authority().cloned();
    }
    Ok(Uri::from_parts(parts)?)
}
