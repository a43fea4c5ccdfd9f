//! Public keys that users add: they open the user's jobs, beside the user's own key pair.

use std::sync::Arc;

use dstack_api::users::{AddPublicKeyRequest, PublicKeyInfo};
use dstack_store::users::{self, PublicKeyRow};
use dstack_store::{DbError, Store};
use uuid::Uuid;

use super::events;
use crate::app::now;
use crate::error::ApiError;
use crate::extract::Authenticated;

/// Longest line that is read, in bytes; an RSA key of 16384 bits has about 2800.
const MAX_LINE: usize = 16 * 1024;
/// Longest name, in characters.
const MAX_NAME: usize = 200;
/// Algorithms that are taken.
const ALGORITHMS: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

fn show(row: PublicKeyRow) -> PublicKeyInfo {
    PublicKeyInfo {
        id: row.id,
        added_at: row.added_at,
        name: row.name,
        kind: row.kind,
        fingerprint: row.fingerprint,
    }
}

/// The caller's keys, newest first.
pub(crate) async fn list(
    store: &Store,
    caller: &Authenticated,
) -> Result<Vec<PublicKeyInfo>, ApiError> {
    let me = caller.0.id;
    let rows = store.read(move |tx| users::public_keys(tx, me)).await?;
    Ok(rows.into_iter().map(show).collect())
}

/// Adds a key.
pub(crate) async fn add(
    store: &Store,
    caller: &Authenticated,
    request: AddPublicKeyRequest,
) -> Result<PublicKeyInfo, ApiError> {
    let line = request.key.trim();
    let one_line = line.len() <= MAX_LINE && !line.contains(['\n', '\r']);
    let key = one_line
        .then(|| dstack_remote::read_public_key(line).ok())
        .flatten()
        .ok_or_else(|| {
            ApiError::refused("Invalid public key, must be in OpenSSH public key format")
        })?;
    if !ALGORITHMS.contains(&key.algorithm.as_str()) {
        return Err(ApiError::refused(format!(
            "Unsupported key type {}. Supported: {}",
            key.algorithm,
            ALGORITHMS.join(", ")
        )));
    }
    let given = request.name.filter(|name| !name.trim().is_empty());
    let name = match given {
        Some(name) => name.trim().to_owned(),
        None if key.comment.is_empty() => key.fingerprint.clone(),
        None => key.comment.clone(),
    };
    let row = PublicKeyRow {
        id: Uuid::new_v4(),
        user_id: caller.0.id,
        added_at: now(),
        name: name.chars().take(MAX_NAME).collect(),
        kind: key.algorithm,
        fingerprint: key.fingerprint,
        public_key: key.line,
    };
    let user = Arc::clone(&caller.0);
    store
        .write_as(move |tx| {
            users::add_public_key(tx, &row).map_err(|error| match error {
                DbError::Conflict { .. } => ApiError::exists("Resource exists"),
                other => other.into(),
            })?;
            let message = format!("Public key added. Fingerprint: {}", row.fingerprint);
            events::record(
                tx,
                row.added_at,
                Some(user.id),
                message,
                vec![events::user(&user)],
            )?;
            Ok(show(row))
        })
        .await
}

/// Removes keys of the caller; unknown ones are skipped.
pub(crate) async fn delete(
    store: &Store,
    caller: &Authenticated,
    ids: Vec<Uuid>,
) -> Result<(), ApiError> {
    let user = Arc::clone(&caller.0);
    store
        .write_as(move |tx| {
            for key in users::public_keys(tx, user.id)? {
                if ids.contains(&key.id) && users::delete_public_key(tx, user.id, key.id)? {
                    let message = format!("Public key deleted. Fingerprint: {}", key.fingerprint);
                    events::record(tx, now(), Some(user.id), message, vec![events::user(&user)])?;
                }
            }
            Ok(())
        })
        .await
}
