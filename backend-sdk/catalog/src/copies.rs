//! The last good archive of each published source, kept for a start without a network.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::archive::{ArchiveError, checksum, put, read_zip};
use crate::source::Edition;

/// What is known of a copy, beside it.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    source: String,
    version: String,
    sha256: String,
    fetched_at: Timestamp,
}

/// The copies of one source.
#[derive(Debug)]
pub(crate) struct Copies {
    folder: PathBuf,
    source: String,
}

impl Copies {
    pub(crate) fn new(root: &Path, source: &str) -> Self {
        let name: String = checksum(source.as_bytes()).chars().take(16).collect();
        Self {
            folder: root.join(name),
            source: source.to_owned(),
        }
    }

    fn about(&self, provider: &str) -> PathBuf {
        self.folder.join(format!("{provider}.json"))
    }

    fn archive(&self, provider: &str, sha256: &str) -> PathBuf {
        self.folder.join(format!("{provider}-{sha256}.zip"))
    }

    /// Keeps an archive. The note is written last and names the archive, so a copy is whole or the one of before.
    pub(crate) fn keep(
        &self,
        provider: &str,
        edition: &Edition,
        bytes: &[u8],
    ) -> Result<(), ArchiveError> {
        let (Some(version), Some(sha256), Some(fetched_at)) =
            (&edition.version, &edition.sha256, edition.fetched_at)
        else {
            return Ok(());
        };
        let about = About {
            source: self.source.clone(),
            version: version.clone(),
            sha256: sha256.clone(),
            fetched_at,
        };
        put(&self.archive(provider, sha256), bytes)?;
        let text = serde_json::to_vec_pretty(&about).expect("made of texts");
        put(&self.about(provider), &text)?;
        self.drop_others(provider, sha256);
        Ok(())
    }

    fn drop_others(&self, provider: &str, kept: &str) {
        let kept = self.archive(provider, kept);
        let start = format!("{provider}-");
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str());
            // What follows the name is the checksum alone: the copies of `a` are not those of `a-b`.
            let is_old = name
                .and_then(|name| name.strip_prefix(&start)?.strip_suffix(".zip"))
                .is_some_and(|sum| sum.len() == 64 && path != kept);
            if is_old && let Err(error) = std::fs::remove_file(&path) {
                tracing::debug!(path = %path.display(), %error, "an old catalog was not removed");
            }
        }
    }

    /// The copy of a provider, if there is one and it is as it was kept.
    pub(crate) fn load(&self, provider: &str) -> Option<Edition> {
        let text = std::fs::read(self.about(provider)).ok()?;
        let about: About = serde_json::from_slice(&text).ok()?;
        let path = self.archive(provider, &about.sha256);
        let broken = |reason: &str| {
            tracing::warn!(path = %path.display(), reason, "the copy of a catalog is not used");
        };
        if about.source != self.source || about.sha256.len() != 64 {
            broken("its note is about something else");
            return None;
        }
        let bytes = std::fs::read(&path).ok()?;
        if checksum(&bytes) != about.sha256 {
            broken("its checksum is another one");
            return None;
        }
        match read_zip(provider, &bytes) {
            Ok(loaded) => {
                let mut edition = Edition::new(provider, about.source, loaded);
                edition.version = Some(about.version);
                edition.sha256 = Some(about.sha256);
                edition.fetched_at = Some(about.fetched_at);
                Some(edition)
            }
            Err(error) => {
                broken(&error.to_string());
                None
            }
        }
    }
}
