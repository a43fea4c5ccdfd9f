//! Repositories, the code and the files that go with runs.

use axum::extract::Multipart;
use axum::http::HeaderMap;
use dstack_api::error::ErrorCode;
use dstack_api::files::FileArchive;
use dstack_api::repos::{
    RemoteRepoCreds, RepoHead, RepoHeadWithCreds, RepoInfo, SaveRepoCredsRequest,
};
use dstack_store::Store;
use dstack_store::archives::{self, ArchiveRow};
use dstack_store::repos::{self, CodeRow, RepoRow};
use uuid::Uuid;

use super::keyring::Keyring;
use super::uploads::{Kind, Uploads};
use crate::app::now;
use crate::blobs;
use crate::error::ApiError;
use crate::extract::{Access, Authenticated};

/// Repositories, code and archives.
pub(crate) struct Repos {
    store: Store,
    keyring: Keyring,
    uploads: Uploads,
}

pub(crate) fn unknown_repo(id: &str) -> ApiError {
    ApiError::Refused {
        code: Some(ErrorCode::RepoDoesNotExist),
        msg: format!("Repo {id} does not exist"),
    }
}

fn internal(error: impl std::fmt::Display) -> ApiError {
    ApiError::Internal(error.to_string())
}

impl Repos {
    pub(crate) fn new(store: Store, keyring: Keyring, uploads: Uploads) -> Self {
        Self {
            store,
            keyring,
            uploads,
        }
    }

    /// Adds or changes a repository and the caller's credentials for it.
    pub(crate) async fn init(
        &self,
        access: &Access,
        request: SaveRepoCredsRequest,
    ) -> Result<(), ApiError> {
        let SaveRepoCredsRequest {
            repo_id,
            repo_info,
            repo_creds,
        } = request;
        let has_creds = matches!(repo_info, RepoInfo::Remote { .. });
        let row = RepoRow {
            id: Uuid::new_v4(),
            project_id: access.project.id,
            name: repo_id,
            info: repo_info,
        };
        let creds = match repo_creds {
            Some(creds) => {
                let text = serde_json::to_string(&creds).map_err(internal)?;
                Some(self.keyring.seal(&text).map_err(internal)?)
            }
            None => None,
        };
        let user = access.user.id;
        self.store
            .write(move |tx| {
                let id = repos::put(tx, &row)?;
                if has_creds {
                    repos::set_creds(tx, id, user, creds.as_ref())
                } else {
                    Ok(())
                }
            })
            .await?;
        Ok(())
    }

    /// A repository, with the caller's credentials if asked for.
    pub(crate) async fn get(
        &self,
        access: &Access,
        repo_id: String,
        with_creds: bool,
    ) -> Result<RepoHeadWithCreds, ApiError> {
        let (project, user) = (access.project.id, access.user.id);
        let found = self
            .store
            .read(move |tx| {
                let Some(row) = repos::get(tx, project, &repo_id)? else {
                    return Ok(None);
                };
                let creds = if with_creds {
                    repos::creds(tx, row.id, user)?
                } else {
                    None
                };
                Ok(Some((row, creds)))
            })
            .await?;
        let (row, creds) = found.ok_or_else(|| ApiError::not_exists("Resource not found"))?;
        let repo_creds = match creds {
            Some(sealed) => {
                let text = self.keyring.open(&sealed).map_err(internal)?;
                Some(serde_json::from_str::<RemoteRepoCreds>(text.expose()).map_err(internal)?)
            }
            None => None,
        };
        Ok(RepoHeadWithCreds {
            repo_id: row.name,
            repo_info: row.info,
            repo_creds,
        })
    }

    /// The project's repositories.
    pub(crate) async fn list(&self, access: &Access) -> Result<Vec<RepoHead>, ApiError> {
        let project = access.project.id;
        let rows = self
            .store
            .read(move |tx| repos::of_project(tx, project))
            .await?;
        Ok(rows
            .into_iter()
            .map(|row| RepoHead {
                repo_id: row.name,
                repo_info: row.info,
            })
            .collect())
    }

    /// Removes repositories; unknown ones are ignored.
    pub(crate) async fn delete(&self, access: &Access, ids: Vec<String>) -> Result<(), ApiError> {
        let project = access.project.id;
        self.store
            .write(move |tx| {
                for id in ids {
                    repos::delete(tx, project, &id)?;
                }
                Ok(())
            })
            .await?;
        Ok(())
    }

    /// Stores a difference to a repository. The same hash again is not stored twice.
    pub(crate) async fn upload_code(
        &self,
        access: &Access,
        repo_id: String,
        headers: &HeaderMap,
        body: Multipart,
    ) -> Result<(), ApiError> {
        let project = access.project.id;
        let name = repo_id.clone();
        let repo = self
            .store
            .read(move |tx| repos::get(tx, project, &name))
            .await?;
        let repo = repo.ok_or_else(|| unknown_repo(&repo_id))?;
        let upload = self.uploads.receive(headers, body, Kind::Code).await?;
        let (id, hash) = (repo.id, upload.hash.clone());
        let is_known = self
            .store
            .read(move |tx| repos::has_code(tx, id, &hash))
            .await?;
        if is_known {
            return Ok(());
        }
        let key = blobs::code_key(&access.project.name, &repo.name, &upload.hash);
        let kept = self.uploads.keep(&upload, &key).await?;
        let code = CodeRow {
            repo_id: repo.id,
            hash: upload.hash,
            size: upload.size,
            blob: kept.blob,
        };
        // The turn ends with `kept`, once the bytes are written.
        self.store
            .write(move |tx| repos::add_code(tx, &code, now()))
            .await?;
        Ok(())
    }

    /// The caller's archive of this hash.
    pub(crate) async fn archive(
        &self,
        caller: &Authenticated,
        hash: String,
    ) -> Result<FileArchive, ApiError> {
        let user = caller.0.id;
        let row = self
            .store
            .read(move |tx| archives::by_hash(tx, user, &hash))
            .await?;
        let row = row.ok_or_else(|| ApiError::not_exists("Resource not found"))?;
        Ok(FileArchive {
            id: row.id,
            hash: row.hash,
        })
    }

    /// Stores an archive for the caller. The same hash again is the same archive.
    pub(crate) async fn upload_archive(
        &self,
        caller: &Authenticated,
        headers: &HeaderMap,
        body: Multipart,
    ) -> Result<FileArchive, ApiError> {
        let upload = self.uploads.receive(headers, body, Kind::Archive).await?;
        let (user, hash) = (caller.0.id, upload.hash.clone());
        let wanted = hash.clone();
        let known = self
            .store
            .read(move |tx| archives::by_hash(tx, user, &wanted))
            .await?;
        if let Some(row) = known {
            return Ok(FileArchive { id: row.id, hash });
        }
        let key = blobs::archive_key(user, &hash);
        let kept = self.uploads.keep(&upload, &key).await?;
        let row = ArchiveRow {
            id: Uuid::new_v4(),
            user_id: user,
            hash: upload.hash,
            size: upload.size,
            blob: kept.blob,
        };
        // The turn ends with `kept`, once the bytes are written.
        let id = self
            .store
            .write(move |tx| archives::add(tx, &row, now()))
            .await?;
        Ok(FileArchive { id, hash })
    }
}
