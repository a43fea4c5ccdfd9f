//! Archives of files that runs mount; they belong to a user.

use dstack_engine::ids::UserId;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Row, Tx};
use crate::{params, sql};

/// An uploaded archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveRow {
    /// Its id.
    pub id: Uuid,
    /// Who uploaded it.
    pub user_id: UserId,
    /// SHA-256 in hexadecimal, as the client named it.
    pub hash: String,
    /// Bytes.
    pub size: u32,
    /// The bytes themselves; `None` when the blob store keeps them.
    pub blob: Option<Vec<u8>>,
}

const GET: Sql = sql!("SELECT id, user_id, blob_hash, size, blob FROM file_archives WHERE id = ?1");
const BY_HASH: Sql = sql!(
    "SELECT id, user_id, blob_hash, size, NULL FROM file_archives WHERE user_id = ?1 AND blob_hash = ?2"
);
const ADD: Sql = sql!(
    "INSERT INTO file_archives (id, user_id, blob_hash, size, blob, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
     ON CONFLICT (user_id, blob_hash) DO UPDATE SET size = excluded.size RETURNING id"
);

fn from_row(mut row: Row<'_>) -> Result<ArchiveRow, DbError> {
    Ok(ArchiveRow {
        id: row.take()?,
        user_id: row.take()?,
        hash: row.take()?,
        size: row.take()?,
        blob: row.take()?,
    })
}

/// An archive with its bytes.
pub fn get(tx: &mut dyn Tx, id: Uuid) -> Result<Option<ArchiveRow>, DbError> {
    tx.first(GET, params![id], from_row)
}

/// A user's archive by its hash, without its bytes.
pub fn by_hash(tx: &mut dyn Tx, user: UserId, hash: &str) -> Result<Option<ArchiveRow>, DbError> {
    tx.first(BY_HASH, params![user, hash], from_row)
}

/// Stores an archive; answers its id, which for a hash that the user has already is the old id.
pub fn add(tx: &mut dyn Tx, archive: &ArchiveRow, now: Timestamp) -> Result<Uuid, DbError> {
    let params = params![
        archive.id,
        archive.user_id,
        &archive.hash,
        archive.size,
        archive.blob.as_ref(),
        now
    ];
    Ok(tx
        .first(ADD, params, |mut row| row.take())?
        .unwrap_or(archive.id))
}
