use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::FileLogs;
use crate::logs::{LogEntry, LogKey, LogPage, LogQuery, Logs, Producer};

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
    let logs = Logs::new(logs);
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

/// Bytes of this process in memory.
fn rss() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}

/// A log of `DSTACK_TEST_LOG_MB` megabytes (64) from both ends, and from a time in its middle: no more memory than for some
/// pages, however long it is.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "tests have no settings")]
async fn a_long_log_is_read_without_memory() {
    const LINE: usize = 1000;
    let megabytes = std::env::var("DSTACK_TEST_LOG_MB").map_or(64, |it| it.parse().unwrap());
    let lines = i64::from(megabytes) * 1000;
    let folder = tempfile::tempdir().unwrap();
    let logs = FileLogs::new(folder.path().to_owned());
    let text = |n: i64| format!("{n:>width$}\n", width = LINE - 1);
    for from in (0..lines).step_by(4000) {
        let made = (from..from + 4000).map(move |n| entry(n, text(n).as_bytes()));
        logs.append(&key(), made).await.unwrap();
    }
    let path = logs.path(&key());
    let size = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
    // The first page is what all others are measured by.
    logs.poll(&key(), query()).await.unwrap();
    let before = rss();
    for descending in [false, true] {
        let mut asked = LogQuery {
            descending,
            ..query()
        };
        let mut next = if descending { lines - 1 } else { 0 };
        loop {
            let page = logs.poll(&key(), asked.clone()).await.unwrap();
            for event in &page.logs {
                assert_eq!(event.bytes().unwrap(), text(next).as_bytes());
                next += if descending { -1 } else { 1 };
            }
            match page.next_token {
                Some(token) => asked.token = Some(token),
                None => break,
            }
        }
        assert_eq!(next, if descending { -1 } else { lines });
    }
    let middle = LogQuery {
        after: Some(entry(lines / 2, b"").at),
        limit: 1,
        ..query()
    };
    let found = logs.poll(&key(), middle).await.unwrap();
    assert_eq!(
        found.logs[0].bytes().unwrap(),
        text(lines / 2 + 1).as_bytes()
    );
    let grown = rss().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more for a log of {size}");
}

/// Pages of both ends and of the middle read a bounded part of the file, told by the kernel's own count of bytes.
#[tokio::test]
async fn no_page_is_found_by_reading_the_rest() {
    let (folder, logs) = filled(60_000).await;
    let whole = std::fs::metadata(logs.path(&key())).unwrap().len();
    let read = || {
        let text = std::fs::read_to_string("/proc/self/io").unwrap();
        let line = text.lines().find(|it| it.starts_with("rchar:")).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    let first = logs.poll(&key(), query()).await.unwrap();
    let late = (whole * 9 / 10).to_string();
    for asked in [
        query(),
        LogQuery {
            token: first.next_token,
            ..query()
        },
        LogQuery {
            after: at(50_000),
            limit: 10,
            ..query()
        },
        LogQuery {
            descending: true,
            limit: 10,
            ..query()
        },
        LogQuery {
            descending: true,
            token: Some(late),
            limit: 10,
            ..query()
        },
    ] {
        let before = read();
        let page = logs.poll(&key(), asked.clone()).await.unwrap();
        assert!(!page.logs.is_empty());
        let cost = read() - before;
        assert!(cost < whole / 3, "{cost} of {whole} bytes for {asked:?}");
    }
    drop(folder);
}

#[tokio::test]
async fn what_nobody_has_written_to_for_long_goes() {
    let (folder, logs) = filled(3).await;
    let other = LogKey {
        run: "other".into(),
        submission: Uuid::from_u128(8),
        ..key()
    };
    logs.append(&other, vec![entry(1, b"x")]).await.unwrap();
    let logs = Logs::new(logs);
    let path = folder.path().join(format!(
        "projects/main/logs/train/{}/job.log",
        key().submission
    ));
    let file = std::fs::File::options().append(true).open(path).unwrap();
    let day = Duration::from_secs(86_400);
    file.set_modified(std::time::SystemTime::now() - day * 3)
        .unwrap();
    let before = |age: Duration| Timestamp::now() - age;
    assert_eq!(logs.drop_before(before(day * 4)).await.unwrap(), 0);
    assert_eq!(logs.drop_before(before(day * 2)).await.unwrap(), 1);
    assert!(logs.poll(&key(), query()).await.unwrap().logs.is_empty());
    assert_eq!(logs.poll(&other, query()).await.unwrap().logs.len(), 1);
    let left = std::fs::read_dir(folder.path().join("projects/main/logs")).unwrap();
    assert_eq!(left.count(), 1, "empty folders are gone");
    // One that is written again is there again.
    logs.append(&key(), vec![entry(9, b"again\n")])
        .await
        .unwrap();
    assert_eq!(logs.poll(&key(), query()).await.unwrap().logs.len(), 1);
}

#[tokio::test]
async fn a_page_of_long_entries_ends_early() {
    let folder = tempfile::tempdir().unwrap();
    let logs = FileLogs::new(folder.path().to_owned());
    let long = vec![b'x'; 100_000];
    let all = (0..100).map(|n| entry(n, &long)).collect::<Vec<_>>();
    logs.append(&key(), all).await.unwrap();
    for descending in [false, true] {
        let (mut count, mut pages, mut token) = (0, 0, None);
        loop {
            let asked = LogQuery {
                descending,
                token,
                ..query()
            };
            let page = logs.poll(&key(), asked).await.unwrap();
            (count, pages) = (count + page.logs.len(), pages + 1);
            assert!(page.logs.len() < 40);
            token = page.next_token;
            if token.is_none() {
                break;
            }
        }
        assert!(count == 100 && pages == 4, "{count} {pages}");
    }
}
