//! Against receivers that keep to the protocols, and a reader that filters, sorts and pages as Elasticsearch does.

use std::io::{Cursor, Read};
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use dstack_backend_types::Secret;
use jiff::Timestamp;
use rmp::decode;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

use super::super::tests::{pages, query};
use super::super::{LogEntry, LogError, LogKey, LogQuery, Logs, Producer};
use super::FluentBitLogs;
use crate::outside::http::Http;
use crate::settings::{Elastic, FluentBit, FluentProtocol};

/// Records as they came: tag and record, numbered by an id that says nothing of their order.
type Records = Arc<Mutex<Vec<(String, Value)>>>;

fn key() -> LogKey {
    LogKey {
        project: "main".to_owned(),
        run: "train".to_owned(),
        submission: Uuid::from_u128(7),
        producer: Producer::Job,
    }
}

fn entries(from: i64, count: i64) -> Vec<LogEntry> {
    let each = (from..from + count).map(|n| LogEntry {
        // Seven in a millisecond.
        at: Timestamp::from_microsecond(1_700_000_000_000_000 + n / 7 * 1000 + n % 7).unwrap(),
        message: format!("line {n}\n").into_bytes(),
    });
    each.collect()
}

/// A value of MessagePack; times of Fluentd become numbers of nanoseconds.
fn value(bytes: &mut Cursor<Vec<u8>>) -> Result<Value, ()> {
    let start = bytes.position();
    let marker = decode::read_marker(bytes).map_err(drop)?;
    bytes.set_position(start);
    use rmp::Marker as M;
    Ok(match marker {
        M::FixArray(_) | M::Array16 | M::Array32 => {
            let count = decode::read_array_len(bytes).map_err(drop)?;
            (0..count).map(|_| value(bytes)).collect::<Result<_, _>>()?
        }
        M::FixMap(_) | M::Map16 | M::Map32 => {
            let count = decode::read_map_len(bytes).map_err(drop)?;
            let mut map = Map::new();
            for _ in 0..count {
                let name = value(bytes)?;
                map.insert(name.as_str().unwrap().to_owned(), value(bytes)?);
            }
            Value::Object(map)
        }
        M::FixStr(_) | M::Str8 | M::Str16 | M::Str32 => {
            let length = decode::read_str_len(bytes).map_err(drop)?;
            let mut text = vec![0; usize::try_from(length).unwrap()];
            Read::read_exact(bytes, &mut text).map_err(drop)?;
            String::from_utf8(text).unwrap().into()
        }
        M::FixExt8 => {
            let meta = decode::read_ext_meta(bytes).map_err(drop)?;
            assert_eq!((meta.typeid, meta.size), (0, 8), "EventTime");
            let mut time = [0; 8];
            Read::read_exact(bytes, &mut time).map_err(drop)?;
            let time = u64::from_be_bytes(time);
            json!((time >> 32) * 1_000_000_000 + (time & 0xffff_ffff))
        }
        _ => json!(decode::read_int::<i64, _>(bytes).map_err(drop)?),
    })
}

/// What a receiver does with connections.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Good,
    /// Closes after each message.
    Short,
    /// Never says that records have arrived, and closes.
    Silent,
}

async fn receive(mut socket: TcpStream, records: Records, manner: Manner) {
    let mut bytes = Vec::new();
    let mut piece = [0; 65536];
    while let Ok(count @ 1..) = socket.read(&mut piece).await {
        bytes.extend_from_slice(&piece[..count]);
        let mut cursor = Cursor::new(bytes.clone());
        let Ok(message) = value(&mut cursor) else {
            continue;
        };
        bytes.clear();
        if manner == Manner::Silent {
            return;
        }
        let events = message[1].as_array().unwrap();
        assert_eq!(message[2]["size"], events.len());
        for event in events {
            let seq = event[1]["seq"].as_i64().unwrap();
            assert_eq!(event[0], seq * 1000, "the time of the event");
            let tag = message[0].as_str().unwrap().to_owned();
            records.lock().unwrap().push((tag, event[1].clone()));
        }
        let mut ack = b"\x81\xa3ack\xd9\x24".to_vec();
        ack.extend_from_slice(message[2]["chunk"].as_str().unwrap().as_bytes());
        socket.write_all(&ack).await.unwrap();
        if manner == Manner::Short {
            return;
        }
    }
}

async fn forward_receiver(manner: Manner) -> (Records, u16) {
    let records = Records::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let kept = records.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(receive(socket, kept.clone(), manner));
        }
    });
    (records, port)
}

async fn search(
    State(records): State<Records>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    if headers
        .get("authorization")
        .is_none_or(|it| it != "ApiKey good")
    {
        let error =
            json!({"error": {"type": "security_exception", "reason": "missing authentication"}});
        return (StatusCode::UNAUTHORIZED, Json(error));
    }
    let time = |it: &Value| {
        it["@timestamp"]
            .as_str()
            .unwrap()
            .parse::<Timestamp>()
            .unwrap()
    };
    let sort = |it: &Value| (time(it).as_millisecond(), it["seq"].as_i64().unwrap());
    let mut found: Vec<Value> = records
        .lock()
        .unwrap()
        .iter()
        .map(|(_, record)| record.clone())
        .collect();
    for filter in body["query"]["bool"]["filter"].as_array().unwrap() {
        if let Some(stream) = filter["term"].get("stream.keyword") {
            found.retain(|it| it["stream"] == *stream);
        }
        let range = &filter["range"]["@timestamp"];
        if let Some(after) = range["gt"].as_str() {
            found.retain(|it| time(it) > after.parse().unwrap());
        }
        if let Some(before) = range["lt"].as_str() {
            found.retain(|it| time(it) < before.parse().unwrap());
        }
    }
    found.sort_by_key(sort);
    let is_descending = body["sort"][1]["seq"]["order"] == "desc";
    if is_descending {
        found.reverse();
    }
    if let Some(after) = body["search_after"].as_array() {
        let after = (after[0].as_i64().unwrap(), after[1].as_i64().unwrap());
        found.retain(|it| {
            if is_descending {
                sort(it) < after
            } else {
                sort(it) > after
            }
        });
    }
    let size = usize::try_from(body["size"].as_u64().unwrap()).unwrap();
    let hits: Vec<Value> = found
        .iter()
        .take(size)
        .map(|it| json!({"_source": it, "sort": [sort(it).0, sort(it).1]}))
        .collect();
    (StatusCode::OK, Json(json!({"hits": {"hits": hits}})))
}

async fn take(
    State(records): State<Records>,
    Path(tag): Path<String>,
    Json(body): Json<Value>,
) -> StatusCode {
    for record in body.as_array().unwrap() {
        records.lock().unwrap().push((tag.clone(), record.clone()));
    }
    StatusCode::CREATED
}

/// A receiver of HTTP that is the reader as well.
async fn http_receiver(records: Records) -> u16 {
    let router = Router::new()
        .route(
            "/",
            get(|headers: HeaderMap| async move {
                if headers.contains_key("authorization") {
                    StatusCode::OK
                } else {
                    StatusCode::UNAUTHORIZED
                }
            }),
        )
        .route("/logs/_search", post(search))
        .route("/{*tag}", post(take))
        .with_state(records);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    port
}

async fn store(
    port: u16,
    protocol: FluentProtocol,
    reader: Option<(u16, Option<&str>)>,
) -> FluentBitLogs {
    let how = FluentBit {
        host: "127.0.0.1".to_owned(),
        port,
        protocol,
        tag_prefix: "dstack".to_owned(),
        elastic: reader.map(|(port, key)| Elastic {
            url: format!("http://127.0.0.1:{port}"),
            index: "logs".to_owned(),
            api_key: key.map(|it| Secret::new(it.to_owned())),
        }),
    };
    FluentBitLogs::new(Http::new().await.unwrap(), &how)
}

const TAG: &str = "dstack.main/train/00000000-0000-0000-0000-000000000007/job";

async fn read_back(logs: &Logs) {
    let mut wanted: Vec<String> = (0..2500).map(|n| format!("line {n}\n")).collect();
    assert_eq!(pages(logs, &key(), query()).await.0, wanted);
    wanted.reverse();
    let asked = LogQuery {
        descending: true,
        limit: 333,
        ..query()
    };
    assert_eq!(pages(logs, &key(), asked).await.0, wanted);
    let last = entries(2499, 1)[0].at.as_microsecond();
    assert_eq!(logs.stored_until(&key()).await.unwrap(), last);
    let foreign = LogQuery {
        token: Some("17:x".to_owned()),
        ..query()
    };
    assert!(matches!(
        logs.poll(&key(), foreign).await,
        Err(LogError::ForeignToken(_))
    ));
}

#[tokio::test]
async fn records_are_forwarded_and_read_back() {
    for manner in [Manner::Good, Manner::Short] {
        let (records, port) = forward_receiver(manner).await;
        let reader = http_receiver(records.clone()).await;
        let store = store(port, FluentProtocol::Forward, Some((reader, Some("good")))).await;
        store.check().await.unwrap();
        let logs = Logs::new(store);
        assert_eq!(logs.stored_until(&key()).await.unwrap(), i64::MIN);
        logs.append(&key(), entries(0, 1400)).await.unwrap();
        logs.append(&key(), entries(1400, 1100)).await.unwrap();
        let first = records.lock().unwrap()[0].clone();
        assert_eq!(first.0, TAG);
        assert_eq!(
            first.1,
            json!({"message": "line 0\n", "@timestamp": "2023-11-14T22:13:20Z", "stream": TAG.get(7..), "seq": 1_700_000_000_000_000_i64})
        );
        read_back(&logs).await;
    }
}

#[tokio::test]
async fn records_are_posted_and_read_back() {
    let records = Records::default();
    let port = http_receiver(records.clone()).await;
    let logs = Logs::new(store(port, FluentProtocol::Http, Some((port, Some("good")))).await);
    logs.append(&key(), entries(0, 2500)).await.unwrap();
    assert_eq!(records.lock().unwrap()[0].0, TAG);
    read_back(&logs).await;
}

#[tokio::test]
async fn what_has_not_arrived_is_not_stored() {
    let (_records, port) = forward_receiver(Manner::Silent).await;
    let logs = Logs::new(store(port, FluentProtocol::Forward, None).await);
    assert!(matches!(
        logs.append(&key(), entries(0, 5)).await,
        Err(LogError::Outside { is_gone: true, .. })
    ));
    assert!(
        matches!(
            logs.append(&key(), entries(0, 5)).await,
            Err(LogError::Resting)
        ),
        "nobody waits for it again at once"
    );
    assert!(logs.poll(&key(), query()).await.unwrap().logs.is_empty());
}

#[tokio::test]
async fn a_start_tells_what_is_wrong() {
    let records = Records::default();
    let port = http_receiver(records).await;
    let shut = store(port, FluentProtocol::Http, Some((port, None))).await;
    let why = shut.check().await.unwrap_err();
    assert!(
        matches!(why, LogError::Outside { is_gone: false, .. }),
        "{why}"
    );
    assert!(
        why.to_string().contains("Elasticsearch") && why.to_string().contains("401"),
        "{why}"
    );
    let nobody = store(1, FluentProtocol::Forward, None)
        .await
        .check()
        .await
        .unwrap_err();
    assert!(nobody.to_string().contains("127.0.0.1:1"), "{nobody}");
}
