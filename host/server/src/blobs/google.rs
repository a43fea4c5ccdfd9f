//! A bucket of Google Cloud Storage.

use axum::http::Request;
use bytes::Bytes;

use super::{Answer, BlobStore};
use crate::outside::OutsideError;
use crate::outside::aws::encoded;
use crate::outside::google::{Google, succeeded};
use crate::outside::http::{Http, Reply};
use crate::settings::GoogleAccess;

/// Asked for at the start; it is never there.
const NOTHING: &str = "data/nothing";
const STORAGE: &str = "https://storage.googleapis.com";

/// The bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    http: Http,
    /// None for an emulator, which wants no login.
    google: Option<Google>,
    endpoint: String,
    name: String,
}

impl Bucket {
    /// Looks whether the bucket is there and lets us in.
    pub(super) async fn open(
        http: Http,
        access: &GoogleAccess,
        name: &str,
    ) -> Result<Self, OutsideError> {
        let emulator = access.storage_emulator.as_deref();
        let bucket = Self {
            google: emulator
                .is_none()
                .then(|| Google::new(http.clone(), access.clone())),
            http,
            endpoint: emulator.unwrap_or(STORAGE).trim_end_matches('/').to_owned(),
            name: name.to_owned(),
        };
        // Of what is not there the text tells whether it is the bucket.
        match bucket.read(NOTHING).await {
            Err(error)
                if error.status() == 404
                    && !error.to_string().contains("bucket does not exist") =>
            {
                Ok(bucket)
            }
            Err(error) => Err(error),
            Ok(_) => Ok(bucket),
        }
    }

    async fn send(
        &self,
        request: Result<Request<Bytes>, axum::http::Error>,
    ) -> Result<Reply, OutsideError> {
        let request = request.map_err(|error| OutsideError::NoAccess(error.to_string()))?;
        match &self.google {
            Some(google) => google.send(request).await,
            None => succeeded(self.http.send(&request).await?),
        }
    }

    async fn read(&self, key: &str) -> Result<Bytes, OutsideError> {
        let url = format!(
            "{}/storage/v1/b/{}/o/{}?alt=media",
            self.endpoint,
            encoded(&self.name),
            encoded(key)
        );
        let reply = self.send(Request::get(url).body(Bytes::new())).await?;
        Ok(reply.body)
    }
}

impl BlobStore for Bucket {
    fn put<'a>(&'a self, key: &'a str, bytes: Bytes) -> Answer<'a, ()> {
        Box::pin(async move {
            let url = format!(
                "{}/upload/storage/v1/b/{}/o?uploadType=media&name={}",
                self.endpoint,
                encoded(&self.name),
                encoded(key)
            );
            let request = Request::post(url)
                .header("content-type", "application/octet-stream")
                .body(bytes);
            self.send(request).await.map(drop)
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Bytes>> {
        Box::pin(async move {
            match self.read(key).await {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.status() == 404 => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}
