//! Fetching the published form.

use std::path::Path;

use crate::archive::{checksum, is_version};
use crate::source::SourceError;
use crate::web::{Request, Web};

/// A version file is one short line.
const SHOWN_BYTES: usize = 80;

/// What is at an address; `None` if there is nothing. `file://` is read from this machine.
fn get(web: &dyn Web, url: &str) -> Result<Option<Vec<u8>>, SourceError> {
    if let Some(path) = url.strip_prefix("file://") {
        return match std::fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(SourceError::File {
                path: Path::new(path).to_owned(),
                source,
            }),
        };
    }
    let reply = web
        .send(&Request::get(url))
        .map_err(|source| SourceError::Unreachable {
            url: url.to_owned(),
            source,
        })?;
    match reply.status {
        200 => Ok(Some(reply.body)),
        // Object stores answer 403 for what is not there if nobody may list.
        403 | 404 | 410 => Ok(None),
        status => Err(SourceError::Status {
            url: url.to_owned(),
            status,
        }),
    }
}

/// The newest version that is published of a provider; `None` if nothing is.
pub(crate) fn newest(
    web: &dyn Web,
    base: &str,
    provider: &str,
) -> Result<Option<String>, SourceError> {
    let url = format!("{base}/{provider}/version");
    let Some(bytes) = get(web, &url)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    if is_version(&text) {
        return Ok(Some(text));
    }
    let text = text.chars().take(SHOWN_BYTES).collect();
    Err(SourceError::Version { url, text })
}

/// The archive of one version, compared with its checksum if its publisher gives one.
pub(crate) fn download(
    web: &dyn Web,
    base: &str,
    provider: &str,
    version: &str,
) -> Result<Vec<u8>, SourceError> {
    let url = format!("{base}/{provider}/{version}/catalog.zip");
    let missing = |url: String| SourceError::Status { url, status: 404 };
    let bytes = get(web, &url)?.ok_or_else(|| missing(url.clone()))?;
    if let Some(sum) = get(web, &format!("{url}.sha256"))? {
        let text = String::from_utf8_lossy(&sum).to_ascii_lowercase();
        let wanted = text.split_whitespace().next().unwrap_or_default();
        let found = checksum(&bytes);
        if wanted != found {
            return Err(SourceError::Checksum {
                url,
                found,
                wanted: wanted.chars().take(SHOWN_BYTES).collect(),
            });
        }
    }
    Ok(bytes)
}
