//! How jobs and the runner end.

use std::time::{Duration, Instant};

use dstack_agent_protocol::runner::JobState;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::bed::{Bed, Outcome, job};

fn last(outcome: &Outcome) -> (JobState, &str, &str, Option<i32>) {
    let last = outcome.last();
    (
        last.state,
        &last.termination_reason,
        &last.termination_message,
        last.exit_status,
    )
}

#[test]
fn exit_codes_and_signals_become_states() {
    for (script, want) in [
        ("true", (JobState::Done, "", "", Some(0))),
        ("exit 7", (JobState::Failed, "", "", Some(7))),
        ("sh -c 'kill -9 $$'", (JobState::Failed, "", "", Some(137))),
        ("kill -9 $$", (JobState::Failed, "", "", Some(-1))),
    ] {
        let bed = Bed::start();
        let outcome = bed.outcome(&job(script));
        assert_eq!(outcome.states[0].state, JobState::Running, "{script}");
        assert_eq!(outcome.states.len(), 2, "{script}");
        assert_eq!(last(&outcome), want, "{script}");
    }
}

#[test]
fn a_command_that_cannot_start_fails_and_says_so_in_the_log() {
    let bed = Bed::start();
    let outcome = bed.outcome(&json!({"job_spec": {"commands": ["/no/such/program"]}}));
    assert_eq!(
        (outcome.last().state, outcome.last().exit_status),
        (JobState::Failed, None)
    );
    assert!(
        outcome
            .text()
            .starts_with("Failed to start /no/such/program ("),
        "{outcome:?}"
    );
}

#[test]
fn a_background_process_does_not_keep_the_job() {
    let bed = Bed::start();
    let outcome = bed.outcome(&job("sleep 1000 & echo started"));
    assert_eq!(outcome.text(), "started\n");
    assert_eq!(outcome.last().exit_status, Some(0));
}

/// Stops a job once it has said `ready`; gives how long that took.
fn stop(commands: &[&str]) -> (Outcome, Duration) {
    let bed = Bed::start();
    bed.start_job(&json!({"job_spec": {"commands": commands}}));
    bed.pull_until(|so_far| so_far.text().contains("ready"));
    let asked = Instant::now();
    for _ in 0..2 {
        assert_eq!(bed.post("/api/stop", b"").text(), "\n");
    }
    let outcome = bed.finish();
    assert_eq!(last(&outcome), (JobState::Terminated, "", "", None));
    assert!(outcome.states.len() == 2, "{outcome:?}");
    (outcome, asked.elapsed())
}

#[test]
fn an_interactive_shell_is_interrupted_through_its_terminal() {
    let script =
        "trap 'echo parent' INT; echo ready; sh -c 'trap \"echo got-it; exit 0\" INT; sleep 100'";
    let (outcome, took) = stop(&["/bin/bash", "-i", "-c", script]);
    assert!(outcome.text().contains("got-it"), "{outcome:?}");
    // Well before the next stage: not a matter of speed but of which signal did it.
    assert!(took < Duration::from_millis(4900), "{took:?}");
}

#[test]
fn what_ignores_an_interrupt_is_hung_up_and_then_killed() {
    let hung_up = std::thread::spawn(|| {
        stop(&[
            "/bin/sh",
            "-c",
            "trap '' INT; trap 'echo bye; exit 0' HUP; echo ready; while :; do sleep 0.1; done",
        ])
    });
    let killed = std::thread::spawn(|| {
        stop(&[
            "/bin/sh",
            "-c",
            "trap '' INT HUP TERM; (setsid sleep 0.1; exec sleep 1000) & echo ready; while :; do sleep 0.1; done",
        ])
    });
    let (outcome, took) = hung_up.join().unwrap();
    assert!(outcome.text().contains("bye"), "{outcome:?}");
    assert!(took >= Duration::from_secs(5), "{took:?}");
    let (_, took) = killed.join().unwrap();
    assert!(took >= Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_stop_during_set_up_ends_the_job_before_it_runs() {
    // A directory that git can never finish to clone from.
    let bed = Bed::with(
        &["--no-sshd"],
        "mkdir -p root/opt/bin; printf '#!/bin/sh\\nsleep 1000\\n' > root/usr/local/bin/git-hang; \
        rm -f root/usr/local/bin/git root/usr/bin/git; printf '#!/bin/sh\\nsleep 1000\\n' > root/usr/bin/git; chmod +x root/usr/bin/git",
    );
    bed.start_job(&json!({
        "job_spec": {"commands": ["/bin/sh", "-c", "echo never"], "repo_data": {"repo_type": "remote"}},
        "repo_credentials": {"clone_url": "https://127.0.0.1:9/x.git"},
    }));
    bed.pull_until(|so_far| so_far.runner_log.contains("cloning the repo"));
    bed.post("/api/stop", b"");
    let outcome = bed.finish();
    assert_eq!(last(&outcome), (JobState::Terminated, "", "", None));
    assert_eq!((outcome.states.len(), outcome.text().as_str()), (1, ""));
}

#[test]
fn a_job_that_runs_too_long_is_terminated() {
    let bed = Bed::start();
    let mut spec = job("sleep 1000");
    spec["job_spec"]["max_duration"] = json!(1);
    let outcome = bed.outcome(&spec);
    assert_eq!(
        last(&outcome),
        (
            JobState::Terminated,
            "max_duration_exceeded",
            "Max duration exceeded",
            None
        )
    );
}

#[test]
fn a_job_that_logs_too_much_is_killed() {
    let bed = Bed::start();
    let mut spec = job("echo first; sleep 1; trap '' INT HUP; seq 1000000; sleep 1000");
    spec["log_quota_hour"] = json!(100_000);
    let outcome = bed.outcome(&spec);
    let message = "Job log output exceeded the hourly quota of 100000 bytes";
    assert_eq!(
        last(&outcome),
        (JobState::Failed, "log_quota_exceeded", message, None)
    );
    assert!(outcome.log.starts_with(b"first\n1\n2\n"));
    assert!(outcome.log.len() <= 100_000, "{}", outcome.log.len());
}

/// A runner whose temp dir can be seen from outside, also after its end.
fn with_temp_dir() -> Bed {
    let seen = "mkdir -p $D/temp root/tmp/runner; mount --bind $D/temp root/tmp/runner";
    Bed::with(&["--no-sshd"], seen)
}

/// The word about the job's end.
fn mark(bed: &Bed) -> String {
    let text = std::fs::read_to_string(bed.dir.path().join("temp/job.end")).unwrap();
    text.trim().to_owned()
}

#[test]
fn the_runner_ends_with_0_once_logs_and_last_state_are_taken() {
    let mut bed = with_temp_dir();
    assert_eq!(bed.outcome(&job("exit 5")).last().exit_status, Some(5));
    // Several last pulls are normal, for as long as no client has seen the raw log.
    for _ in 0..3 {
        assert!(!bed.pull(0).has_more);
    }
    crate::logs::watch(&bed, "")
        .1
        .expect("the raw log is closed");
    assert_eq!(bed.exit_code(), 0);
    assert_eq!(mark(&bed), "failed");
}

#[test]
fn a_runner_leaves_its_word_in_order_or_not_at_all() {
    let mut bed = with_temp_dir();
    // As jobs do that tidy up.
    let outcome = bed.outcome(&job("rm -rf /tmp/runner/*; echo tidy"));
    assert_eq!(outcome.text(), "tidy\n");
    bed.signal(Signal::SIGTERM);
    assert_eq!((bed.exit_code(), mark(&bed).as_str()), (0, "done"));
    let mut bed = with_temp_dir();
    bed.start_job(&job("echo ready; sleep 1000"));
    bed.pull_until(|so_far| so_far.text().contains("ready"));
    assert_eq!(mark(&bed), "");
    bed.signal(Signal::SIGTERM);
    assert_eq!((bed.exit_code(), mark(&bed).as_str()), (1, ""));
    // One that is killed comes to nothing, also after the end of its job.
    let bed = with_temp_dir();
    bed.outcome(&job("true"));
    bed.signal(Signal::SIGKILL);
    assert_eq!(mark(&bed), "");
}

#[test]
fn a_signal_ends_the_job_and_the_runner_lets_the_server_pull() {
    let mut bed = Bed::start();
    bed.start_job(&job(
        "trap 'echo bye; exit 1' INT; echo ready; sleep 1000 & wait",
    ));
    bed.pull_until(|so_far| so_far.text().contains("ready"));
    bed.signal(Signal::SIGTERM);
    let outcome = bed.finish();
    assert_eq!(last(&outcome), (JobState::Terminated, "", "", None));
    assert!(outcome.text().contains("bye"), "{outcome:?}");
    assert_eq!(bed.exit_code(), 0);
}

#[test]
fn a_job_cut_by_a_signal_that_nobody_asks_for_does_not_look_done() {
    let mut bed = Bed::start();
    bed.start_job(&job("echo ready; sleep 1000"));
    bed.pull_until(|so_far| so_far.text().contains("ready"));
    bed.signal(Signal::SIGTERM);
    assert_eq!(bed.exit_code(), 1);
    // One that had ended well before is done, also if nobody knows.
    let mut bed = Bed::start();
    bed.start_job(&job("true"));
    while !bed.out().contains("the job has ended") {
        std::thread::sleep(Duration::from_millis(20));
    }
    bed.signal(Signal::SIGTERM);
    assert_eq!(bed.exit_code(), 0);
}

#[test]
fn a_signal_before_the_job_is_an_error() {
    let mut bed = Bed::start();
    bed.signal(Signal::SIGINT);
    assert_eq!(bed.exit_code(), 1);
}
