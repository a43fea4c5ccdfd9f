//! The published form: `<provider>/<version>/catalog.zip` with one CSV file, and `<provider>/version` that names the newest.

use std::fmt::Write as _;
use std::io::{Cursor, Read as _, Write as _};
use std::path::Path;

use dstack_backend_types::CatalogItem;
use sha2::{Digest as _, Sha256};
use zip::result::ZipError;
use zip::write::SimpleFileOptions;

use crate::table::{Loaded, Table};
use crate::write::write_csv;

/// A longer file is a mistake: the largest catalog known has a tenth of it.
pub(crate) const MAX_CSV_BYTES: u64 = 256 << 20;

/// Why an archive cannot be used or made.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The bytes are no zip file, or a broken one.
    #[error("the archive cannot be read")]
    Zip(#[from] ZipError),
    /// There is nothing in it for the provider.
    #[error("the archive has no {0}.csv")]
    NoMember(String),
    /// More than any catalog has.
    #[error("{0}.csv has more than {MAX_CSV_BYTES} bytes")]
    TooLong(String),
    /// No row of it can be used.
    #[error("no row of {provider}.csv is usable; {first}")]
    NoRows {
        /// Whose file it is.
        provider: String,
        /// What is wrong with the first one.
        first: String,
    },
    /// The version's name cannot be part of a path.
    #[error("{0:?} is no version such as 20260131-7")]
    Version(String),
    /// A folder or file that cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// Which one.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Reads the rows of one provider out of a zip file.
///
/// # Errors
/// [`ArchiveError`]; a file whose rows are all bad is one, too.
pub fn read_zip(provider: &str, bytes: &[u8]) -> Result<Loaded, ArchiveError> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes))?;
    let member = archive.by_name(&format!("{provider}.csv"));
    let member = member.map_err(|error| match error {
        ZipError::FileNotFound => ArchiveError::NoMember(provider.to_owned()),
        other => other.into(),
    })?;
    if member.size() > MAX_CSV_BYTES {
        return Err(ArchiveError::TooLong(provider.to_owned()));
    }
    // The size in the head may be a lie.
    let loaded = Table::read(member.take(MAX_CSV_BYTES));
    usable(provider, loaded)
}

/// The rows, if there is one.
pub(crate) fn usable(provider: &str, loaded: Loaded) -> Result<Loaded, ArchiveError> {
    if !loaded.table.is_empty() {
        return Ok(loaded);
    }
    let first = loaded.bad.first().map_or_else(
        || "it is empty".to_owned(),
        |row| format!("line {}: {}", row.line, row.reason),
    );
    Err(ArchiveError::NoRows {
        provider: provider.to_owned(),
        first,
    })
}

/// A zip file with one provider's rows. The same rows give the same bytes.
///
/// # Errors
/// [`ArchiveError::Zip`] if the rows are too many for a zip file.
pub fn write_zip<'a>(
    provider: &str,
    items: impl IntoIterator<Item = &'a CatalogItem>,
) -> Result<Vec<u8>, ArchiveError> {
    zip_of(&[(&format!("{provider}.csv"), write_csv(items).as_bytes())])
}

/// A zip file with these members.
pub(crate) fn zip_of(members: &[(&str, &[u8])]) -> Result<Vec<u8>, ArchiveError> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_level(Some(9));
    for (name, bytes) in members {
        writer.start_file(*name, options)?;
        writer.write_all(bytes).map_err(ZipError::from)?;
    }
    Ok(writer.finish()?.into_inner())
}

/// Writes a provider's rows below `base` as others read them: the archive, its checksum, the copy under `latest`, and at last
/// the version file, so that a reader never meets a version that is not there.
///
/// # Errors
/// [`ArchiveError`].
pub fn publish<'a>(
    base: &Path,
    provider: &str,
    version: &str,
    items: impl IntoIterator<Item = &'a CatalogItem>,
) -> Result<(), ArchiveError> {
    if !is_version(version) {
        return Err(ArchiveError::Version(version.to_owned()));
    }
    let bytes = write_zip(provider, items)?;
    let sum = format!("{}\n", checksum(&bytes));
    let folder = base.join(provider);
    for edition in [version, "latest"] {
        let place = folder.join(edition);
        put(&place.join("catalog.zip.sha256"), sum.as_bytes())?;
        put(&place.join("catalog.zip"), &bytes)?;
    }
    put(&folder.join("version"), format!("{version}\n").as_bytes())
}

/// Writes a file beside its place and renames it there, so that nobody reads half of it.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
    let failed = |source| ArchiveError::Write {
        path: path.display().to_string(),
        source,
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let written = std::fs::File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(failed)
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn checksum(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("a text takes everything");
    }
    text
}

/// Whether a text can be a version: it becomes part of addresses and file names.
pub(crate) fn is_version(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&text.len())
        && text.bytes().all(is_plain)
        && text.bytes().any(|byte| byte.is_ascii_alphanumeric())
}
