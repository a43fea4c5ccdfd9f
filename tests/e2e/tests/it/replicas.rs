//! Servers that are killed while they work, one on SQLite, two on PostgreSQL: every run is executed once, and nothing is left.
//!
//! The short form is for every day. `DSTACK_TEST_CRASH_KILLS` makes it as long as wanted; each kill has a run.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::{Runtime, fleet, prepared, prepared_with};
use dstack_test_support::postgres::Cluster;
use dstack_test_support::server::{TestServer, wait_for};

use crate::crash::{end, marking_task, moments, nothing_left, ran_once};

/// For the end of one run after the last kill.
const PATIENCE: Duration = Duration::from_secs(150);

#[expect(clippy::disallowed_methods, reason = "tests have no settings")]
fn number(name: &str, usual: usize) -> Result<usize> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(usual),
    }
}

fn submit(server: &TestServer, name: &str) -> Result<()> {
    let path = marking_task(server, Runtime::Process, name)?;
    server.ok(&["apply", "-f", &path, "-y", "-d"]).map(drop)
}

/// What all servers have logged.
fn logs(servers: &[TestServer]) -> String {
    servers
        .iter()
        .map(TestServer::log)
        .collect::<Vec<_>>()
        .join("\n---- the other server\n")
}

/// Every run ended well, was executed once, and its output is there once.
fn all_once(servers: &[TestServer], names: &[String]) -> Result<()> {
    let server = &servers[0];
    for name in names {
        let run = server
            .finished(name, PATIENCE)
            .with_context(|| logs(servers))?;
        ensure!(
            run["status"] == "done",
            "{name}: {}\n{}",
            end(&run),
            logs(servers)
        );
        ran_once(server, name).with_context(|| logs(servers))?;
        let printed = server.ok(&["logs", name])?;
        let ends = printed.matches(&format!("end of {name}\n")).count();
        ensure!(ends == 1, "{name}: {printed:?}\n{}", logs(servers));
    }
    Ok(())
}

/// Kills the servers in turn, each time at another moment of a run, which was given to this server or to another one.
fn kill_at_work(servers: &mut [TestServer], kills: usize) -> Result<()> {
    let count = servers.len();
    for (kill, moment) in moments(u64::try_from(kills)?, 1500).enumerate() {
        let name = format!("killed{kill}");
        submit(&servers[kill % count], &name)?;
        std::thread::sleep(moment);
        let victim = &mut servers[kill / count % count];
        victim.kill()?;
        victim.spawn()?;
        all_once(servers, &[name])?;
    }
    Ok(())
}

#[test]
fn a_server_killed_at_work_ends_every_run_once() -> Result<()> {
    let kills = number("DSTACK_TEST_CRASH_KILLS", 8)?;
    let mut server = prepared(Runtime::Process)?;
    server.spawn()?;
    fleet(&server, 1)?;
    let mut servers = [server];
    kill_at_work(&mut servers, kills)?;
    nothing_left(&servers[0], Runtime::Process)
}

#[test]
fn two_servers_on_postgresql_share_the_work_and_survive_each_other() -> Result<()> {
    let kills = number("DSTACK_TEST_CRASH_KILLS", 2)?;
    let cluster = Cluster::start()?;
    let url = cluster.database()?;
    let env = [
        ("DSTACK_DATABASE_URL", url.as_str()),
        // Both are on this machine and share its folder, so its processes are in the reach of both.
        ("DSTACK_LOCAL_BACKEND_ENABLED", "1"),
    ];
    let mut first = prepared_with(Runtime::Process, &env)?;
    let second = first.replica(&env)?;
    let mut servers = [first, second];
    for server in &mut servers {
        server.spawn()?;
    }
    fleet(&servers[0], 1)?;

    // One is killed and stays away: the other ends what it had begun.
    let names = ["shared0".to_owned()];
    submit(&servers[1], &names[0])?;
    wait_for("the start of the run", PATIENCE, || {
        let run = servers[0].run(&names[0])?;
        Ok((run["status"] != "submitted").then_some(()))
    })?;
    servers[1].kill()?;
    all_once(&servers[..1], &names)?;
    servers[1].spawn()?;

    kill_at_work(&mut servers, kills)?;
    // What one server knows, the other one shows.
    for server in &servers {
        let run = server.run(&names[0])?;
        ensure!(run["status"] == "done", "{run}");
    }
    nothing_left(&servers[0], Runtime::Process)?;
    for server in &mut servers {
        server.stop()?;
    }
    Ok(())
}
