//! SSH fleets on two real hosts: added, used by a task of two nodes, lost for a while, removed without a trace; and
//! every error that a host can show, in the words that people read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::own_hosts::{IMAGE, OwnHosts};
use dstack_e2e::web::Web;
use dstack_test_support::server::{TestServer, wait_for};
use serde_json::{Value, json};

use crate::dev_environments;

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
    let hosts = OwnHosts::start(true)?;
    let folder = tempfile::tempdir()?;
    let web = dev_environments::mirror(folder.path())?;
    let mirror = format!("http://{}:{}", hosts.outside(), web.port());
    let env = [
        ("DSTACK_LOCAL_BACKEND_ENABLED", "0"),
        ("DSTACK_SERVER_IDE_MIRROR_URL", mirror.as_str()),
    ];
    let server = TestServer::start(&env)?;
    let outcome = whole_life(&hosts, &server, &web);
    outcome.with_context(|| hosts.logs())
}

/// The nodes reach each other by SSH and by the master's address, in the private network.
fn two_nodes(hosts: &OwnHosts, server: &TestServer) -> Result<()> {
    let lines = [
        "test \"$COLOUR\" = blue",
        "for ip in $DSTACK_NODES_IPS; do until ssh $ip touch /tmp/seen.$DSTACK_NODE_RANK; do sleep 0.2; done; done",
        "while [ ! -e /tmp/seen.0 ] || [ ! -e /tmp/seen.1 ]; do sleep 0.1; done",
        // A program of the first node answers at the master's address.
        "if [ $DSTACK_NODE_RANK = 0 ]; then mkdir /tmp/www && echo master here > /tmp/www/f && busybox httpd -p 7777 -h /tmp/www; fi",
        "until wget -qO /tmp/got http://$DSTACK_MASTER_NODE_IP:7777/f; do sleep 0.2; done; test \"$(cat /tmp/got)\" = 'master here'",
        "ssh $DSTACK_MASTER_NODE_IP touch /tmp/told.$DSTACK_NODE_RANK",
        "if [ $DSTACK_NODE_RANK = 0 ]; then while [ ! -e /tmp/told.1 ]; do sleep 0.1; done; fi",
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
    Ok(())
}

fn whole_life(hosts: &OwnHosts, server: &TestServer, web: &Web) -> Result<()> {
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

    two_nodes(hosts, server)?;

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

    dev_environments::whole_life(server, web)?;

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

/// One host says it has another processor, by the file that is returned; the other has a full disk for programs.
fn spoil(hosts: &OwnHosts) -> Result<PathBuf> {
    let uname = hosts.file(1, "bin/uname");
    fs::write(
        &uname,
        "#!/bin/sh\n[ \"$1\" = -m ] && exec echo aarch64\nexec /usr/bin/uname \"$@\"\n",
    )?;
    fs::set_permissions(&uname, PermissionsExt::from_mode(0o755))?;
    let small = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        "size=1m",
        "small",
        "/usr/local/bin",
    ];
    hosts.within(2, &small)?;
    Ok(uname)
}

#[test]
fn what_is_wrong_with_a_host_is_said_with_the_remedy() -> Result<()> {
    let (hosts, mut server) = (OwnHosts::start(false)?, server()?);
    let (one, two, nobody) = (hosts.address(1), hosts.address(2), hosts.nobody());
    let (key, strange) = (hosts.key(), hosts.strange_key());
    let single = |name: &str, user: &str, key: &str, host: &str, more: &str| {
        let config = format!("  user: {user}\n  identity_file: {key}\n  hosts: [{host}]\n{more}");
        fleet(&server, name, &config, "")
    };
    let bare = |name: &str, host: &str| {
        let config = format!("  user: root\n  identity_file: {key}\n  hosts: [{host}]\n");
        fleet(
            &server,
            name,
            &config,
            "env: [DSTACK_SHIM_RUNTIME=process]\n",
        )
    };
    let uname = spoil(&hosts)?;
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
        (
            "arm",
            bare("arm", &hosts.alias(1, 4))?,
            "there is no dstack-shim for arm64 on the server",
        ),
        (
            "full",
            bare("full", &hosts.alias(2, 4))?,
            "the disk is full",
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
    fs::remove_file(&uname)?;
    hosts.within(2, &["umount", "/usr/local/bin"])?;
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
    for name in ["stranger", "walker", "engine", "arm", "full", "nobody"] {
        server.ok(&["fleet", "delete", name, "-y"])?;
    }

    without_containers(&hosts, &mut server).with_context(|| hosts.logs())
}

/// How long the network stays away once that is noticed: `DSTACK_TEST_OUTAGE_SECONDS`, for the long form by hand.
#[expect(clippy::disallowed_methods, reason = "tests have no settings")]
fn outage() -> Duration {
    let seconds = std::env::var("DSTACK_TEST_OUTAGE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// The advice is followed: hosts without Docker; one is behind the other, split in blocks and cut off for a while.
fn without_containers(hosts: &OwnHosts, server: &mut TestServer) -> Result<()> {
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

    // A job goes on while the network is away, and nothing of its log is missing.
    let go = hosts.file(1, "go");
    let lines = [
        "i=0; while [ ! -e {go} ]; do i=$((i + 1)); echo line $i; sleep 0.5; done; echo said $i lines".replace("{go}", &go.display().to_string()),
    ];
    let path = server.file("away.yml", &task("away", "", &[&lines[0]]))?;
    server.ok(&["apply", "-f", &path, "-y", "-d"])?;
    wait_for("the first line", PATIENCE, || {
        Ok(server
            .ok(&["logs", "away"])?
            .contains("line 1\n")
            .then_some(()))
    })?;
    hosts.cable(1, false)?;
    let flag = |wanted: bool| {
        wait_for(&format!("unreachable = {wanted}"), PATIENCE, || {
            let all = instances(server, "bare")?;
            Ok((all[0]["unreachable"] == wanted).then_some(()))
        })
    };
    flag(true)?;
    std::thread::sleep(outage());
    hosts.cable(1, true)?;
    flag(false)?;
    fs::write(&go, "")?;
    let run = server.finished("away", PATIENCE)?;
    let log = server.ok(&["logs", "away"])?;
    if outage().as_secs() > 150 {
        // A job that nobody hears of for two minutes is given up; its host is not, and takes the next one.
        let reason = &run["latest_job_submission"]["termination_reason"];
        ensure!(
            run["status"] == "failed" && *reason == "instance_unreachable",
            "{run}"
        );
        let path = server.file("next.yml", &task("next", "", &["echo the next"]))?;
        let out = server.ok(&["apply", "-f", &path, "-y"])?;
        ensure!(out.contains("the next"), "{out}");
    } else {
        ensure!(run["status"] == "done", "{run}\n{log}");
        let said = log.lines().filter(|line| line.starts_with("line ")).count();
        ensure!(log.contains(&format!("said {said} lines")), "{log}");
    }

    // A server that is newer than the agents of its hosts replaces them.
    let shim = hosts.file(1, "bin/dstack-shim");
    fs::rename(&shim, hosts.file(1, "bin/old-shim"))?;
    fs::write(
        &shim,
        "#!/bin/sh\n[ \"$1\" = --build ] && exec echo 0.0.1\nexec /usr/local/bin/old-shim \"$@\"\n",
    )?;
    fs::set_permissions(&shim, PermissionsExt::from_mode(0o755))?;
    server.stop()?;
    server.spawn()?;
    wait_for("the newer agents", PATIENCE, || {
        Ok(fs::read(&shim)?.starts_with(b"\x7fELF").then_some(()))
    })?;
    fs::remove_file(hosts.file(1, "bin/old-shim"))?;
    let path = server.file("newer.yml", &task("newer", "", &["echo hello again"]))?;
    let out = server.ok(&["apply", "-f", &path, "-y"])?;
    ensure!(out.contains("hello again"), "{out}");
    server.ok(&["fleet", "delete", "bare", "-y"])?;
    ensure!(hosts.traces(1)?.is_empty() && hosts.traces(2)?.is_empty());
    Ok(())
}
