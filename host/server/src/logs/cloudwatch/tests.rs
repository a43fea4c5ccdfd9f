use dstack_backend_types::Secret;
use dstack_test_support::moto::{Moto, REGION};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use uuid::Uuid;

use super::super::{LogEntry, LogError, LogKey, LogQuery, Logs, Producer};
use super::{Batch, CloudWatchLogs, Event, LONGEST, MOST_BYTES, MOST_EVENTS, OVERHEAD, SPAN};
use crate::logs::tests::{pages, query};
use crate::outside::http::Http;
use crate::settings::{AwsAccess, Settings};

fn access(moto: &Moto, key: &str, secret: &str) -> AwsAccess {
    let vars = std::collections::BTreeMap::from([
        ("HOME".to_owned(), "/nowhere".to_owned()),
        ("AWS_ENDPOINT_URL".to_owned(), moto.url().to_owned()),
        ("AWS_REGION".to_owned(), REGION.to_owned()),
        ("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned()),
    ]);
    let mut access = Settings::from_env(&vars).unwrap().outside.aws;
    if !key.is_empty() {
        access.keys = Some((key.to_owned(), Secret::new(secret.to_owned())));
    }
    access
}

async fn open(access: &AwsAccess, group: &str) -> Result<CloudWatchLogs, LogError> {
    let http = Http::new().await.unwrap();
    let logs = CloudWatchLogs::new(http, access, group, None)?;
    logs.check_group().await?;
    Ok(logs)
}

fn key() -> LogKey {
    LogKey {
        project: "main".to_owned(),
        run: "train".to_owned(),
        submission: Uuid::from_u128(7),
        producer: Producer::Job,
    }
}

/// Entries some seconds ago, several in a millisecond.
fn entries(from: i64, count: i64) -> Vec<LogEntry> {
    let start = Timestamp::now().as_second() - 3600;
    let each = (from..from + count).map(|n| LogEntry {
        at: Timestamp::from_microsecond(start * 1_000_000 + (n / 7) * 1000 + n % 7).unwrap(),
        message: format!("line {n}\n").into_bytes(),
    });
    each.collect()
}

fn numbers(range: impl Iterator<Item = i64>) -> Vec<String> {
    range.map(|n| format!("line {n}\n")).collect()
}

#[tokio::test]
async fn pages_come_back_in_both_directions() {
    let moto = Moto::start().unwrap();
    moto.logs("CreateLogGroup", &json!({"logGroupName": "jobs"}))
        .unwrap();
    let store = open(&access(&moto, "any", "any"), "jobs").await.unwrap();
    let logs = Logs::new(store);
    let empty = logs.poll(&key(), query()).await.unwrap();
    assert!(empty.logs.is_empty() && empty.next_token.is_none());
    let url = empty.external_url.unwrap();
    assert!(
        url.ends_with("/jobs/log-events/main%2Ftrain%2F00000000-0000-0000-0000-000000000007%2Fjob"),
        "{url}"
    );
    let all = entries(0, 2500);
    for part in all.chunks(600) {
        logs.append(&key(), part.to_vec()).await.unwrap();
    }
    for (descending, limit) in [(false, 300), (true, 300), (false, 1000), (true, 999)] {
        let asked = LogQuery {
            descending,
            limit,
            ..query()
        };
        let (found, _) = pages(&logs, &key(), asked).await;
        let mut wanted = numbers(0..2500);
        if descending {
            wanted.reverse();
        }
        assert_eq!(found, wanted, "{descending} {limit}");
    }
    // Times cut strictly: 7 lines a millisecond.
    let at = |milliseconds: i64| Some(all[0].at + SignedDuration::from_millis(milliseconds));
    let asked = LogQuery {
        after: at(9),
        before: at(12),
        ..query()
    };
    let (found, _) = pages(&logs, &key(), asked).await;
    assert_eq!(found, numbers(70..84));
    let foreign = LogQuery {
        token: Some("b/none".to_owned()),
        ..query()
    };
    let other = logs.poll(&key(), foreign).await;
    assert!(matches!(other, Err(LogError::ForeignToken(_))), "{other:?}");
    let odd = LogQuery {
        token: Some("a b".to_owned()),
        ..query()
    };
    assert!(matches!(
        logs.poll(&key(), odd).await,
        Err(LogError::ForeignToken(_))
    ));
    // A stream that a person has deleted is made anew.
    moto.logs(
        "DeleteLogStream",
        &json!({"logGroupName": "jobs", "logStreamName": key().joined("/")}),
    )
    .unwrap();
    assert!(logs.poll(&key(), query()).await.unwrap().logs.is_empty());
    logs.append(&key(), entries(0, 3)).await.unwrap();
    assert_eq!(pages(&logs, &key(), query()).await.0, numbers(0..3));
}

#[tokio::test]
async fn what_is_too_long_or_too_old_is_cut_or_left_out() {
    let moto = Moto::start().unwrap();
    moto.logs("CreateLogGroup", &json!({"logGroupName": "jobs"}))
        .unwrap();
    let store = open(&access(&moto, "any", "any"), "jobs").await.unwrap();
    let logs = Logs::new(store);
    let now = Timestamp::now();
    let day = SignedDuration::from_hours(24);
    let long = "ä".repeat(200_000);
    let entry = |at: Timestamp, message: &[u8]| LogEntry {
        at,
        message: message.to_vec(),
    };
    logs.append(
        &key(),
        vec![
            entry(now - day * 20, b"too old"),
            entry(now - day * 3, b"old"),
            entry(now - day, long.as_bytes()),
            entry(now - day, b""),
            entry(now, b"no text: \xff"),
            entry(now + day, b"too late"),
        ],
    )
    .await
    .unwrap();
    let (found, _) = pages(&logs, &key(), query()).await;
    assert_eq!(found[0], "old");
    assert_eq!(found[1..found.len() - 1].concat(), long);
    assert!(found[1..].iter().all(|it| it.len() <= LONGEST - OVERHEAD));
    assert_eq!(found[found.len() - 1], "no text: \u{fffd}");
    // More than one call takes.
    let many = LogKey {
        producer: Producer::Runner,
        ..key()
    };
    logs.append(&many, entries(0, 10_500)).await.unwrap();
    let (found, _) = pages(&logs, &many, query()).await;
    assert_eq!(found, numbers(0..10_500));
}

#[tokio::test]
async fn what_is_stored_is_known_after_a_crash() {
    let moto = Moto::start().unwrap();
    moto.logs("CreateLogGroup", &json!({"logGroupName": "jobs"}))
        .unwrap();
    let store = open(&access(&moto, "any", "any"), "jobs").await.unwrap();
    let logs = Logs::new(store);
    assert_eq!(logs.stored_until(&key()).await.unwrap(), i64::MIN);
    // 12 lines: the last millisecond has 5 of its 7.
    let all = entries(0, 14);
    logs.append(&key(), all[..12].to_vec()).await.unwrap();
    let last = logs.stored_until(&key()).await.unwrap();
    let rest: Vec<LogEntry> = all
        .into_iter()
        .filter(|it| it.at.as_microsecond() > last)
        .collect();
    assert_eq!(rest.len(), 2);
    logs.append(&key(), rest).await.unwrap();
    assert_eq!(pages(&logs, &key(), query()).await.0, numbers(0..14));
}

#[tokio::test]
async fn a_start_tells_what_is_wrong() {
    let moto = Moto::start().unwrap();
    moto.logs("CreateLogGroup", &json!({"logGroupName": "jobs"}))
        .unwrap();
    let none = open(&access(&moto, "", ""), "jobs").await.unwrap_err();
    assert!(none.to_string().contains("no AWS credentials"), "{none}");
    let wrong = open(&access(&moto, "any", "any"), "other").await;
    assert_eq!(
        wrong.unwrap_err().to_string(),
        "cannot use CloudWatch Logs: there is no log group other in eu-west-1"
    );
    let mut nowhere = access(&moto, "any", "any");
    nowhere.region = None;
    let nowhere = open(&nowhere, "jobs").await.unwrap_err();
    assert!(nowhere.to_string().contains("AWS_REGION"), "{nowhere}");

    // From here on signatures are checked, by another implementation than ours.
    let keys = moto.checks_signatures().unwrap();
    let refused = open(&access(&moto, &keys.key, "another secret"), "jobs")
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("SignatureDoesNotMatch"), "{refused}");
    assert!(!refused.contains("another secret"), "{refused}");
    let unknown = open(&access(&moto, "AKIAUNKNOWN", "x"), "jobs").await;
    assert!(unknown.is_err());
    let store = open(&access(&moto, &keys.key, &keys.secret), "jobs")
        .await
        .unwrap();
    let logs = Logs::new(store);
    logs.append(&key(), entries(0, 5)).await.unwrap();
    assert_eq!(pages(&logs, &key(), query()).await.0, numbers(0..5));
}

#[test]
fn no_call_is_larger_than_allowed() {
    let event = |timestamp: i64, length: usize| Event {
        timestamp,
        message: "x".repeat(length),
    };
    let mut batch = Batch::default();
    for n in 0..20_000 {
        let next = event(n, 1);
        if !batch.has_room(&next) {
            break;
        }
        batch.add(next);
    }
    assert_eq!(batch.events.len(), MOST_EVENTS);
    let mut batch = Batch::default();
    while batch.has_room(&event(0, 1000)) {
        batch.add(event(0, 1000));
    }
    let bytes = batch.events.len() * (1000 + OVERHEAD);
    assert!(bytes <= MOST_BYTES && bytes + 1000 + OVERHEAD > MOST_BYTES);
    let mut batch = Batch::default();
    batch.add(event(SPAN, 1));
    assert!(batch.has_room(&event(0, 1)) && batch.has_room(&event(2 * SPAN, 1)));
    assert!(!batch.has_room(&event(-1, 1)));
    batch.add(event(0, 2));
    assert!(!batch.has_room(&event(SPAN + 1, 1)));
    assert_eq!(batch.take()[0].timestamp, 0, "by time");
}
