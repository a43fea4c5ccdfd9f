//! Runs on a real Slurm cluster, reached over a real SSH server: one node, two nodes, stopped, waiting in the queue.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::own_hosts::IMAGE;
use dstack_e2e::slurm_bed::SlurmBed;
use dstack_e2e::web::Web;
use dstack_test_support::server::{TestServer, bin_dir, wait_for};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);

/// A server that has the cluster as its only backend, and a fleet for runs there.
fn server(bed: &SlurmBed, more: &str) -> Result<TestServer> {
    let folder = bin_dir();
    let web = Web::start(&folder, None)?;
    let url = format!("http://{}:{}/dstack-runner", bed.outside(), web.port());
    let dir = folder.to_string_lossy().into_owned();
    let mut server = TestServer::prepare(&[
        ("DSTACK_LOCAL_BACKEND_ENABLED", "0"),
        ("DSTACK_PLUGIN_DIR", &dir),
        ("DSTACK_RUNNER_DOWNLOAD_URL", &url),
        ("DSTACK_SHIM_DOWNLOAD_URL", &url),
    ])?;
    let key = fs::read_to_string(bed.key())?;
    let indented: Vec<String> = key
        .lines()
        .map(|line| format!("          {line}\n"))
        .collect();
    let config = format!(
        "projects:\n- name: main\n  backends:\n  - type: slurm\n    clusters:\n    - name: hpc\n      hostname: {}\n      \
         user: researcher\n      private_key:\n        content: |\n{}      gpu_partitions:\n      - gpu: T4\n        \
         partitions: [gpu]\n      cpu_partitions: [cpu]\n{more}encryption:\n  keys: []\n",
        bed.login(),
        indented.concat()
    );
    fs::create_dir_all(server.home().join(".dstack/server"))?;
    fs::write(server.home().join(".dstack/server/config.yml"), config)?;
    server.spawn()?;
    let fleet = "type: fleet\nname: pool\nnodes: 0..4\nplacement: cluster\nbackends: [slurm]\n";
    let path = server.file("fleet.dstack.yml", fleet)?;
    server.ok(&["apply", "-f", &path, "-y", "-d"])?;
    Ok(server)
}

fn task(name: &str, more: &str, lines: &[&str]) -> String {
    let mut text = format!(
        "type: task\nname: {name}\nimage: {IMAGE}\nuser: root\n{more}resources:\n  cpu: x86:1..\n  memory: 100MB..\n  \
         disk: 1GB..\n  gpu: 0\ncommands:\n"
    );
    for line in lines {
        text.push_str(&format!("- |\n  {line}\n"));
    }
    text
}

fn apply(server: &TestServer, name: &str, more: &str, lines: &[&str]) -> Result<()> {
    let path = server.file(&format!("{name}.dstack.yml"), &task(name, more, lines))?;
    server.ok(&["apply", "-f", &path, "-y", "-d"]).map(drop)
}

/// Waits until the cluster has no job of a server.
fn queue_is_empty(bed: &SlurmBed) -> Result<()> {
    wait_for("an empty queue", PATIENCE, || {
        let queue = bed.shell("squeue -h -o %j")?;
        Ok((!queue.contains("dstack-")).then_some(()))
    })
}

#[test]
fn one_node_and_two_nodes_run_and_a_stop_cancels() -> Result<()> {
    let bed = SlurmBed::start()?;
    let server = server(&bed, "")?;
    life(&bed, &server)
        .with_context(|| server.log())
        .with_context(|| bed.logs())
}

fn life(bed: &SlurmBed, server: &TestServer) -> Result<()> {
    one_node(bed, server)?;
    two_nodes(bed, server)?;
    stopped(bed, server)
}

fn one_node(bed: &SlurmBed, server: &TestServer) -> Result<()> {
    apply(server, "one", "", &["echo job $SLURM_JOB_ID of $(id -un)"])?;
    let run = server.finished("one", PATIENCE)?;
    let log = server.ok(&["logs", "one"])?;
    ensure!(run["status"] == "done", "{run}\n{log}");
    ensure!(log.contains("of root"), "{log}");
    let data = &run["jobs"][0]["job_submissions"][0]["job_provisioning_data"];
    ensure!(
        data["backend"] == "slurm" && data["region"] == "hpc",
        "{data}"
    );
    ensure!(data["ssh_proxy"]["hostname"] == bed.login(), "{data}");
    ensure!(data["availability_zone"] == "cpu", "{data}");
    let id = data["instance_id"].as_str().unwrap_or_default();
    ensure!(id.starts_with("dstack-main-one-0-0-r"), "{id}");
    queue_is_empty(bed)?;
    let started = bed.shell("cat /var/log/srun.log")?;
    for words in [
        format!("--container-image={IMAGE}"),
        "--container-remap-root --container-writable --no-container-mount-home".to_owned(),
        "--container-env=NVIDIA_VISIBLE_DEVICES".to_owned(),
    ] {
        ensure!(started.contains(&words), "{words}: {started}");
    }
    let keys = bed.shell("cat /home/researcher/.ssh/authorized_keys")?;
    let added: Vec<&str> = keys
        .lines()
        .filter(|line| line.ends_with("# added by dstack"))
        .collect();
    ensure!(
        !added.is_empty()
            && added
                .iter()
                .all(|line| line.contains("command=\"/bin/false\"")),
        "{keys}"
    );
    Ok(())
}

/// The nodes reach each other, and each has its log.
fn two_nodes(bed: &SlurmBed, server: &TestServer) -> Result<()> {
    let lines = [
        "for ip in $DSTACK_NODES_IPS; do until ssh $ip touch /tmp/seen.$DSTACK_NODE_RANK; do sleep 0.2; done; done",
        "while [ ! -e /tmp/seen.0 ] || [ ! -e /tmp/seen.1 ]; do sleep 0.1; done",
        "echo node $DSTACK_NODE_RANK of $DSTACK_NODES_NUM with $DSTACK_NODES_IPS",
    ];
    apply(server, "two", "nodes: 2\n", &lines)?;
    let run = server.finished("two", PATIENCE)?;
    let logs: Vec<String> = ["0", "1"]
        .iter()
        .map(|job| server.ok(&["logs", "two", "--job", job]))
        .collect::<Result<_>>()?;
    ensure!(run["status"] == "done", "{run}\n{logs:?}");
    for (rank, log) in logs.iter().enumerate() {
        ensure!(log.contains(&format!("node {rank} of 2")), "{log}");
        ensure!(
            log.contains(&bed.node(1)) && log.contains(&bed.node(2)),
            "{log}"
        );
    }
    queue_is_empty(bed)
}

fn stopped(bed: &SlurmBed, server: &TestServer) -> Result<()> {
    apply(server, "long", "", &["echo begun; sleep 1000"])?;
    wait_for("the task to run", PATIENCE, || {
        let run = server.run("long")?;
        ensure!(run["status"] != "failed", "{run}");
        let log = server.ok(&["logs", "long"]).unwrap_or_default();
        Ok(log.contains("begun").then_some(()))
    })?;
    let queue = bed.shell("squeue -h -o %j")?;
    ensure!(queue.contains("dstack-main-long-0-0-r"), "{queue}");
    server.ok(&["stop", "long", "-y"])?;
    let run = server.finished("long", PATIENCE)?;
    ensure!(run["status"] == "terminated", "{run}");
    queue_is_empty(bed)
}

#[test]
fn a_job_that_waits_in_the_queue_shows_the_reason() -> Result<()> {
    let bed = SlurmBed::start()?;
    let server = server(&bed, "      queue_wait_seconds: 3\n")?;
    waits(&bed, &server)
        .with_context(|| server.log())
        .with_context(|| bed.logs())
}

fn waits(bed: &SlurmBed, server: &TestServer) -> Result<()> {
    bed.researcher("cd; sbatch -p cpu -N 2 --exclusive -o /dev/null --wrap \"sleep 1000\"")?;
    wait_for("the other job", PATIENCE, || {
        let queue = bed.shell("squeue -h -t RUNNING -o %i")?;
        Ok((!queue.trim().is_empty()).then_some(()))
    })?;
    apply(server, "late", "", &["true"])?;
    let run = server.finished("late", PATIENCE)?;
    ensure!(run["status"] == "failed", "{run}");
    let text = run.to_string();
    ensure!(
        text.contains("is PENDING in partition cpu: Resources"),
        "the reason is nowhere: {text}"
    );
    let shown = server.ok(&["ps", "-a", "-v"])?;
    ensure!(
        shown.contains("no offers") || shown.contains("no capacity"),
        "{shown}"
    );
    queue_is_empty(bed)?;
    offers(server)
}

/// Slices of nodes, by partition.
fn offers(server: &TestServer) -> Result<()> {
    let listed: Value = serde_json::from_str(&server.ok(&["offer", "--json"])?)?;
    let names: Vec<&str> = listed["offers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|offer| offer["instance"]["name"].as_str())
        .collect();
    ensure!(
        names.iter().any(|name| name.contains("T4"))
            && names.iter().any(|name| name.starts_with("2cpu")),
        "{listed}"
    );
    Ok(())
}
