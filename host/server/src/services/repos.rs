//! Repositories, the code and the files that go with runs.

use axum::extract::Multipart;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
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
use crate::app::now;
use crate::error::ApiError;
use crate::extract::{Access, Authenticated};

/// Longest name of an uploaded file; it is a hash.
const MAX_FILE_NAME: usize = 255;

/// Repositories, code and archives.
pub(crate) struct Repos {
    store: Store,
    keyring: Keyring,
    limit: Option<u64>,
}

/// An uploaded file: its name, which is the hash of its content, and the content.
struct Upload {
    hash: String,
    blob: Vec<u8>,
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
    pub(crate) fn new(store: Store, keyring: Keyring, limit: Option<u64>) -> Self {
        Self {
            store,
            keyring,
            limit,
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
        let upload = self.receive(headers, body, "Repo diff").await?;
        let size = u32::try_from(upload.blob.len()).unwrap_or(u32::MAX);
        let code = CodeRow {
            repo_id: repo.id,
            hash: upload.hash,
            size,
            blob: Some(upload.blob),
        };
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
        let upload = self.receive(headers, body, "Archive").await?;
        let size = u32::try_from(upload.blob.len()).unwrap_or(u32::MAX);
        let hash = upload.hash.clone();
        let row = ArchiveRow {
            id: Uuid::new_v4(),
            user_id: caller.0.id,
            hash: upload.hash,
            size,
            blob: Some(upload.blob),
        };
        let id = self
            .store
            .write(move |tx| archives::add(tx, &row, now()))
            .await?;
        Ok(FileArchive { id, hash })
    }

    /// Takes the part `file` in, piece by piece, and stops where the limit is passed.
    async fn receive(
        &self,
        headers: &HeaderMap,
        mut body: Multipart,
        what: &str,
    ) -> Result<Upload, ApiError> {
        let announced = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if let (Some(size), Some(limit)) = (announced, self.limit)
            && size > limit
        {
            return Err(too_large(what, size, limit));
        }
        let broken = |error: axum::extract::multipart::MultipartError| {
            ApiError::invalid(&["file"], error.body_text())
        };
        while let Some(mut field) = body.next_field().await.map_err(broken)? {
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
            let mut blob = Vec::new();
            while let Some(chunk) = field.chunk().await.map_err(broken)? {
                blob.extend_from_slice(&chunk);
                let size = u64::try_from(blob.len()).unwrap_or(u64::MAX);
                if let Some(limit) = self.limit
                    && size > limit
                {
                    return Err(too_large(what, size, limit));
                }
            }
            return Ok(Upload { hash: name, blob });
        }
        Err(ApiError::invalid(&["file"], "Field required"))
    }
}

fn too_large(what: &str, size: u64, limit: u64) -> ApiError {
    let (size, limit) = (readable(size), readable(limit));
    ApiError::refused(format!(
        "{what} size is {size}, which exceeds the limit of {limit}. Use .gitignore to leave large files out, \
         or raise DSTACK_SERVER_CODE_UPLOAD_LIMIT on the server."
    ))
}

/// Bytes for people: `2.0MiB`.
fn readable(bytes: u64) -> String {
    let mut tenths = bytes.saturating_mul(10);
    for unit in ["B", "KiB", "MiB"] {
        if tenths < 10_240 {
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
        tenths /= 1024;
    }
    format!("{}.{}GiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (5, "5.0B"),
            (2_097_152, "2.0MiB"),
            (1536, "1.5KiB"),
            (3 << 30, "3.0GiB"),
        ] {
            assert_eq!(readable(bytes), text);
        }
    }
}
