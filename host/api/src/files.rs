//! Archives of files that runs mount.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An uploaded archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileArchive {
    /// Id, for [`crate::jobs::FileArchiveMapping`].
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// SHA-256 of the content, in hexadecimal.
    pub hash: String,
}

/// `POST /api/files/get_archive_by_hash`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetFileArchiveByHashRequest {
    /// SHA-256 of the content, in hexadecimal.
    pub hash: String,
}
