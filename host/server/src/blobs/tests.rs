use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use bytes::Bytes;
use dstack_test_support::moto::{Moto, REGION};

use super::{BlobStore, open};
use crate::outside::OutsideError;
use crate::settings::Settings;

async fn opened(vars: &[(&str, &str)]) -> Result<Option<Arc<dyn BlobStore>>, OutsideError> {
    let mut all = BTreeMap::from([
        ("HOME".to_owned(), "/nowhere".to_owned()),
        ("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned()),
        ("GCE_METADATA_HOST".to_owned(), "127.0.0.1:1".to_owned()),
    ]);
    for (name, value) in vars {
        all.insert((*name).to_owned(), (*value).to_owned());
    }
    open(&Settings::from_env(&all).unwrap()).await
}

const KEY: &str = "data/projects/main/codes/a repo+ä/0123";

async fn put_and_get(bucket: &dyn BlobStore) {
    assert_eq!(bucket.get(KEY).await.unwrap(), None);
    let bytes = Bytes::from(vec![7; 3_000_000]);
    bucket.put(KEY, bytes.clone()).await.unwrap();
    bucket.put(KEY, bytes.clone()).await.unwrap();
    assert_eq!(bucket.get(KEY).await.unwrap(), Some(bytes));
    bucket.put("data/empty", Bytes::new()).await.unwrap();
    assert_eq!(bucket.get("data/empty").await.unwrap(), Some(Bytes::new()));
}

#[tokio::test]
async fn s3_keeps_what_it_is_given_for_who_may() {
    let moto = Moto::start().unwrap();
    moto.bucket("uploads").unwrap();
    let keys = moto.checks_signatures().unwrap();
    let vars = |bucket: &'static str, secret: String| {
        vec![
            ("DSTACK_SERVER_S3_BUCKET", bucket.to_owned()),
            ("DSTACK_SERVER_S3_BUCKET_REGION", REGION.to_owned()),
            ("AWS_ENDPOINT_URL", moto.url().to_owned()),
            ("AWS_ACCESS_KEY_ID", keys.key.clone()),
            ("AWS_SECRET_ACCESS_KEY", secret),
        ]
    };
    let with = async |vars: Vec<(&'static str, String)>| {
        let vars: Vec<(&str, &str)> = vars.iter().map(|(n, v)| (*n, v.as_str())).collect();
        opened(&vars).await
    };
    let bucket = with(vars("uploads", keys.secret.clone())).await.unwrap();
    put_and_get(&*bucket.unwrap()).await;
    let none = with(vars("other-bucket", keys.secret.clone())).await;
    assert_eq!(none.unwrap_err().code(), "NoSuchBucket");
    let wrong = with(vars("uploads", "wrong".to_owned())).await;
    assert_eq!(wrong.unwrap_err().code(), "SignatureDoesNotMatch");
    let nobody = [
        ("DSTACK_SERVER_S3_BUCKET", "uploads"),
        ("AWS_REGION", REGION),
        ("AWS_ENDPOINT_URL", moto.url()),
    ];
    let nobody = opened(&nobody).await.unwrap_err().to_string();
    assert!(nobody.contains("no AWS credentials"), "{nobody}");
}

type Objects = Arc<Mutex<BTreeMap<String, Bytes>>>;

/// The two calls of Cloud Storage that are used, in the shapes of its reference.
async fn storage() -> String {
    async fn insert(
        State(objects): State<Objects>,
        Path(bucket): Path<String>,
        Query(query): Query<BTreeMap<String, String>>,
        body: Bytes,
    ) -> StatusCode {
        assert_eq!(query["uploadType"], "media");
        let key = format!("{bucket}/{}", query["name"]);
        objects.lock().unwrap().insert(key, body);
        StatusCode::OK
    }
    async fn read(
        State(objects): State<Objects>,
        Path((bucket, key)): Path<(String, String)>,
    ) -> Result<Bytes, (StatusCode, String)> {
        if bucket != "uploads" {
            let text = "The specified bucket does not exist.".to_owned();
            return Err((StatusCode::NOT_FOUND, text));
        }
        let key = format!("{bucket}/{key}");
        let found = objects.lock().unwrap().get(&key).cloned();
        found.ok_or((StatusCode::NOT_FOUND, format!("No such object: {key}")))
    }
    let router = Router::new()
        .route("/upload/storage/v1/b/{bucket}/o", post(insert))
        .route("/storage/v1/b/{bucket}/o/{key}", get(read))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(Objects::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test]
async fn google_keeps_what_it_is_given() {
    let url = storage().await;
    let with = async |bucket: &str| {
        opened(&[
            ("DSTACK_SERVER_GCS_BUCKET", bucket),
            ("STORAGE_EMULATOR_HOST", &url),
        ])
        .await
    };
    put_and_get(&*with("uploads").await.unwrap().unwrap()).await;
    assert_eq!(with("other").await.unwrap_err().status(), 404);
    let nobody = opened(&[("DSTACK_SERVER_GCS_BUCKET", "uploads")]).await;
    let nobody = nobody.unwrap_err().to_string();
    assert!(nobody.contains("no Google credentials"), "{nobody}");
}
