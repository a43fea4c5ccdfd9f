//! Output: complete, in order, live.

use std::net::TcpStream;

use serde_json::json;
use tungstenite::Message;
use tungstenite::protocol::CloseFrame;

use crate::bed::{Bed, job};

/// Reads the raw log to its end; gives it and the close frame.
pub(crate) fn watch(bed: &Bed, query: &str) -> (Vec<u8>, Option<Option<CloseFrame>>) {
    let stream = TcpStream::connect(("127.0.0.1", bed.port)).unwrap();
    let (mut socket, _) =
        tungstenite::client(format!("ws://localhost/logs_ws{query}"), stream).unwrap();
    let mut got = Vec::new();
    loop {
        match socket.read() {
            Ok(Message::Binary(bytes)) => got.extend_from_slice(&bytes),
            Ok(Message::Close(frame)) => return (got, Some(frame)),
            Ok(other) => panic!("unexpected message {other:?}"),
            Err(_) => return (got, None),
        }
    }
}

#[test]
fn a_hundred_thousand_lines_and_a_long_one_are_complete_and_in_order() {
    let bed = Bed::start();
    let script = "awk 'BEGIN { for (i = 0; i < 100000; i++) printf \"line %d – ünïcode 漢字 🦀\\n\", i; \
        for (i = 0; i < 100000; i++) printf \"0123456ü漢\"; printf \"\\n\" }'";
    let outcome = bed.outcome(&job(script));
    let mut want: String = (0..100_000)
        .map(|n| format!("line {n} – ünïcode 漢字 🦀\n"))
        .collect();
    want.push_str(&"0123456ü漢".repeat(100_000));
    want.push('\n');
    assert!(
        outcome.text() == want,
        "{} bytes of {}",
        outcome.log.len(),
        want.len()
    );
    // Each message can be decoded for itself.
    let first: serde_json::Value = bed.get("/api/pull?timestamp=0").json();
    for log in first["job_logs"].as_array().unwrap() {
        use base64::Engine;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(log["message"].as_str().unwrap())
            .unwrap();
        assert!(std::str::from_utf8(&bytes).is_ok() && bytes.len() < 40_000);
    }
}

#[test]
fn answers_are_bounded_when_there_is_more_than_fits() {
    let bed = Bed::start();
    bed.start_job(&job(
        "yes 0123456789012345678901234567890123456789 | head -c 24000000",
    ));
    let outcome = bed.finish();
    assert_eq!(outcome.log.len(), 24_000_000);
    let first = bed.get("/api/pull?timestamp=0");
    assert!(first.body.len() < 24_000_000, "{}", first.body.len());
    assert_eq!(first.json::<serde_json::Value>()["has_more"], true);
}

#[test]
fn a_line_arrives_while_the_job_runs() {
    let bed = Bed::start();
    bed.start_job(&job("echo one; read answer"));
    let outcome = bed.pull_until(|so_far| so_far.text().contains("one\n"));
    assert_eq!(outcome.states.len(), 1);
    let raw = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&bed, "").0);
        bed.post("/api/stop", b"");
        watcher.join().unwrap()
    });
    assert!(raw.starts_with(b"one\r\n"), "{raw:?}");
}

#[test]
fn a_client_of_the_raw_log_gets_colours_from_its_start_time_on() {
    let bed = Bed::start();
    bed.start_job(&job(
        "printf '\\033[31mred\\033[0m\\n'; sleep 3; echo later",
    ));
    let so_far = bed.pull_until(|so_far| so_far.text() == "red\n");
    assert!(
        so_far.runner_log.contains("running the job"),
        "{}",
        so_far.runner_log
    );
    let start = so_far.states[0].timestamp / 1000 + 2;
    let date = std::process::Command::new("date")
        .args(["-u", "-d", &format!("@{start}"), "+%Y-%m-%dT%H:%M:%SZ"])
        .output()
        .unwrap();
    let query = format!(
        "?start_time={}",
        String::from_utf8(date.stdout).unwrap().trim()
    );
    std::thread::scope(|scope| {
        let all = scope.spawn(|| watch(&bed, ""));
        let late = scope.spawn(|| watch(&bed, &query));
        assert_eq!(
            all.join().unwrap(),
            (b"\x1b[31mred\x1b[0m\r\nlater\r\n".to_vec(), Some(None))
        );
        assert_eq!(late.join().unwrap(), (b"later\r\n".to_vec(), Some(None)));
    });
    assert_eq!(bed.finish().text(), "red\nlater\n");
}

#[test]
fn a_start_time_that_is_none_closes_with_a_reason() {
    let bed = Bed::start();
    let (raw, close) = watch(&bed, "?start_time=soon");
    let frame = close.flatten().expect("a close frame with a code");
    assert_eq!(
        (raw.len(), u16::from(frame.code), frame.reason.as_str()),
        (0, 1003, "failed to parse start_time value")
    );
}

#[test]
fn a_progress_bar_becomes_its_last_state() {
    let bed = Bed::start();
    let outcome = bed.outcome(&job(
        "for i in 1 2 3 4 5; do printf '\\r%d0%%' $i; done; echo; printf 'a\\tb'",
    ));
    assert_eq!(outcome.text(), "50%\na\tb");
}

#[test]
fn a_pull_waits_for_news_and_not_longer() {
    let bed = Bed::start();
    let empty: serde_json::Value = bed.get("/api/pull?timestamp=0&wait_ms=50").json();
    assert_eq!(empty["job_logs"], json!([]));
    bed.start_job(&job("sleep 1; echo news"));
    let outcome = bed.pull_until(|so_far| !so_far.log.is_empty());
    assert_eq!(outcome.text(), "news\n");
}

/// A disk of two megabytes for the runner's files.
const SMALL_DISK: &str = "mount -t tmpfs -o size=2m tmpfs root/tmp";

#[test]
fn a_full_disk_costs_no_line_of_the_log() {
    let bed = Bed::with(&["--no-sshd"], SMALL_DISK);
    bed.start_job(&job("seq 1 1500000"));
    let outcome = bed.finish();
    let want: String = (1..=1_500_000).map(|n| format!("{n}\n")).collect();
    assert!(
        outcome.log == want.as_bytes(),
        "{} bytes of {}",
        outcome.log.len(),
        want.len()
    );
    assert_eq!(outcome.last().exit_status, Some(0));
    assert!(outcome.runner_log.contains("raw log has holes"));
}

#[test]
fn more_log_than_disk_and_memory_take_is_left_out_and_said() {
    let bed = Bed::with(&["--no-sshd"], SMALL_DISK);
    bed.start_job(&job(
        "yes 0123456789012345678901234567890123456789 | head -c 60000000; echo; echo last words",
    ));
    let outcome = bed.finish();
    let len = outcome.log.len();
    assert!(len > 30_000_000 && len < 50_000_000, "{len}");
    let text = outcome.text();
    assert!(text.contains("bytes of log were lost: the disk is full"));
    assert_eq!(outcome.last().exit_status, Some(0));
}
