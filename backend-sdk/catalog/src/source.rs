//! Where a catalog comes from.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use crate::archive::ArchiveError;
use crate::table::{Loaded, Table};
use crate::web::WebError;

/// Bad rows that are told one by one.
const TOLD_ROWS: usize = 5;

/// One place with catalogs of providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder of this machine, looked at again at every query: `<provider>.catalog.csv`, `catalog/<provider>.csv`,
    /// `<provider>.csv`, or the published form.
    Folder(PathBuf),
    /// The published form below an `https://`, `http://` or `file://` address.
    Published(String),
}

/// Why a source has nothing to give.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Neither an address nor a path.
    #[error("{0:?} is no catalog source; write a folder, or an https:// or file:// address")]
    NotUnderstood(String),
    /// A file of this machine.
    #[error("cannot read {path}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What was found cannot be used.
    #[error("{place} is not usable")]
    Content {
        /// File or address.
        place: String,
        /// Why.
        #[source]
        source: ArchiveError,
    },
    /// The server did not answer.
    #[error("{url} does not answer")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// Why.
        #[source]
        source: WebError,
    },
    /// The server answered with an error.
    #[error("{url} answers with status {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// What the version file says is no version.
    #[error("{url} names {text:?}, which is no version")]
    Version {
        /// The version file.
        url: String,
        /// The start of what it says.
        text: String,
    },
    /// The archive is not the one that its publisher made.
    #[error("the checksum of {url} is {found}, its publisher says {wanted}")]
    Checksum {
        /// The archive.
        url: String,
        /// Of what came.
        found: String,
        /// Of what should have come.
        wanted: String,
    },
}

impl Source {
    /// Reads an address or a path.
    ///
    /// # Errors
    /// [`SourceError::NotUnderstood`].
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let text = text.trim();
        let lower = text.to_ascii_lowercase();
        let is_address = ["https://", "http://", "file://"]
            .iter()
            .any(|scheme| lower.starts_with(scheme) && lower.len() > scheme.len());
        if is_address {
            return Ok(Self::Published(text.trim_end_matches('/').to_owned()));
        }
        if text.is_empty() || text.contains("://") {
            return Err(SourceError::NotUnderstood(text.to_owned()));
        }
        Ok(Self::Folder(PathBuf::from(text)))
    }

    /// Reads a list of addresses and paths with commas or blanks between them, the first one first.
    ///
    /// # Errors
    /// [`SourceError::NotUnderstood`].
    pub fn parse_list(text: &str) -> Result<Vec<Self>, SourceError> {
        text.split([',', ' ', '\n', '\t'])
            .filter(|part| !part.is_empty())
            .map(Self::parse)
            .collect()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::Published(base) => f.write_str(base),
        }
    }
}

/// One provider's rows as one source had them at one time.
#[derive(Debug)]
pub(crate) struct Edition {
    pub(crate) table: Table,
    /// For people: the source.
    pub(crate) from: String,
    /// Its publisher's name for it.
    pub(crate) version: Option<String>,
    /// When it was fetched, or its file changed.
    pub(crate) fetched_at: Option<Timestamp>,
    /// What its publisher says of the age of its prices.
    pub(crate) as_of: Option<String>,
    /// Of the archive.
    pub(crate) sha256: Option<String>,
    pub(crate) bad_rows: usize,
}

impl Edition {
    /// An edition of rows that were just read; the log tells what was wrong with some.
    pub(crate) fn new(provider: &str, from: String, loaded: Loaded) -> Self {
        for row in loaded.bad.iter().take(TOLD_ROWS) {
            tracing::warn!(
                provider,
                from,
                line = row.line,
                reason = row.reason,
                "a row of the catalog is left out"
            );
        }
        if loaded.bad_count > TOLD_ROWS {
            let count = loaded.bad_count;
            tracing::warn!(provider, from, count, "rows of the catalog are left out");
        }
        Self {
            table: loaded.table,
            from,
            version: None,
            fetched_at: None,
            as_of: None,
            sha256: None,
            bad_rows: loaded.bad_count,
        }
    }
}

/// What a source has of a provider, if it has something.
pub(crate) type Found = Result<Option<Arc<Edition>>, SourceError>;
