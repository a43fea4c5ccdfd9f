//! Nothing is lost, doubled or orphaned when a process is killed at any moment.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dstack_e2e::{Runtime, fleet, prepared, task};
use dstack_test_support::server::{TestServer, wait_for};

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Numbers that look random and are the same in every run.
pub(crate) fn moments(count: u64, range_ms: u64) -> impl Iterator<Item = Duration> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Duration::from_millis(state % range_ms)
    })
}

/// A task that leaves one line in a file each time it really runs.
pub(crate) fn marking_task(server: &TestServer, runtime: Runtime, name: &str) -> Result<String> {
    let marks = server.home().join("marks");
    fs::create_dir_all(&marks)?;
    let folder = match runtime {
        Runtime::Process => marks.display().to_string(),
        Runtime::Docker => "/marks".to_owned(),
    };
    let line = format!("echo ran >> {folder}/{name}; sleep 0.3; echo end of {name}");
    let mut text = task(name, runtime, &[&line]);
    if runtime == Runtime::Docker {
        text.push_str(&format!("volumes:\n- {}:/marks\n", marks.display()));
    }
    server.file(&format!("{name}.dstack.yml"), &text)
}

/// How a run ended, in short.
pub(crate) fn end(run: &serde_json::Value) -> String {
    let last = &run["jobs"][0]["job_submissions"][0];
    format!(
        "{}: {} {} {}",
        run["status"],
        last["status"],
        last["termination_reason"],
        last["termination_reason_message"]
    )
}

pub(crate) fn ran_once(server: &TestServer, name: &str) -> Result<()> {
    let text = fs::read_to_string(server.home().join("marks").join(name)).unwrap_or_default();
    ensure!(
        text.lines().count() == 1,
        "{name} ran {} times\n{}",
        text.lines().count(),
        server.log()
    );
    Ok(())
}

pub(crate) fn nothing_left(server: &TestServer, runtime: Runtime) -> Result<()> {
    server.ok(&["fleet", "delete", "pool", "-y"])?;
    wait_for("the end of all processes", PATIENCE, || {
        Ok(server.processes()?.is_empty().then_some(()))
    })
    .with_context(|| format!("{:?}\n{}", server.processes(), server.log()))?;
    let (_, instances) = server.post(
        "/api/instances/list",
        &serde_json::json!({ "only_active": true }),
    )?;
    ensure!(
        instances.as_array().is_some_and(Vec::is_empty),
        "{instances}"
    );
    if runtime == Runtime::Docker {
        let label = "{{.ID}} {{.Label \"dstack.shim.home\"}}";
        let list = Command::new("docker")
            .args(["ps", "-a", "--format", label])
            .output()?;
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        let home = server.home().display().to_string();
        ensure!(!list.contains(&home), "containers are left:\n{list}");
    }
    Ok(())
}

fn kill_the_server(runtime: Runtime, range_ms: u64) -> Result<()> {
    let mut server = prepared(runtime)?;
    server.spawn()?;
    fleet(&server, 1)?;
    for (number, moment) in moments(20, range_ms).enumerate() {
        let name = format!("k{number}");
        let path = marking_task(&server, runtime, &name)?;
        server.ok(&["apply", "-f", &path, "-y", "-d"])?;
        std::thread::sleep(moment);
        server.kill()?;
        server.spawn()?;
        let run = server.finished(&name, PATIENCE)?;
        let log = server.log();
        ensure!(
            run["status"] == "done",
            "killed after {moment:?}: {}\n{log}",
            end(&run)
        );
        ran_once(&server, &name)?;
        let printed = server.ok(&["logs", &name])?;
        let last = printed.trim().lines().last().unwrap_or_default();
        ensure!(
            last == format!("end of {name}"),
            "killed after {moment:?}: {printed:?}"
        );
        ensure!(
            printed.matches("end of").count() == 1,
            "killed after {moment:?}: {printed:?}"
        );
    }
    nothing_left(&server, runtime)
}

#[test]
fn a_server_killed_at_twenty_moments_ends_every_process_run_once() -> Result<()> {
    kill_the_server(Runtime::Process, 900)
}

#[test]
fn a_server_killed_at_twenty_moments_ends_every_container_run_once() -> Result<()> {
    kill_the_server(Runtime::Docker, 2000)
}

fn kill_the_shim(runtime: Runtime, range_ms: u64) -> Result<()> {
    let mut server = prepared(runtime)?;
    server.spawn()?;
    fleet(&server, 1)?;
    for (number, moment) in moments(20, range_ms).enumerate() {
        let name = format!("s{number}");
        let path = marking_task(&server, runtime, &name)?;
        server.ok(&["apply", "-f", &path, "-y", "-d"])?;
        std::thread::sleep(moment);
        for (pid, line) in server.processes()? {
            // Its keeper, a shell, restarts it; runners and jobs live on.
            if line.contains("dstack-shim --shim-home") && !line.starts_with("/bin/sh") {
                Command::new("kill")
                    .args(["-9", &pid.to_string()])
                    .status()?;
            }
        }
        let run = server.finished(&name, PATIENCE)?;
        let log = server.log();
        ensure!(
            run["status"] == "done",
            "shim killed after {moment:?}: {}\n{log}",
            end(&run)
        );
        ran_once(&server, &name)?;
    }
    nothing_left(&server, runtime)
}

#[test]
fn a_shim_killed_at_twenty_moments_ends_every_process_run_once() -> Result<()> {
    kill_the_shim(Runtime::Process, 700)
}

#[test]
fn a_shim_killed_at_twenty_moments_ends_every_container_run_once() -> Result<()> {
    kill_the_shim(Runtime::Docker, 1500)
}
