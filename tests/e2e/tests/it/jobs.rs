//! Tasks in both runtimes: log, exit code, stop, abort, limits, files, order of the log.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dstack_e2e::{Runtime, server, task};
use dstack_test_support::server::wait_for;

const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of a log without the greeting of BusyBox's interactive shell.
fn lines(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| {
        !line.is_empty() && !line.contains("BusyBox") && !line.starts_with("Enter 'help'")
    })
}

fn runs_and_prints(runtime: Runtime) -> Result<()> {
    let server = server(runtime)?;
    let path = server.file(
        "task.dstack.yml",
        &task(
            "hello",
            runtime,
            &["echo \"hello from $DSTACK_RUN_NAME\"", "echo second"],
        ),
    )?;
    let out = server.ok(&["apply", "-f", &path, "-y"])?;
    ensure!(out.contains("hello from hello"), "no log in {out}");
    let run = server.finished("hello", PATIENCE)?;
    ensure!(run["status"] == "done", "{run}");
    let submission = &run["jobs"][0]["job_submissions"][0];
    ensure!(submission["exit_status"] == 0, "{submission}");
    ensure!(submission["status_message"] == "exited (0)", "{submission}");
    let log = server.ok(&["logs", "hello"])?;
    ensure!(
        lines(&log).collect::<Vec<_>>() == ["hello from hello", "second"],
        "{log}"
    );
    let table = server.ok(&["ps", "-a"])?;
    ensure!(table.contains("exited (0)"), "{table}");
    Ok(())
}

#[test]
fn a_process_task_runs_and_prints() -> Result<()> {
    runs_and_prints(Runtime::Process)
}

#[test]
fn a_container_task_runs_and_prints() -> Result<()> {
    runs_and_prints(Runtime::Docker)
}

fn exit_code_is_told(runtime: Runtime) -> Result<()> {
    let server = server(runtime)?;
    let path = server.file(
        "task.dstack.yml",
        &task("three", runtime, &["echo before", "exit 3"]),
    )?;
    let out = server.cli(&["apply", "-f", &path, "-y"])?;
    ensure!(
        out.status.code() == Some(1),
        "apply of a failing run ends with 1, not {}",
        out.status
    );
    let run = server.finished("three", PATIENCE)?;
    ensure!(run["status"] == "failed", "{run}");
    let submission = &run["jobs"][0]["job_submissions"][0];
    ensure!(submission["exit_status"] == 3, "{submission}");
    ensure!(submission["status_message"] == "exited (3)", "{submission}");
    ensure!(server.ok(&["ps", "-a"])?.contains("exited (3)"));
    Ok(())
}

#[test]
fn a_process_tasks_exit_code_is_told() -> Result<()> {
    exit_code_is_told(Runtime::Process)
}

#[test]
fn a_container_tasks_exit_code_is_told() -> Result<()> {
    exit_code_is_told(Runtime::Docker)
}

/// Ends within its grace time when stopped, with its last words in the log; at once when aborted.
fn stop_and_abort(runtime: Runtime) -> Result<()> {
    let server = server(runtime)?;
    // A program of its own: the interactive shell around it would not run its trap.
    let line = "sh -c 'trap \"echo last words; exit 0\" TERM INT HUP; echo ready; while true; do sleep 0.1; done'";
    for (name, abort) in [("stopped", false), ("aborted", true)] {
        let path = server.file("task.dstack.yml", &task(name, runtime, &[line]))?;
        server.ok(&["apply", "-f", &path, "-y", "-d"])?;
        wait_for("the first line", PATIENCE, || {
            Ok(server.ok(&["logs", name])?.contains("ready").then_some(()))
        })?;
        let began = Instant::now();
        let args: &[&str] = if abort {
            &["stop", "-x", "-y", name]
        } else {
            &["stop", "-y", name]
        };
        server.ok(args)?;
        let run = server.finished(name, PATIENCE)?;
        ensure!(run["status"] == "terminated", "{run}");
        let submission = &run["jobs"][0]["job_submissions"][0];
        let (message, reason) = if abort {
            ("aborted", "aborted_by_user")
        } else {
            ("stopped", "terminated_by_user")
        };
        ensure!(submission["status_message"] == message, "{submission}");
        ensure!(submission["termination_reason"] == reason, "{submission}");
        if !abort {
            ensure!(
                server.ok(&["logs", name])?.contains("last words"),
                "{}",
                server.ok(&["logs", name])?
            );
        }
        ensure!(
            began.elapsed() < Duration::from_secs(25),
            "{name} took {:?}",
            began.elapsed()
        );
    }
    Ok(())
}

#[test]
fn a_process_task_is_stopped_and_aborted() -> Result<()> {
    stop_and_abort(Runtime::Process)
}

#[test]
fn a_container_task_is_stopped_and_aborted() -> Result<()> {
    stop_and_abort(Runtime::Docker)
}

fn long_log(runtime: Runtime) -> Result<()> {
    const LINES: usize = 100_000;
    let server = server(runtime)?;
    let awk = format!("seq 1 {LINES} | sed 's/^/line grüße 日本語 🚀 /'");
    let path = server.file("task.dstack.yml", &task("long", runtime, &[&awk]))?;
    server.ok(&["apply", "-f", &path, "-y", "-d"])?;
    let run = server.finished("long", Duration::from_secs(120))?;
    ensure!(run["status"] == "done", "{run}\n{}", server.log());
    let log = server.ok(&["logs", "long"])?;
    let mut expected = 1;
    for line in lines(&log) {
        ensure!(
            line == format!("line grüße 日本語 🚀 {expected}"),
            "after line {} came {line:?}",
            expected - 1
        );
        expected += 1;
    }
    ensure!(expected == LINES + 1, "only {} lines", expected - 1);
    Ok(())
}

#[test]
fn a_process_tasks_long_log_is_complete_and_in_order() -> Result<()> {
    long_log(Runtime::Process)
}

#[test]
fn a_container_tasks_long_log_is_complete_and_in_order() -> Result<()> {
    long_log(Runtime::Docker)
}

fn limits_and_files(runtime: Runtime) -> Result<()> {
    let server = server(runtime)?;
    server.file("data.txt", "content of the file\n")?;
    let mut text = task(
        "files",
        runtime,
        &["echo \"$GREETING\"", "cat data.txt", "pwd"],
    );
    text.push_str("env:\n- GREETING=bonjour\nfiles:\n- data.txt\n");
    let path = server.file("task.dstack.yml", &text)?;
    server.ok(&["apply", "-f", &path, "-y"])?;
    let log = server.ok(&["logs", "files"])?;
    ensure!(
        log.contains("bonjour") && log.contains("content of the file"),
        "{log}"
    );

    let mut text = task("limited", runtime, &["echo begin", "sleep 600"]);
    text.push_str("max_duration: 2s\n");
    let path = server.file("task.dstack.yml", &text)?;
    server.ok(&["apply", "-f", &path, "-y", "-d"])?;
    let run = server.finished("limited", PATIENCE)?;
    let submission = &run["jobs"][0]["job_submissions"][0];
    ensure!(
        submission["termination_reason"] == "max_duration_exceeded",
        "{submission}"
    );
    Ok(())
}

#[test]
fn a_process_task_has_files_environment_and_a_limit() -> Result<()> {
    limits_and_files(Runtime::Process)
}

#[test]
fn a_container_task_has_files_environment_and_a_limit() -> Result<()> {
    limits_and_files(Runtime::Docker)
}

#[test]
fn an_idle_machine_is_used_again_and_goes_with_its_fleet() -> Result<()> {
    let server = server(Runtime::Process)?;
    for name in ["first", "second"] {
        let path = server.file(
            "task.dstack.yml",
            &task(name, Runtime::Process, &["echo $PPID"]),
        )?;
        server.ok(&["apply", "-f", &path, "-y"])?;
    }
    let (_, fleets) = server.post("/api/project/main/fleets/list", &serde_json::json!({}))?;
    let instances = fleets[0]["instances"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    ensure!(
        instances.len() == 1,
        "one machine for both runs, not {fleets}"
    );
    ensure!(instances[0]["status"] == "idle", "{fleets}");
    ensure!(
        !server.processes()?.is_empty(),
        "the shim of the idle machine runs"
    );
    server.ok(&["fleet", "delete", "pool", "-y"])?;
    wait_for("the end of the shim", PATIENCE, || {
        Ok(server.processes()?.is_empty().then_some(()))
    })?;
    ensure!(server.ok(&["fleet"])?.lines().count() <= 1);
    Ok(())
}
