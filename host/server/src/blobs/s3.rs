//! A bucket of S3, or of what speaks as S3 does.

use bytes::Bytes;

use super::{Answer, BlobStore};
use crate::outside::OutsideError;
use crate::outside::aws::{Aws, encoded, encoded_path, tag};
use crate::outside::http::{Http, Reply};
use crate::settings::AwsAccess;

/// Asked for at the start; it is never there.
const NOTHING: &str = "data/nothing";

/// The bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    aws: Aws,
    name: String,
}

impl Bucket {
    /// Looks whether the bucket is there and lets us in.
    pub(super) async fn open(
        http: Http,
        access: &AwsAccess,
        name: &str,
        region: Option<&str>,
    ) -> Result<Self, OutsideError> {
        let endpoint = access.endpoints.s3.as_deref();
        let bucket = Self {
            aws: Aws::new(http, access, "s3", region, endpoint)?,
            name: name.to_owned(),
        };
        match bucket.get(NOTHING).await {
            Ok(_) => Ok(bucket),
            // Without the right to list, what is not there is told like what is not allowed.
            Err(error) if error.code() == "AccessDenied" => Ok(bucket),
            Err(error) => Err(error),
        }
    }

    /// Buckets in the path: names with dots have no certificate.
    fn path(&self, key: &str) -> String {
        format!("/{}/{}", encoded(&self.name), encoded_path(key))
    }
}

impl BlobStore for Bucket {
    fn put<'a>(&'a self, key: &'a str, bytes: Bytes) -> Answer<'a, ()> {
        Box::pin(async move {
            let reply = self
                .aws
                .send(self.aws.request("PUT", &self.path(key), bytes)?)
                .await?;
            if reply.status.is_success() {
                return Ok(());
            }
            Err(refused(&reply))
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Bytes>> {
        Box::pin(async move {
            let reply = self
                .aws
                .send(self.aws.request("GET", &self.path(key), Bytes::new())?)
                .await?;
            if reply.status.is_success() {
                return Ok(Some(reply.body));
            }
            let error = refused(&reply);
            if error.code() == "NoSuchKey" {
                return Ok(None);
            }
            Err(error)
        })
    }
}

fn refused(reply: &Reply) -> OutsideError {
    let part = |name| tag(&reply.body, name).unwrap_or_default();
    reply.refused(&part("Code"), &part("Message"))
}
