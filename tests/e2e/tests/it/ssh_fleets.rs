//! SSH fleets on two real hosts: added, used by a task of two nodes, lost for a while, removed without a trace; and
//! every error that a host can show, in the words that people read.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::own_hosts::{IMAGE, OwnHosts};
use dstack_test_support::server::{TestServer, wait_for};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

fn server() -> Result<TestServer> {
    TestServer::start(&[("DSTACK_LOCAL_BACKEND_ENABLED", "0")])
}

/// A fleet of these hosts; `more` are further lines of its top level.
fn fleet(server: &TestServer, name: &str, hosts: &str, more: &str) -> Result<String> {
    let text = format!("type: fleet\nname: {name}\n{more}ssh_config:\n{hosts}");
    server.file(&format!("{name}.dstack.yml"), &text)
}

fn instances(server: &TestServer, fleet: &str) -> Result<Vec<Value>> {
    let (status, fleet) = server.post("/api/project/main/fleets/get", &json!({ "name": fleet }))?;
    ensure!(status == 200, "{fleet}");
    Ok(fleet["instances"].as_array().cloned().unwrap_or_default())
}

fn task(name: &str, more: &str, lines: &[&str]) -> String {
    let mut text = format!(
        "type: task\nname: {name}\nimage: {IMAGE}\nuser: root\n{more}resources:\n  cpu: x86:1..\n  memory: 100MB..\n  \
         disk: 1GB..\ncommands:\n"
    );
    for line in lines {
        text.push_str(&format!("- |\n  {line}\n"));
    }
    text
}

#[test]
fn two_hosts_are_added_used_by_two_nodes_and_left_without_a_trace() -> Result<()> {
    let (hosts, server) = (OwnHosts::start(true)?, server()?);
    let outcome = whole_life(&hosts, &server);
    outcome.with_context(|| hosts.logs())
}

fn whole_life(hosts: &OwnHosts, server: &TestServer) -> Result<()> {
    let (one, two) = (hosts.address(1), hosts.address(2));
    let config = |list: &str| {
        format!(
            "  user: root\n  identity_file: {}\n  network: {}\n  hosts: [{list}]\n",
            hosts.key(),
            hosts.private_network()
        )
    };
    let more = "placement: cluster\nenv: [COLOUR=blue]\n";
    let keys = fs::read_to_string(hosts.file(1, "root/.ssh/authorized_keys"))?;

    // One host, then a second one by an update; the first stays what it is.
    let path = fleet(server, "own", &config(&one), more)?;
    server.ok(&["apply", "-f", &path, "-y"])?;
    let first = instances(server, "own")?;
    ensure!(
        first.len() == 1 && first[0]["status"] == "idle",
        "{first:?}"
    );
    ensure!(
        first[0]["hostname"] == *one && first[0]["backend"] == "remote",
        "{first:?}"
    );
    let both = format!("{one}, {two}");
    let path = fleet(server, "own", &config(&both), more)?;
    server.ok(&["apply", "-f", &path, "-y"])?;
    let all = instances(server, "own")?;
    ensure!(all.len() == 2 && all[0]["id"] == first[0]["id"], "{all:?}");
    ensure!(
        all.iter().all(|instance| instance["status"] == "idle"),
        "{all:?}"
    );
    let out = server.ok(&["apply", "-f", &path, "-y"])?;
    ensure!(out.contains("nothing changed"), "{out}");
    let shown = server.ok(&["fleet", "get", "own", "--json"])?;
    ensure!(!shown.contains("PRIVATE KEY"), "{shown}");
    for file in [
        ".dstack/server/data/sqlite.db",
        ".dstack/server/data/sqlite.db-wal",
        "server.log",
    ] {
        let content = fs::read(server.home().join(file)).unwrap_or_default();
        let content = String::from_utf8_lossy(&content).into_owned();
        ensure!(
            !content.contains("PRIVATE KEY"),
            "a private key lies open in {file}"
        );
    }

    // The nodes reach each other by SSH and by the master's address, in the private network.
    let lines = [
        "test \"$COLOUR\" = blue",
        "for ip in $DSTACK_NODES_IPS; do until ssh $ip touch /tmp/seen.$DSTACK_NODE_RANK; do sleep 0.2; done; done",
        "while [ ! -e /tmp/seen.0 ] || [ ! -e /tmp/seen.1 ]; do sleep 0.1; done",
        "echo node $DSTACK_NODE_RANK of $DSTACK_NODES_NUM, master $DSTACK_MASTER_NODE_IP",
    ];
    let path = server.file("nodes.dstack.yml", &task("nodes", "nodes: 2\n", &lines))?;
    server.ok(&["apply", "-f", &path, "-y", "-d"])?;
    let run = server.finished("nodes", PATIENCE)?;
    let log = server.ok(&["logs", "nodes"])?;
    ensure!(run["status"] == "done", "{run}\n{log}\n{}", server.log());
    let master = hosts.private_network().replace("0/24", "");
    ensure!(
        log.contains("node 0 of 2") && log.contains(&format!("master {master}")),
        "{log}"
    );

    // A folder of the host in the job.
    let mount = "volumes: [\"/root/shared:/shared\"]\n";
    let path = server.file(
        "mount.dstack.yml",
        &task("mount", mount, &["echo kept > /shared/file"]),
    )?;
    let out = server.ok(&["apply", "-f", &path, "-y"])?;
    let kept =
        |number| fs::read_to_string(hosts.file(number, "root/shared/file")).unwrap_or_default();
    ensure!(
        kept(1).trim() == "kept" || kept(2).trim() == "kept",
        "{out}"
    );

    // A host that booted: nothing of ours runs there until the server looks.
    hosts.lose_shim(1)?;
    wait_for("the shim of the booted host", PATIENCE, || {
        let back = hosts.processes(1)?;
        Ok(back
            .iter()
            .any(|(_, line)| line.contains("bin/dstack-shim"))
            .then_some(()))
    })?;

    // Gone by an update, and with the fleet: nothing of ours is left, the keys are as they were.
    let path = fleet(server, "own", &config(&one), more)?;
    server.ok(&["apply", "-f", &path, "-y"])?;
    wait_for("the end of the second host", PATIENCE, || {
        Ok((instances(server, "own")?.len() == 1).then_some(()))
    })?;
    ensure!(hosts.traces(2)?.is_empty(), "{:?}", hosts.traces(2)?);
    server.ok(&["fleet", "delete", "own", "-y"])?;
    ensure!(
        hosts.traces(1)?.is_empty(),
        "{:?}\n{}",
        hosts.traces(1)?,
        server.log()
    );
    let left = fs::read_to_string(hosts.file(1, "root/.ssh/authorized_keys"))?;
    ensure!(left.trim_end() == keys.trim_end(), "{left}");
    Ok(())
}

#[test]
fn what_is_wrong_with_a_host_is_said_with_the_remedy() -> Result<()> {
    let (hosts, server) = (OwnHosts::start(false)?, server()?);
    let (one, two, nobody) = (hosts.address(1), hosts.address(2), hosts.nobody());
    let (key, strange) = (hosts.key(), hosts.strange_key());
    let single = |name: &str, user: &str, key: &str, host: &str, more: &str| {
        let config = format!("  user: {user}\n  identity_file: {key}\n  hosts: [{host}]\n{more}");
        fleet(&server, name, &config, "")
    };
    // All at once: each waits a while for help that does not come.
    let cases = [
        (
            "stranger",
            single("stranger", "root", &strange, &two, "")?,
            "refuses the key",
        ),
        (
            "walker",
            single("walker", "walker", &key, &one, "")?,
            "sudo",
        ),
        (
            "engine",
            single("engine", "root", &key, &hosts.other_address(2), "")?,
            "no Docker",
        ),
    ];
    for (_, path, _) in &cases {
        server.ok(&["apply", "-f", path, "-y", "-d"])?;
    }
    // A host belongs to one fleet of the whole server.
    let taken = single("second", "root", &key, &one, "")?;
    let out = server.cli(&["apply", "-f", &taken, "-y", "-d"])?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(
        !out.status.success() && text.contains("already assigned to a fleet"),
        "{text}"
    );
    let unreachable = single("nobody", "root", &key, &nobody, "")?;
    server.ok(&["apply", "-f", &unreachable, "-y", "-d"])?;

    for (name, _, words) in &cases {
        let ended = wait_for(&format!("the end of {name}"), PATIENCE, || {
            let instance = instances(&server, name)?.pop().unwrap_or_default();
            Ok((instance["status"] == "terminated").then_some(instance))
        })?;
        ensure!(ended["termination_reason"] == "error", "{ended}");
        let why = ended["termination_reason_message"].to_string();
        ensure!(why.contains(words), "{name}: {why}");
        let advises = why.contains("DSTACK_SHIM_RUNTIME=process");
        ensure!(advises == (*name == "engine"), "{name}: {why}");
        let table = server.ok(&["fleet", "list", "-v"])?;
        ensure!(table.contains(words), "{table}");
    }
    // Nothing is left on hosts that cannot be used; one that is not there is tried again, and the reason shown.
    ensure!(hosts.traces(1)?.is_empty() && hosts.traces(2)?.is_empty());
    wait_for("the reason of the host that is not there", PATIENCE, || {
        let instance = instances(&server, "nobody")?.pop().unwrap_or_default();
        let why = instance["termination_reason_message"].to_string();
        Ok((instance["status"] == "pending" && why.contains("cannot reach")).then_some(()))
    })?;
    let (_, events) = server.post("/api/events/list", &json!({}))?;
    let events = events.to_string();
    ensure!(
        events.contains("refuses the key") && events.contains("cannot reach"),
        "{events}"
    );
    for name in ["stranger", "walker", "engine", "nobody"] {
        server.ok(&["fleet", "delete", name, "-y"])?;
    }

    without_containers(&hosts, &server).with_context(|| hosts.logs())
}

/// The advice is followed: hosts without Docker; one is behind the other, split in blocks and cut off for a while.
fn without_containers(hosts: &OwnHosts, server: &TestServer) -> Result<()> {
    let config = format!(
        "  user: root\n  identity_file: {key}\n  hosts:\n  - hostname: {one}\n  - hostname: {inner}\n    blocks: 1\n    \
         proxy_jump: {{hostname: {one}, user: walker, identity_file: {key}}}\n",
        key = hosts.key(),
        one = hosts.address(1),
        inner = hosts.private_network().replace("0/24", "3"),
    );
    let path = fleet(
        server,
        "bare",
        &config,
        "blocks: auto\nenv: [DSTACK_SHIM_RUNTIME=process]\n",
    )?;
    server.ok(&["apply", "-f", &path, "-y"])?;
    let all = instances(server, "bare")?;
    ensure!(
        all.iter().all(|instance| instance["status"] == "idle"),
        "{all:?}"
    );
    ensure!(
        all[0]["total_blocks"] == all[0]["instance_type"]["resources"]["cpus"],
        "{all:?}"
    );
    let path = server.file(
        "bare.yml",
        &task("bare", "", &["echo hello from $DSTACK_RUN_NAME"]),
    )?;
    let out = server.ok(&["apply", "-f", &path, "-y"])?;
    ensure!(out.contains("hello from bare"), "{out}");

    hosts.cable(1, false)?;
    let flag = |wanted: bool| {
        wait_for(&format!("unreachable = {wanted}"), PATIENCE, || {
            let all = instances(server, "bare")?;
            Ok((all[0]["unreachable"] == wanted).then_some(()))
        })
    };
    flag(true)?;
    hosts.cable(1, true)?;
    flag(false)?;
    server.ok(&["fleet", "delete", "bare", "-y"])?;
    ensure!(hosts.traces(1)?.is_empty() && hosts.traces(2)?.is_empty());
    Ok(())
}
