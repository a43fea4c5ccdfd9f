//! Against a fake that keeps to the shapes of the API's reference: it remembers entries by their ids, filters, sorts, pages.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::tests::{pages, query};
use super::super::{LogEntry, LogError, LogKey, LogQuery, Logs, Producer};
use super::{GoogleLogs, LONGEST};
use crate::outside::http::Http;
use crate::settings::GoogleAccess;

/// A key that was made for tests.
const KEY: &str = include_str!("../../../../../backend-sdk/sdk/src/rest/rs256_test_key.pem");

#[derive(Default)]
struct Fake {
    entries: Vec<Value>,
    calls: Vec<String>,
    tokens: usize,
    busy: bool,
}

type Shared = Arc<Mutex<Fake>>;

async fn token(State(fake): State<Shared>, body: String) -> Json<Value> {
    let assertion = body.split("assertion=").nth(1).unwrap();
    let parts: Vec<&str> = assertion.split('.').collect();
    let part = |n: usize| URL_SAFE_NO_PAD.decode(parts[n]).unwrap();
    let head: Value = serde_json::from_slice(&part(0)).unwrap();
    assert_eq!(head["alg"], "RS256");
    let claims: Value = serde_json::from_slice(&part(1)).unwrap();
    assert_eq!(claims["iss"], "it@test");
    let body: String = KEY.lines().filter(|line| !line.contains('-')).collect();
    let pair = ring::rsa::KeyPair::from_pkcs8(&STANDARD.decode(body).unwrap()).unwrap();
    let public = ring::signature::UnparsedPublicKey::new(
        &ring::signature::RSA_PKCS1_2048_8192_SHA256,
        pair.public().as_ref().to_vec(),
    );
    let signed = format!("{}.{}", parts[0], parts[1]);
    public.verify(signed.as_bytes(), &part(2)).unwrap();
    let mut fake = fake.lock().unwrap();
    fake.tokens += 1;
    Json(
        json!({"access_token": format!("t{}", fake.tokens), "expires_in": 3600, "token_type": "Bearer"}),
    )
}

type Said = (StatusCode, Json<Value>);

fn refusal(status: u16, word: &str) -> Said {
    let error = json!({"error": {"code": status, "message": "no", "status": word}});
    (StatusCode::from_u16(status).unwrap(), Json(error))
}

fn admit(fake: &Fake, headers: &HeaderMap) -> Result<(), Said> {
    let wanted = format!("Bearer t{}", fake.tokens);
    if headers["authorization"] != wanted.as_str() {
        return Err(refusal(401, "UNAUTHENTICATED"));
    }
    Ok(())
}

async fn write(State(fake): State<Shared>, headers: HeaderMap, Json(body): Json<Value>) -> Said {
    let mut fake = fake.lock().unwrap();
    if let Err(said) = admit(&fake, &headers) {
        return said;
    }
    let sent = body["entries"].as_array().unwrap();
    let size: usize = sent.iter().map(|it| it.to_string().len()).sum();
    assert!(size < 10_000_000 && body["logName"] == "projects/p/logs/dstack-run-logs");
    if body["dryRun"] == true {
        return (StatusCode::OK, Json(json!({})));
    }
    fake.calls.push(format!("write {}", sent.len()));
    for entry in sent {
        let is_known = fake
            .entries
            .iter()
            .any(|it| it["insertId"] == entry["insertId"]);
        if !is_known {
            let mut entry = entry.clone();
            entry["labels"] = body["labels"].clone();
            fake.entries.push(entry);
        }
    }
    (StatusCode::OK, Json(json!({})))
}

async fn list(State(fake): State<Shared>, headers: HeaderMap, Json(body): Json<Value>) -> Said {
    let fake = fake.lock().unwrap();
    if let Err(said) = admit(&fake, &headers) {
        return said;
    }
    if fake.busy {
        return refusal(429, "RESOURCE_EXHAUSTED");
    }
    let mut found = fake.entries.clone();
    for part in body["filter"].as_str().unwrap().split(" AND ") {
        let words: Vec<&str> = part.split(' ').collect();
        let value = words[2].trim_matches('"');
        let time = |it: &Value| {
            it["timestamp"]
                .as_str()
                .unwrap()
                .parse::<Timestamp>()
                .unwrap()
        };
        match (words[0], words[1]) {
            ("logName", "=") => assert_eq!(value, "projects/p/logs/dstack-run-logs"),
            ("labels.stream", "=") => found.retain(|it| it["labels"]["stream"] == value),
            ("timestamp", ">") => found.retain(|it| time(it) > value.parse().unwrap()),
            ("timestamp", "<") => found.retain(|it| time(it) < value.parse().unwrap()),
            other => panic!("{other:?}"),
        }
    }
    found.sort_by_key(|it| {
        (
            it["timestamp"]
                .as_str()
                .unwrap()
                .parse::<Timestamp>()
                .unwrap(),
            it["insertId"].to_string(),
        )
    });
    if body["orderBy"] == "timestamp desc" {
        found.reverse();
    }
    let from = match body["pageToken"]
        .as_str()
        .map(|it| it.strip_prefix("page-"))
    {
        None => 0,
        Some(Some(number)) => number.parse().unwrap(),
        Some(None) => return refusal(400, "INVALID_ARGUMENT"),
    };
    let size = usize::try_from(body["pageSize"].as_u64().unwrap()).unwrap();
    let page: Vec<Value> = found.iter().skip(from).take(size).cloned().collect();
    let next = (from + size < found.len()).then(|| format!("page-{}", from + size));
    (
        StatusCode::OK,
        Json(json!({"entries": page, "nextPageToken": next})),
    )
}

async fn fake() -> (Shared, String) {
    let shared = Shared::default();
    let router = Router::new()
        .route("/token", post(token))
        .route("/v2/entries:list", post(list))
        .route("/v2/entries:write", post(write))
        .fallback(|| async { refusal(404, "NOT_FOUND") })
        .with_state(shared.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (shared, url)
}

fn access(folder: &Path, url: &str) -> GoogleAccess {
    let file = folder.join("key.json");
    let key = json!({"type": "service_account", "client_email": "it@test", "private_key": KEY, "token_uri": format!("{url}/token")});
    std::fs::write(&file, key.to_string()).unwrap();
    GoogleAccess {
        key_file: Some(file),
        login_file: PathBuf::from("/nowhere"),
        metadata_host: "127.0.0.1:1".to_owned(),
        storage_emulator: None,
    }
}

fn key() -> LogKey {
    LogKey {
        project: "main".to_owned(),
        run: "train".to_owned(),
        submission: Uuid::from_u128(7),
        producer: Producer::Job,
    }
}

fn entries(count: i64) -> Vec<LogEntry> {
    let each = (0..count).map(|n| LogEntry {
        at: Timestamp::from_microsecond(1_700_000_000_000_000 + n).unwrap(),
        message: format!("line {n}\n").into_bytes(),
    });
    each.collect()
}

#[tokio::test]
async fn entries_come_back_once_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, url) = fake().await;
    let store = GoogleLogs::new(
        Http::new().await.unwrap(),
        &access(folder.path(), &url),
        "p",
        &url,
    );
    store.check().await.unwrap();
    let logs = Logs::new(store);
    let all = entries(2500);
    logs.append(&key(), all.clone()).await.unwrap();
    assert_eq!(
        fake.lock().unwrap().calls,
        ["write 1000", "write 1000", "write 500"]
    );
    // Once more, as after a crash, and a token that does not hold any more.
    fake.lock().unwrap().tokens += 1;
    logs.append(&key(), all[2000..].to_vec()).await.unwrap();
    let other = LogKey {
        producer: Producer::Runner,
        ..key()
    };
    logs.append(&other, entries(3)).await.unwrap();
    let mut wanted: Vec<String> = (0..2500).map(|n| format!("line {n}\n")).collect();
    assert_eq!(pages(&logs, &key(), query()).await, (wanted.clone(), 3));
    wanted.reverse();
    let asked = LogQuery {
        descending: true,
        limit: 700,
        ..query()
    };
    assert_eq!(pages(&logs, &key(), asked).await.0, wanted);
    let asked = LogQuery {
        after: Some(all[9].at),
        before: Some(all[12].at),
        ..query()
    };
    assert_eq!(
        pages(&logs, &key(), asked).await.0,
        ["line 10\n", "line 11\n"]
    );
    assert_eq!(pages(&logs, &other, query()).await.0.len(), 3);
    let page = logs.poll(&key(), query()).await.unwrap();
    assert!(page.external_url.unwrap().ends_with("?project=p"));
    let foreign = LogQuery {
        token: Some("x".to_owned()),
        ..query()
    };
    assert!(matches!(
        logs.poll(&key(), foreign).await,
        Err(LogError::ForeignToken(_))
    ));
    fake.lock().unwrap().busy = true;
    assert!(matches!(
        logs.poll(&key(), query()).await,
        Err(LogError::TooManyReads)
    ));
}

#[tokio::test]
async fn long_output_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (_fake, url) = fake().await;
    let store = GoogleLogs::new(
        Http::new().await.unwrap(),
        &access(folder.path(), &url),
        "p",
        &url,
    );
    let logs = Logs::new(store);
    let long = "ä".repeat(LONGEST);
    let entry = LogEntry {
        at: Timestamp::from_second(1_700_000_000).unwrap(),
        message: long.clone().into_bytes(),
    };
    logs.append(&key(), vec![entry]).await.unwrap();
    let (found, _) = pages(&logs, &key(), query()).await;
    assert_eq!((found.len(), found.concat()), (2, long));
}

#[tokio::test]
async fn a_start_tells_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (_fake, url) = fake().await;
    let good = access(folder.path(), &url);
    let why = async |access: &GoogleAccess, endpoint: &str| {
        let http = Http::new().await.unwrap();
        let store = GoogleLogs::new(http, access, "p", endpoint);
        store.check().await.unwrap_err().to_string()
    };
    let none = GoogleAccess {
        key_file: None,
        ..good.clone()
    };
    assert!(why(&none, &url).await.contains("no Google credentials"));
    let missing = GoogleAccess {
        key_file: Some(folder.path().join("none.json")),
        ..good.clone()
    };
    assert!(why(&missing, &url).await.contains("none.json"));
    let wrong = why(&good, &format!("{url}/elsewhere")).await;
    assert!(wrong.contains("404 NOT_FOUND"), "{wrong}");
    let text = std::fs::read_to_string(good.key_file.as_ref().unwrap()).unwrap();
    std::fs::write(good.key_file.as_ref().unwrap(), text.replace("MII", "AAA")).unwrap();
    let bad = why(&good, &url).await;
    assert!(bad.contains("no RSA key"), "{bad}");
}
