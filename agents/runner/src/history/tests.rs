use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dstack_agent_protocol::runner::PullResponse;

use super::*;
use crate::answer::Answer;

struct Pulled {
    response: PullResponse,
    is_complete: bool,
}

impl History {
    fn pull(&self, timestamp: i64) -> io::Result<Pulled> {
        let selection = self.select(timestamp);
        let mut json = Vec::new();
        let answer = Answer {
            selection: &selection,
            reader: &self.reader,
            no_connections_secs: 0,
            has_more: false,
        };
        answer.write(&mut json)?;
        Ok(Pulled {
            response: serde_json::from_slice(&json)?,
            is_complete: selection.is_complete,
        })
    }
}

fn history(limit: usize) -> History {
    let dir = tempfile::tempdir().unwrap();
    History::with_limit(dir.path(), limit).unwrap()
}

fn text(response: &PullResponse) -> String {
    let bytes = response
        .job_logs
        .iter()
        .flat_map(|log| STANDARD.decode(&log.message).unwrap());
    String::from_utf8(bytes.collect()).unwrap()
}

#[test]
fn only_entries_strictly_later_are_returned_and_nothing_is_deleted() {
    let history = history(1 << 20);
    history.add_job_log(b"one");
    let first = history.pull(0).unwrap().response;
    assert_eq!(text(&first), "one");
    assert_eq!(first.last_updated, first.job_logs[0].timestamp);
    history.add_job_log(b"two");
    assert_eq!(
        text(&history.pull(first.last_updated).unwrap().response),
        "two"
    );
    assert_eq!(
        text(&history.pull(first.last_updated - 1).unwrap().response),
        "onetwo"
    );
    assert_eq!(text(&history.pull(0).unwrap().response), "onetwo");
}

#[test]
fn an_empty_pull_has_empty_lists_and_the_latest_timestamp() {
    let history = history(1 << 20);
    assert_eq!(history.pull(0).unwrap().response.last_updated, 0);
    history.add_runner_log(b"x");
    let last = history.pull(0).unwrap().response.last_updated;
    let again = history.pull(last).unwrap().response;
    assert_eq!(
        again,
        PullResponse {
            last_updated: last,
            ..PullResponse::default()
        }
    );
}

#[test]
fn timestamps_are_unique_and_near_the_wall_clock() {
    let mut clock = Clock::new();
    let stamps: Vec<i64> = (0..5000).map(|_| clock.issue()).collect();
    assert!(stamps.windows(2).all(|pair| pair[0] < pair[1]));
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis();
    assert!((i128::from(stamps[0]) - i128::try_from(now).unwrap()).abs() < 60_000);
}

#[test]
fn answers_are_bounded_and_continue_where_they_ended() {
    let history = history(10);
    let pieces: Vec<String> = (0..20).map(|n| format!("{n:04}")).collect();
    for piece in &pieces {
        history.add_job_log(piece.as_bytes());
    }
    history.add_state(Change::to(JobState::Done).with_exit_status(0));
    let (mut at, mut got, mut pulls) = (0, String::new(), 0);
    loop {
        let pulled = history.pull(at).unwrap();
        assert!(
            pulled.response.job_logs.len() <= 3,
            "{}",
            pulled.response.job_logs.len()
        );
        got.push_str(&text(&pulled.response));
        at = pulled.response.last_updated;
        pulls += 1;
        if pulled.is_complete {
            assert_eq!(pulled.response.job_states[0].exit_status, Some(0));
            break;
        }
    }
    assert_eq!(got, pieces.concat());
    assert_eq!(pulls, 7);
}

#[tokio::test]
async fn waiting_ends_with_the_next_entry() {
    let history = std::sync::Arc::new(history(10));
    history.add_job_log(b"old");
    let last = history.pull(0).unwrap().response.last_updated;
    let waiting = tokio::spawn({
        let history = std::sync::Arc::clone(&history);
        async move { history.newer_than(last).await }
    });
    history.add_job_log(b"new");
    waiting.await.unwrap();
}
