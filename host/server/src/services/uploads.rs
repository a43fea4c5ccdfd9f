//! Takes uploaded files in: onto the disk while they come, with a limit, and only under the name that is their hash.
//!
//! A slow sender costs a file without a name and a few kilobytes of memory. Whole files are in memory only on their way into
//! the database or the bucket, a few at a time.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::Multipart;
use axum::extract::multipart::{Field, MultipartError};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blobs::BlobStore;
use crate::error::ApiError;
use crate::settings::Settings;

/// Longest name of an uploaded file; it is a hash.
const MAX_FILE_NAME: usize = 255;
/// Files in memory at once.
const WHOLE: usize = 4;
/// Bytes of a file in the database at most, whatever the setting says: what SQLite keeps in one value.
const MOST: u64 = 900_000_000;

/// What is uploaded, in errors.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A difference to a repository.
    Code,
    /// An archive of files.
    Archive,
}

/// Where uploads go.
pub(crate) struct Uploads {
    folder: PathBuf,
    limit: Option<u64>,
    turns: Arc<Semaphore>,
    bucket: Option<Arc<dyn BlobStore>>,
}

/// A file on the disk: it has no name there and is gone with this value.
pub(crate) struct Upload {
    /// SHA-256 in hexadecimal.
    pub(crate) hash: String,
    /// Bytes.
    pub(crate) size: u32,
    file: File,
}

/// What the row of an upload holds. Others wait while this lives.
pub(crate) struct Kept {
    /// None if the bucket has the bytes.
    pub(crate) blob: Option<Vec<u8>>,
    _turn: OwnedSemaphorePermit,
}

fn internal(error: impl std::fmt::Display) -> ApiError {
    ApiError::Internal(error.to_string())
}

fn broken(error: MultipartError) -> ApiError {
    ApiError::invalid(&["file"], error.body_text())
}

impl Uploads {
    pub(crate) fn new(settings: &Settings, bucket: Option<Arc<dyn BlobStore>>) -> Self {
        Self {
            folder: settings.server_dir.join("data").join("uploads"),
            limit: settings.code_upload_limit,
            turns: Arc::new(Semaphore::new(WHOLE)),
            bucket,
        }
    }

    /// Takes the part `file` in, piece by piece, and stops where the limit is passed.
    pub(crate) async fn receive(
        &self,
        headers: &HeaderMap,
        mut body: Multipart,
        kind: Kind,
    ) -> Result<Upload, ApiError> {
        let announced = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if let Some(size) = announced {
            self.check(size, kind)?;
        }
        while let Some(field) = body.next_field().await.map_err(broken)? {
            if field.name() != Some("file") {
                continue;
            }
            let name = field.file_name().unwrap_or_default().to_owned();
            if name.is_empty() {
                return Err(ApiError::refused("filename not specified"));
            }
            if name.len() > MAX_FILE_NAME {
                return Err(ApiError::refused("Filename too long"));
            }
            let upload = self.take(field, kind).await?;
            if !name.eq_ignore_ascii_case(&upload.hash) {
                return Err(ApiError::refused(format!(
                    "The uploaded file has the SHA-256 {}, and not the one that it is named by",
                    upload.hash
                )));
            }
            return Ok(upload);
        }
        Err(ApiError::invalid(&["file"], "Field required"))
    }

    fn check(&self, size: u64, kind: Kind) -> Result<(), ApiError> {
        match self.limit {
            Some(limit) if size > limit => Err(too_large(kind, size, limit)),
            None if size > MOST => Err(too_large(kind, size, MOST)),
            _ => Ok(()),
        }
    }

    async fn take(&self, mut field: Field<'_>, kind: Kind) -> Result<Upload, ApiError> {
        let folder = self.folder.clone();
        let mut file = blocking(move || {
            std::fs::create_dir_all(&folder)?;
            tempfile::tempfile_in(folder)
        })
        .await?;
        let (mut hash, mut size) = (Sha256::new(), 0);
        while let Some(piece) = field.chunk().await.map_err(broken)? {
            size += u64::try_from(piece.len()).unwrap_or(u64::MAX);
            self.check(size, kind)?;
            hash.update(&piece);
            // The disk's pace is the sender's: the next piece is read when this one is written.
            file = blocking(move || file.write_all(&piece).map(|()| file)).await?;
        }
        let hash = hash.finalize();
        Ok(Upload {
            hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            size: u32::try_from(size).map_err(internal)?,
            file,
        })
    }

    /// Brings a file into the bucket, or into memory for its row.
    pub(crate) async fn keep(&self, upload: &Upload, key: &str) -> Result<Kept, ApiError> {
        let turn = self.turns.clone().acquire_owned().await.map_err(internal)?;
        let (mut file, size) = (upload.file.try_clone().map_err(internal)?, upload.size);
        let bytes = blocking(move || {
            let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
            file.seek(SeekFrom::Start(0))?;
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        })
        .await?;
        let blob = match &self.bucket {
            Some(bucket) => {
                bucket
                    .put(key, Bytes::from(bytes))
                    .await
                    .map_err(internal)?;
                None
            }
            None => Some(bytes),
        };
        Ok(Kept { blob, _turn: turn })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(internal)?
        .map_err(internal)
}

/// Both in bytes: close to the limit a rounded size says nothing.
fn too_large(kind: Kind, size: u64, limit: u64) -> ApiError {
    let what = match kind {
        Kind::Code => "Repo diff",
        Kind::Archive => "Archive",
    };
    ApiError::refused(format!(
        "{what} size is {size}B, which exceeds the limit of {limit}B. Leave large files out with .gitignore, \
         or raise DSTACK_SERVER_CODE_UPLOAD_LIMIT on the server."
    ))
}
