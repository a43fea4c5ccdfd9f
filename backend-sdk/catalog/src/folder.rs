//! A folder of this machine. Its files are read again when they change.

use std::collections::{BTreeSet, HashMap};
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use jiff::Timestamp;

use crate::archive::{ArchiveError, MAX_CSV_BYTES, is_version, read_zip, usable};
use crate::source::{Edition, Found, SourceError};
use crate::table::Table;

/// What a file was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    changed: Option<SystemTime>,
    bytes: u64,
    version: Option<String>,
}

/// The catalogs of one folder.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    read: Mutex<HashMap<PathBuf, (Mark, Arc<Edition>)>>,
}

impl Folder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            read: Mutex::default(),
        }
    }

    /// What the folder has of a provider.
    pub(crate) fn find(&self, provider: &str) -> Found {
        for file in [
            format!("{provider}.catalog.csv"),
            format!("catalog/{provider}.csv"),
            format!("{provider}.csv"),
        ] {
            let path = self.path.join(file);
            if let Some(metadata) = present(&path)? {
                return self.edition(provider, &path, &metadata, None).map(Some);
            }
        }
        let place = self.path.join(provider);
        let version = place.join("version");
        let version = match std::fs::read_to_string(&version) {
            Ok(text) => text.trim().to_owned(),
            Err(error) if is_absent(&error) => return Ok(None),
            Err(source) => {
                let path = version;
                return Err(SourceError::File { path, source });
            }
        };
        if !is_version(&version) {
            let url = place.join("version").display().to_string();
            return Err(SourceError::Version { url, text: version });
        }
        let path = place.join(&version).join("catalog.zip");
        match present(&path)? {
            Some(metadata) => self
                .edition(provider, &path, &metadata, Some(version))
                .map(Some),
            None => Ok(None),
        }
    }

    fn edition(
        &self,
        provider: &str,
        path: &Path,
        metadata: &Metadata,
        version: Option<String>,
    ) -> Result<Arc<Edition>, SourceError> {
        let mark = Mark {
            changed: metadata.modified().ok(),
            bytes: metadata.len(),
            version,
        };
        {
            let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((known, edition)) = read.get(path)
                && *known == mark
            {
                return Ok(Arc::clone(edition));
            }
        }
        let unusable = |source| SourceError::Content {
            place: path.display().to_string(),
            source,
        };
        if !metadata.is_file() || metadata.len() > MAX_CSV_BYTES {
            return Err(unusable(ArchiveError::TooLong(provider.to_owned())));
        }
        let failed = |source| SourceError::File {
            path: path.to_owned(),
            source,
        };
        let loaded = if mark.version.is_some() {
            read_zip(provider, &std::fs::read(path).map_err(failed)?)
        } else {
            usable(provider, Table::read(File::open(path).map_err(failed)?))
        };
        let loaded = loaded.map_err(unusable)?;
        let mut edition = Edition::new(provider, path.display().to_string(), loaded);
        edition.version.clone_from(&mark.version);
        edition.fetched_at = mark.changed.and_then(|time| Timestamp::try_from(time).ok());
        let edition = Arc::new(edition);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(path.to_owned(), (mark, Arc::clone(&edition)));
        Ok(edition)
    }

    /// The providers that the folder has something of.
    pub(crate) fn providers(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (folder, ends) in [
            (self.path.clone(), [".catalog.csv", ".csv"].as_slice()),
            (self.path.join("catalog"), &[".csv"]),
        ] {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                let stem = ends.iter().find_map(|end| name.strip_suffix(end));
                let is_published = || entry.path().join("version").is_file();
                match stem {
                    Some(stem) => found.insert(stem.to_owned()),
                    None if is_published() => found.insert(name.to_owned()),
                    None => false,
                };
            }
        }
        found.retain(|name| crate::catalog::is_provider_name(name));
        found
    }
}

/// A file that is there.
fn present(path: &Path) -> Result<Option<Metadata>, SourceError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(source) => Err(SourceError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
