//! Uploaded code and files in a bucket, for servers whose database shall not hold them.
//!
//! Keys are those of the compatible server, which may have filled the bucket.

mod google;
mod s3;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use dstack_engine::ids::UserId;

use crate::outside::OutsideError;
use crate::outside::http::Http;
use crate::settings::{BlobPlace, Settings};

/// What a bucket answers, later.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, OutsideError>> + Send + 'a>>;

/// A bucket.
pub(crate) trait BlobStore: std::fmt::Debug + Send + Sync {
    /// Stores bytes. The same again changes nothing.
    fn put<'a>(&'a self, key: &'a str, bytes: Bytes) -> Answer<'a, ()>;

    /// The bytes; none if there is no such key.
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Bytes>>;
}

/// Where code of a repository is.
pub(crate) fn code_key(project: &str, repo: &str, hash: &str) -> String {
    format!("data/projects/{project}/codes/{repo}/{hash}")
}

/// Where an archive of a user is.
pub(crate) fn archive_key(user: UserId, hash: &str) -> String {
    format!("data/users/{}/file_archives/{hash}", user.0)
}

/// The bucket that the settings name, asked once; none: uploads are in the database.
///
/// # Errors
/// There is no such bucket, or no login for it.
pub(crate) async fn open(settings: &Settings) -> Result<Option<Arc<dyn BlobStore>>, OutsideError> {
    let Some(place) = &settings.outside.blobs else {
        return Ok(None);
    };
    let http = Http::new().await?;
    let outside = &settings.outside;
    Ok(Some(match place {
        BlobPlace::S3 { bucket, region } => {
            Arc::new(s3::Bucket::open(http, &outside.aws, bucket, region.as_deref()).await?)
        }
        BlobPlace::Google { bucket } => {
            Arc::new(google::Bucket::open(http, &outside.google, bucket).await?)
        }
    }))
}

#[cfg(test)]
mod tests;
