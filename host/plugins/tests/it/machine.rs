//! What the service `machine` promises at the edges: long paths, tasks that run, orphans, a living Docker engine.

use crate::local::{Place, backend, kill, mentioning};
use crate::place::{all_offers, folder, instance_config, until};
use dstack_backend_types::methods::{
    CreateInstanceRequest, DeleteResourceGroupRequest, GetOffersRequest, ListResourceGroupsRequest,
};
use dstack_plugins::Machine;
use serde_json::json;
use std::{
    fs,
    io::{Read, Write},
    os::{fd::AsRawFd, unix::fs::PermissionsExt, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
};

/// Stands in for the runner. It leaves a process of a session of its own behind, as jobs may.
const RUNNER: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo dstack-runner version 0.22.5; exit; fi
while [ $# -gt 0 ]; do case $1 in
  --port-file) port_file=$2; shift ;;
  --task-dir) task_dir=$2; shift ;;
esac; shift; done
setsid sh -c 'while :; do sleep 0.1; done' "$task_dir/job" &
echo 1234 >$port_file.tmp
mv $port_file.tmp $port_file
while :; do sleep 0.1; done
"#;

fn process() -> [String; 2] {
    ["--runtime".to_owned(), "process".to_owned()]
}

fn ask(home: &Path, head: &str, body: &str) -> String {
    let folder = fs::File::open(home).unwrap();
    let path = format!("/proc/self/fd/{}/shim.sock", folder.as_raw_fd());
    let mut stream = UnixStream::connect(path).unwrap();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// A shim whose task runs, and has left the runner's session.
async fn with_task(place: &Place, name: &str) -> PathBuf {
    let runner = place.agents.path().join("dstack-runner");
    fs::remove_file(&runner).unwrap();
    fs::write(&runner, RUNNER).unwrap();
    fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).unwrap();
    place.machine.start_shim(name, &process()).await.unwrap();
    place.until_ready(name).await;
    let home = place.home(name);
    let task = json!({"id": "t-1", "name": "job-0-0", "image_name": "any:1"}).to_string();
    let reply = ask(&home, "POST /api/tasks", &task);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    until("the task runs", || {
        ask(&home, "GET /api/tasks/t-1", "").contains("\"running\"")
    })
    .await;
    let is_job = |(_, line): &(u32, String)| line.trim_end().ends_with("/job");
    until("its job runs", || mentioning(&home).iter().any(is_job)).await;
    home
}

async fn until_nothing_is_left(place: &Place, home: &Path) {
    let left = || mentioning(place.homes.path());
    until("no process is left", || left().is_empty()).await;
    assert!(!home.exists());
}

#[tokio::test]
async fn a_stopped_shim_takes_its_tasks_with_it() {
    let place = Place::new();
    let home = with_task(&place, "a").await;
    place.machine.stop_shim("a").await.unwrap();
    until_nothing_is_left(&place, &home).await;
}

#[tokio::test]
async fn tasks_of_a_shim_that_died_are_ended_too() {
    let place = Place::new();
    let home = with_task(&place, "a").await;
    let is_keeper_or_shim = |(_, line): &(u32, String)| {
        line.contains("dstack-shim-keeper") || line.contains("--shim-home")
    };
    for (pid, _) in mentioning(&home).into_iter().filter(is_keeper_or_shim) {
        kill(pid);
    }
    until("keeper and shim are gone", || {
        !mentioning(&home).iter().any(is_keeper_or_shim)
    })
    .await;
    assert!(!mentioning(&home).is_empty(), "the task goes on");
    // The agents were moved meanwhile, and nobody could end the task: better told than forgotten.
    let mut config = place.config.clone();
    config.agents.clear();
    let error = Machine::new(config).stop_shim("a").await.unwrap_err();
    assert!(error.message.contains("no dstack-shim"), "{error}");
    assert!(home.exists());
    place.machine.stop_shim("a").await.unwrap();
    until_nothing_is_left(&place, &home).await;
}

#[tokio::test]
async fn a_keeper_whose_home_was_deleted_ends_with_its_shim() {
    let place = Place::new();
    place.machine.start_shim("a", &process()).await.unwrap();
    place.until_ready("a").await;
    let home = place.home("a");
    fs::remove_dir_all(&home).unwrap();
    for (pid, line) in mentioning(&home) {
        if !line.contains("dstack-shim-keeper") {
            kill(pid);
        }
    }
    until_nothing_is_left(&place, &home).await;
}

#[tokio::test]
async fn a_home_with_a_long_path_works() {
    let place = Place::new();
    let name = "long-".repeat(30);
    place.machine.start_shim(&name, &process()).await.unwrap();
    place.until_ready(&name).await;
    let state = place.machine.stop_shim(&name).await.unwrap();
    assert!(state.socket.len() > 150 && !state.is_running);
    until_nothing_is_left(&place, &place.home(&name)).await;
}

#[tokio::test]
async fn an_orphan_is_listed_and_deleted() {
    let (place, folder) = (Place::new(), folder());
    let (_plugins, local) = backend(&place, folder.path()).await;
    let list = async |region: &str| {
        let request = ListResourceGroupsRequest {
            regions: vec![region.to_owned()],
        };
        let reply = local.call(&request).await.unwrap();
        assert!(reply.failures.is_empty());
        let mut groups = reply.groups;
        groups.sort_by(|a, b| a.provider_ref.cmp(&b.provider_ref));
        groups
    };
    fs::remove_dir(place.homes.path()).unwrap();
    assert!(list("local").await.is_empty());
    let name = "local-0123456789abcdef";
    place.machine.start_shim(name, &process()).await.unwrap();
    // A start that was cut short, and what is no instance's.
    fs::create_dir(place.home("local-half")).unwrap();
    fs::create_dir(place.home("elsewhere")).unwrap();
    fs::write(place.home("local-file"), "").unwrap();
    assert!(list("mars").await.is_empty());
    let groups = list("local").await;
    let refs: Vec<_> = groups
        .iter()
        .map(|group| group.provider_ref.as_str())
        .collect();
    assert_eq!(refs, ["0123456789abcdef", "half"]);
    let group = &groups[0];
    assert_eq!(
        (group.region.as_str(), group.primary_id.as_deref()),
        ("local", Some(name))
    );
    assert!(group.created_at_us.unwrap() > 0);
    for group in groups.iter().chain(&groups) {
        let group = group.clone();
        local
            .call(&DeleteResourceGroupRequest { group })
            .await
            .unwrap();
    }
    assert!(list("local").await.is_empty());
    until_nothing_is_left(&place, &place.home(name)).await;
    assert!(place.home("elsewhere").exists());
}

#[tokio::test]
async fn with_a_living_engine_the_image_settles_what_a_job_runs_in() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let image = Command::new(root.join("../../tests/support/images/small.sh")).output();
    let image = image.unwrap();
    let text = String::from_utf8_lossy(&image.stderr);
    assert!(
        image.status.success(),
        "this test needs a Docker engine: {text}"
    );

    let (mut place, folder) = (Place::new(), folder());
    place.config.docker_socket = PathBuf::from("/var/run/docker.sock");
    place.machine = Machine::new(place.config.clone());
    assert!(place.machine.facts("").await.unwrap().has_docker);
    let (_plugins, local) = backend(&place, folder.path()).await;
    for (image, runtime) in [
        (None, "docker"),
        (Some("dstack-test/small:1"), "docker"),
        // Nobody listens there.
        (Some("127.0.0.1:1/none:1"), "process"),
    ] {
        let request = GetOffersRequest {
            image: image.map(str::to_owned),
            ..all_offers()
        };
        let offers = local.get_offers(&request).await.unwrap();
        assert_eq!(offers[0].backend_data["runtime"], runtime, "{image:?}");
    }
    // The shim is not bound to the word of the first job's offer.
    let order = CreateInstanceRequest {
        offer: local.get_offers(&all_offers()).await.unwrap().remove(0),
        config: instance_config("00112233"),
        placement_group: None,
    };
    let data = local.create_instance(&order).await.unwrap();
    let shims = place.shims(&data.instance_id);
    assert!(shims[0].1.contains("--runtime auto"), "{shims:?}");
    place.machine.stop_shim(&data.instance_id).await.unwrap();
    until_nothing_is_left(&place, &place.home(&data.instance_id)).await;
}
