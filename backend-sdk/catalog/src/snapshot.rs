//! The catalog that is part of the program: prices of a stated date, for a machine that has no other source.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::archive::{ArchiveError, read_zip, zip_of};
use crate::source::Edition;

/// Made by `cargo xtask catalog-snapshot`.
static BYTES: &[u8] = include_bytes!("../data/snapshot.zip");
const ABOUT: &str = "about.json";

/// Where the snapshot is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotAbout {
    /// Its version.
    pub version: String,
    /// What is known of its licence.
    pub licence: String,
    /// Where each provider's rows are from.
    pub providers: BTreeMap<String, SnapshotSource>,
}

/// Where one provider's rows are from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotSource {
    /// The time of the prices.
    pub as_of: String,
    /// Whose collection they were taken from.
    pub source: String,
}

/// The rows that the program carries.
#[derive(Debug)]
pub struct Snapshot {
    about: SnapshotAbout,
    editions: BTreeMap<String, Arc<Edition>>,
}

impl Snapshot {
    /// The one of this program; read at its first use.
    ///
    /// # Panics
    /// If the program was built with a broken one, which a test refuses.
    pub fn embedded() -> &'static Self {
        static READ: OnceLock<Snapshot> = OnceLock::new();
        READ.get_or_init(|| Self::read(BYTES).expect("a test has read the embedded snapshot"))
    }

    fn read(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let mut about = Vec::new();
        let mut archive = zip::ZipArchive::new(Cursor::new(bytes))?;
        let mut member = archive.by_name(ABOUT)?;
        member
            .read_to_end(&mut about)
            .map_err(zip::result::ZipError::from)?;
        let about: SnapshotAbout =
            serde_json::from_slice(&about).map_err(|_| ArchiveError::NoMember(ABOUT.to_owned()))?;
        let mut editions = BTreeMap::new();
        for (provider, source) in &about.providers {
            let from = format!("snapshot of {}", source.as_of);
            let mut edition = Edition::new(provider, from, read_zip(provider, bytes)?);
            edition.version = Some(about.version.clone());
            edition.as_of = Some(source.as_of.clone());
            editions.insert(provider.clone(), Arc::new(edition));
        }
        Ok(Self { about, editions })
    }

    /// Where it is from.
    pub fn about(&self) -> &SnapshotAbout {
        &self.about
    }

    pub(crate) fn edition(&self, provider: &str) -> Option<&Arc<Edition>> {
        self.editions.get(provider)
    }

    /// Writes the archive of a folder with `<provider>.csv` files; the same files give the same bytes.
    ///
    /// # Errors
    /// A file that is missing or has no usable row.
    ///
    /// # Panics
    /// Never: what it writes down is made of texts.
    pub fn make(folder: &Path, about: &SnapshotAbout) -> Result<Vec<u8>, ArchiveError> {
        let mut members = Vec::new();
        for provider in about.providers.keys() {
            let name = format!("{provider}.csv");
            let bytes = std::fs::read(folder.join(&name))
                .map_err(|_| ArchiveError::NoMember(provider.clone()))?;
            members.push((name, bytes));
        }
        let text = serde_json::to_vec_pretty(about).expect("made of texts");
        members.push((ABOUT.to_owned(), text));
        let members: Vec<(&str, &[u8])> = members
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
            .collect();
        let bytes = zip_of(&members)?;
        Self::read(&bytes)?;
        Ok(bytes)
    }
}
