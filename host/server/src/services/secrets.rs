//! Secrets of projects.

use std::sync::Arc;

use dstack_api::events::EventTargetType;
use dstack_api::secrets::{CreateOrUpdateSecretRequest, Secret};
use dstack_store::Store;
use dstack_store::events::NewTarget;
use dstack_store::secrets::{self, SecretRow};
use uuid::Uuid;

use super::events;
use super::keyring::{Keyring, KeyringError};
use crate::app::now;
use crate::error::ApiError;
use crate::extract::Access;

const MAX_NAME: usize = 200;
const MAX_VALUE: usize = 5000;

/// The secrets of all projects.
pub(crate) struct Secrets {
    store: Store,
    keyring: Keyring,
}

fn internal(error: KeyringError) -> ApiError {
    ApiError::Internal(error.to_string())
}

fn target(row: &SecretRow) -> NewTarget {
    NewTarget {
        kind: EventTargetType::Secret,
        id: row.id,
        project_id: Some(row.project_id),
        name: Arc::from(row.name.as_str()),
    }
}

impl Secrets {
    pub(crate) fn new(store: Store, keyring: Keyring) -> Self {
        Self { store, keyring }
    }

    /// Names only.
    pub(crate) async fn list(&self, access: &Access) -> Result<Vec<Secret>, ApiError> {
        let id = access.project.id;
        let rows = self
            .store
            .read(move |tx| secrets::of_project(tx, id))
            .await?;
        Ok(rows
            .into_iter()
            .map(|row| Secret {
                id: row.id,
                name: row.name,
                value: None,
            })
            .collect())
    }

    /// A secret with its value.
    pub(crate) async fn get(&self, access: &Access, name: String) -> Result<Secret, ApiError> {
        let id = access.project.id;
        let row = self
            .store
            .read(move |tx| secrets::get(tx, id, &name))
            .await?;
        let row = row.ok_or_else(|| ApiError::not_exists("Resource not found"))?;
        let value = self.keyring.open(&row.value).map_err(internal)?;
        Ok(Secret {
            id: row.id,
            name: row.name,
            value: Some(value),
        })
    }

    /// Adds a secret or replaces its value. The same value again is no event.
    pub(crate) async fn put(
        &self,
        access: &Access,
        request: CreateOrUpdateSecretRequest,
    ) -> Result<Secret, ApiError> {
        let CreateOrUpdateSecretRequest { name, value } = request;
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(word) {
            return Err(ApiError::refused(format!(
                "Secret name should match regex '^[A-Za-z0-9-_]{{1,{MAX_NAME}}}$'"
            )));
        }
        if value.expose().chars().count() > MAX_VALUE {
            return Err(ApiError::refused(format!(
                "Secret value length must not exceed {MAX_VALUE}"
            )));
        }
        let row = SecretRow {
            id: Uuid::new_v4(),
            project_id: access.project.id,
            name,
            value: self.keyring.seal(value.expose()).map_err(internal)?,
        };
        let (actor, keyring, plain) = (access.user.id, self.keyring.clone(), value.clone());
        let (id, name) = self
            .store
            .write_as(move |tx| {
                let before = secrets::get(tx, row.project_id, &row.name)?;
                if let Some(before) = &before
                    && keyring
                        .open(&before.value)
                        .is_ok_and(|stored| stored == plain)
                {
                    return Ok::<_, ApiError>((before.id, row.name));
                }
                let id = secrets::put(tx, &row, now())?;
                let message = if before.is_some() {
                    "Secret updated"
                } else {
                    "Secret created"
                };
                events::record(
                    tx,
                    now(),
                    Some(actor),
                    message,
                    vec![target(&SecretRow { id, ..row.clone() })],
                )?;
                Ok((id, row.name))
            })
            .await?;
        Ok(Secret {
            id,
            name,
            value: Some(value),
        })
    }

    /// Deletes secrets; if one is unknown, none is deleted.
    pub(crate) async fn delete(&self, access: &Access, names: Vec<String>) -> Result<(), ApiError> {
        let (id, actor) = (access.project.id, access.user.id);
        self.store
            .write_as(move |tx| {
                let (mut rows, mut unknown) = (Vec::new(), Vec::new());
                for name in names {
                    match secrets::get(tx, id, &name)? {
                        Some(row) => rows.push(row),
                        None => unknown.push(name),
                    }
                }
                if !unknown.is_empty() {
                    return Err(ApiError::not_exists(format!(
                        "Secrets not found: {}",
                        unknown.join(", ")
                    )));
                }
                for row in rows {
                    secrets::delete(tx, id, &row.name)?;
                    events::record(tx, now(), Some(actor), "Secret deleted", vec![target(&row)])?;
                }
                Ok(())
            })
            .await
    }
}
