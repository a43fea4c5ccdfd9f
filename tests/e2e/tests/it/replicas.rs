//! Servers that are killed under load, one on SQLite, two on PostgreSQL: every run is executed once, and nothing is left.
//!
//! The short form is for every day. `DSTACK_TEST_CRASH_KILLS` and `DSTACK_TEST_CRASH_RUNS` make it as long as wanted.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::{Runtime, fleet, prepared, prepared_with};
use dstack_test_support::postgres::Cluster;
use dstack_test_support::server::{TestServer, wait_for};

use crate::crash::{end, marking_task, moments, nothing_left, ran_once};

/// Machines of the pool.
const MACHINES: u32 = 3;
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
    servers.iter().map(TestServer::log).collect::<Vec<_>>().join("\n---- the other server\n")
}

/// Every run ended well, was executed once, and its output is there once.
fn all_once(servers: &[TestServer], names: &[String]) -> Result<()> {
    let server = &servers[0];
    for name in names {
        let run = server.finished(name, PATIENCE).with_context(|| logs(servers))?;
        ensure!(run["status"] == "done", "{name}: {}\n{}", end(&run), logs(servers));
        ran_once(server, name).with_context(|| logs(servers))?;
        let printed = server.ok(&["logs", name])?;
        let ends = printed.matches(&format!("end of {name}\n")).count();
        ensure!(ends == 1, "{name}: {printed:?}\n{}", logs(servers));
    }
    Ok(())
}

/// Submits runs to all servers in turn, and kills one of them now and then.
fn kill_under_load(servers: &mut [TestServer], runs: usize, kills: usize) -> Result<()> {
    let began = Instant::now();
    let mut names = Vec::new();
    for (kill, moment) in moments(u64::try_from(kills)?, 1500).enumerate() {
        let upto = runs * (kill + 1) / kills;
        while names.len() < upto {
            let name = format!("load{}", names.len());
            submit(&servers[names.len() % servers.len()], &name)?;
            names.push(name);
        }
        std::thread::sleep(moment);
        let victim = &mut servers[kill % servers.len()];
        victim.kill()?;
        victim.spawn()?;
    }
    all_once(servers, &names)?;
    println!("{runs} runs, {kills} kills, {} servers: {:?}", servers.len(), began.elapsed());
    Ok(())
}

#[test]
fn a_server_killed_under_load_ends_every_run_once() -> Result<()> {
    let (runs, kills) = (
        number("DSTACK_TEST_CRASH_RUNS", 8)?,
        number("DSTACK_TEST_CRASH_KILLS", 8)?,
    );
    let mut server = prepared(Runtime::Process)?;
    server.spawn()?;
    fleet(&server, MACHINES)?;
    let mut servers = [server];
    kill_under_load(&mut servers, runs, kills)?;
    nothing_left(&servers[0], Runtime::Process)
}

#[test]
fn two_servers_on_postgresql_share_the_work_and_survive_each_other() -> Result<()> {
    let (runs, kills) = (
        number("DSTACK_TEST_CRASH_RUNS", 8)?,
        number("DSTACK_TEST_CRASH_KILLS", 8)?,
    );
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
    fleet(&servers[0], MACHINES)?;

    // One is killed and stays away: the other ends what it had begun.
    let names: Vec<String> = (0..6).map(|it| format!("shared{it}")).collect();
    for (number, name) in names.iter().enumerate() {
        submit(&servers[number % 2], name)?;
    }
    wait_for("the first run", PATIENCE, || {
        let run = servers[0].run(&names[0])?;
        Ok((run["status"] != "submitted").then_some(()))
    })?;
    servers[1].kill()?;
    all_once(&servers, &names)?;
    servers[1].spawn()?;

    kill_under_load(&mut servers, runs, kills)?;
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
