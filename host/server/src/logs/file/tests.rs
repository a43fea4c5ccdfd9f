use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::FileLogs;
use crate::logs::{LogEntry, LogKey, LogPage, LogQuery, Producer};

fn key() -> LogKey {
    LogKey {
        project: "main".into(),
        run: "train".into(),
        submission: Uuid::from_u128(7),
        producer: Producer::Job,
    }
}

fn entry(second: i64, text: &[u8]) -> LogEntry {
    LogEntry {
        at: Timestamp::from_second(second).unwrap(),
        message: text.to_vec(),
    }
}

fn query() -> LogQuery {
    LogQuery {
        after: None,
        before: None,
        descending: false,
        token: None,
        limit: 1000,
    }
}

fn texts(page: &LogPage) -> Vec<String> {
    page.logs
        .iter()
        .map(|event| String::from_utf8_lossy(&event.bytes().unwrap()).into_owned())
        .collect()
}

fn numbers(range: impl Iterator<Item = i64>) -> Vec<String> {
    range.map(|n| format!("line {n}\n")).collect()
}

async fn filled(lines: i64) -> (tempfile::TempDir, FileLogs) {
    let folder = tempfile::tempdir().unwrap();
    let logs = FileLogs::new(folder.path().to_owned());
    for part in (0..lines).collect::<Vec<_>>().chunks(500) {
        let entries = part
            .iter()
            .map(|n| entry(*n, format!("line {n}\n").as_bytes()))
            .collect::<Vec<_>>();
        logs.append(&key(), entries).await.unwrap();
    }
    (folder, logs)
}

#[tokio::test]
async fn a_log_that_is_not_there_is_empty_and_a_foreign_token_is_named() {
    let (_folder, logs) = filled(0).await;
    assert_eq!(
        logs.poll(&key(), query()).await.unwrap(),
        LogPage::default()
    );
    let error = logs
        .poll(
            &key(),
            LogQuery {
                token: Some("x".into()),
                ..query()
            },
        )
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Invalid next_token: x. Must be a non-negative integer."
    );
}

#[tokio::test]
async fn pages_show_every_line_once_in_both_directions() {
    let (_folder, logs) = filled(2500).await;
    for descending in [false, true] {
        let (mut all, mut token, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = logs
                .poll(
                    &key(),
                    LogQuery {
                        descending,
                        token,
                        ..query()
                    },
                )
                .await
                .unwrap();
            all.extend(texts(&page));
            pages += 1;
            match page.next_token {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        let expected = if descending {
            numbers((0..2500).rev())
        } else {
            numbers(0..2500)
        };
        assert_eq!((all, pages), (expected, 3), "descending: {descending}");
    }
}

#[tokio::test]
async fn entries_of_one_moment_are_not_skipped_by_pages() {
    let folder = tempfile::tempdir().unwrap();
    let logs = FileLogs::new(folder.path().to_owned());
    logs.append(
        &key(),
        (0..30)
            .map(|n| entry(5, format!("{n}").as_bytes()))
            .collect::<Vec<_>>(),
    )
    .await
    .unwrap();
    let first = logs
        .poll(
            &key(),
            LogQuery {
                limit: 20,
                ..query()
            },
        )
        .await
        .unwrap();
    let rest = logs
        .poll(
            &key(),
            LogQuery {
                limit: 20,
                token: first.next_token.clone(),
                ..query()
            },
        )
        .await
        .unwrap();
    assert_eq!(
        (first.logs.len(), rest.logs.len(), rest.next_token),
        (20, 10, None)
    );
}

#[tokio::test]
async fn times_cut_strictly() {
    let (_folder, logs) = filled(5000).await;
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    for after in [0, 1, 2499, 4000, 4998] {
        let page = logs
            .poll(
                &key(),
                LogQuery {
                    after: at(after),
                    limit: 3,
                    ..query()
                },
            )
            .await
            .unwrap();
        assert_eq!(
            texts(&page),
            numbers((after + 1..5000).take(3)),
            "after {after}"
        );
    }
    let page = logs
        .poll(
            &key(),
            LogQuery {
                after: at(10),
                before: at(13),
                ..query()
            },
        )
        .await
        .unwrap();
    assert_eq!(texts(&page), numbers(11..13));
    let page = logs
        .poll(
            &key(),
            LogQuery {
                after: at(10),
                before: at(13),
                descending: true,
                ..query()
            },
        )
        .await
        .unwrap();
    assert_eq!(texts(&page), numbers((11..13).rev()));
    let page = logs
        .poll(
            &key(),
            LogQuery {
                after: at(4999),
                ..query()
            },
        )
        .await
        .unwrap();
    assert!(page.logs.is_empty());
}

#[tokio::test]
async fn bytes_that_are_no_text_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let logs = FileLogs::new(folder.path().to_owned());
    let odd = b"\xff\xfe\x00 half \xc3".to_vec();
    logs.append(&key(), vec![entry(1, &odd), entry(2, "ä\n\"".as_bytes())])
        .await
        .unwrap();
    let page = logs.poll(&key(), query()).await.unwrap();
    assert_eq!(page.logs[0].bytes().unwrap(), odd);
    assert_eq!(page.logs[1].bytes().unwrap(), "ä\n\"".as_bytes());
}

#[tokio::test]
async fn a_line_cut_by_a_crash_is_left_out_and_harms_no_other() {
    let (folder, logs) = filled(3).await;
    let path = folder.path().join(format!(
        "projects/main/logs/train/{}/job.log",
        key().submission
    ));
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b"{\"timestamp\":\"1970-01-01T00:0").unwrap();
    for descending in [false, true] {
        assert_eq!(
            logs.poll(
                &key(),
                LogQuery {
                    descending,
                    ..query()
                }
            )
            .await
            .unwrap()
            .logs
            .len(),
            3
        );
    }
    logs.append(&key(), vec![entry(9, b"line 9\n")])
        .await
        .unwrap();
    let page = logs
        .poll(
            &key(),
            LogQuery {
                descending: true,
                limit: 1,
                ..query()
            },
        )
        .await
        .unwrap();
    assert_eq!(texts(&page), ["line 9\n"]);
    assert_eq!(logs.poll(&key(), query()).await.unwrap().logs.len(), 4);
}

#[tokio::test]
async fn a_patient_reader_gets_what_is_written_meanwhile() {
    let (_folder, logs) = filled(3).await;
    let after = LogQuery {
        after: Some(entry(2, b"").at),
        ..query()
    };
    let hour = Duration::from_secs(3600);
    let waiting = tokio::spawn({
        let (logs, after) = (logs.clone(), after.clone());
        async move { logs.poll_patiently(&key(), after, hour).await }
    });
    // The reader may not wait yet: either way it gets this.
    tokio::task::yield_now().await;
    logs.append(&key(), vec![entry(3, b"new\n")]).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().logs.len(), 1);
    let other = LogKey {
        producer: Producer::Runner,
        ..key()
    };
    let none = logs.poll_patiently(&other, query(), Duration::from_millis(1));
    assert!(none.await.unwrap().logs.is_empty());
}
