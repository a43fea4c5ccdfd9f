//! The local backend and the service `machine`, with the real shim: it is kept, found and ended, whoever dies in between.

use crate::built::programs;
use crate::place::{all_offers, folder, instance_config, put, until};
use dstack_backend_types::{
    ErrorKind, InstanceAvailability, JobProvisioningData, SshKey, methods::CreateInstanceRequest,
};
use dstack_plugins::{Backend, Machine, MachineConfig, Plugins, PluginsConfig, write_lock};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const NAMES: [&str; 2] = ["dstack-shim", "dstack-runner"];

pub(crate) struct Place {
    pub(crate) machine: Machine,
    pub(crate) config: MachineConfig,
    pub(crate) agents: TempDir,
    pub(crate) homes: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let (agents, homes) = (folder(), tempfile::tempdir().unwrap());
        for (program, name) in programs(&NAMES).iter().zip(NAMES) {
            fs::copy(program, agents.path().join(name)).unwrap();
        }
        let config = MachineConfig {
            shim_home: homes.path().to_owned(),
            agents: vec![agents.path().to_owned()],
            docker_socket: homes.path().join("no-docker.sock"),
        };
        Self {
            machine: Machine::new(config.clone()),
            config,
            agents,
            homes,
        }
    }

    pub(crate) fn home(&self, name: &str) -> PathBuf {
        self.homes.path().join(name)
    }

    /// The shims of a home, by number, with their command lines.
    pub(crate) fn shims(&self, name: &str) -> Vec<(u32, String)> {
        let lines = mentioning(&self.home(name)).into_iter();
        lines
            .filter(|(_, line)| {
                line.split(' ')
                    .next()
                    .is_some_and(|word| word.ends_with("/dstack-shim"))
            })
            .collect()
    }

    pub(crate) async fn until_ready(&self, name: &str) {
        let begun = std::time::Instant::now();
        while !self.machine.find_shim(name).await.unwrap().is_ready {
            let log = fs::read_to_string(self.home(name).join("keeper.log"));
            assert!(
                begun.elapsed().as_secs() < 20,
                "the shim does not come up: {log:?}"
            );
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed half way leaves no process behind.
        for (pid, _) in mentioning(self.homes.path()) {
            kill(pid);
        }
    }
}

/// Processes whose command line names the folder.
pub(crate) fn mentioning(folder: &Path) -> Vec<(u32, String)> {
    let wanted = folder.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    pids.filter(|pid| *pid != std::process::id())
        .filter_map(line)
        .filter(|(_, line)| line.contains(wanted))
        .collect()
}

pub(crate) fn kill(pid: u32) {
    Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
}

#[tokio::test]
async fn a_shim_is_started_once_found_by_others_and_ended() {
    let place = Place::new();
    let flags = ["--runtime".to_owned(), "process".to_owned()];
    let (one, two) = tokio::join!(
        place.machine.start_shim("a", &flags),
        place.machine.start_shim("a", &flags)
    );
    assert!(one.unwrap().is_running && two.unwrap().is_running);
    place.until_ready("a").await;
    // Another server of this machine finds it, and its start changes nothing.
    let other = Machine::new(place.config.clone());
    assert!(
        other
            .start_shim("a", &["--runtime".to_owned(), "process".to_owned()])
            .await
            .unwrap()
            .is_ready
    );
    let shims = place.shims("a");
    assert_eq!(shims.len(), 1, "{shims:?}");
    assert!(
        shims[0].1.contains("--runtime process") && shims[0].1.contains("--runner-binary-path"),
        "{shims:?}"
    );
    assert!(!place.machine.find_shim("b").await.unwrap().is_running);
    let state = other.stop_shim("a").await.unwrap();
    assert!(!state.is_running && !state.is_ready);
    assert!(!place.home("a").exists());
    until("no process is left", || {
        mentioning(place.homes.path()).is_empty()
    })
    .await;
    assert!(!place.machine.stop_shim("a").await.unwrap().is_running);
}

#[tokio::test]
async fn a_killed_shim_comes_back_by_its_keeper() {
    let place = Place::new();
    place
        .machine
        .start_shim("a", &["--runtime".to_owned(), "process".to_owned()])
        .await
        .unwrap();
    place.until_ready("a").await;
    let first = place.shims("a")[0].0;
    kill(first);
    until("it is started again", || {
        place
            .shims("a")
            .first()
            .is_some_and(|(pid, _)| *pid != first)
    })
    .await;
    place.until_ready("a").await;
    place.machine.stop_shim("a").await.unwrap();
    until("no process is left", || {
        mentioning(place.homes.path()).is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_shim_without_its_keeper_is_ended_too() {
    let place = Place::new();
    place
        .machine
        .start_shim("a", &["--runtime".to_owned(), "process".to_owned()])
        .await
        .unwrap();
    place.until_ready("a").await;
    let shims = place.shims("a");
    for (pid, _) in mentioning(place.homes.path())
        .into_iter()
        .filter(|process| *process != shims[0])
    {
        kill(pid);
    }
    until("the keeper is gone", || {
        mentioning(place.homes.path()) == shims
    })
    .await;
    // The kernel drops a dead process's lock a moment after its command line.
    for attempt in 0.. {
        if !place.machine.find_shim("a").await.unwrap().is_running {
            break;
        }
        assert!(attempt < 200, "the shim has no keeper any more");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    place.machine.stop_shim("a").await.unwrap();
    until("no process is left", || {
        mentioning(place.homes.path()).is_empty()
    })
    .await;
}

#[tokio::test]
async fn homes_outside_of_the_folder_are_refused() {
    let place = Place::new();
    assert_eq!(
        place
            .machine
            .start_shim("../b", &[])
            .await
            .unwrap_err()
            .kind,
        ErrorKind::Invalid
    );
}

pub(crate) async fn backend(place: &Place, folder: &Path) -> (Plugins, Backend) {
    put(folder, "dstack-backend-local", "local");
    write_lock(folder).unwrap();
    let mut config = PluginsConfig::new(vec![folder.to_owned()]);
    config.machine = Some(place.config.clone());
    let plugins = Plugins::load(config);
    let backend = plugins
        .open("local", &json!({"type": "local"}))
        .await
        .unwrap();
    (plugins, backend)
}

#[tokio::test]
async fn the_local_backend_offers_this_machine_and_runs_a_shim_on_it() {
    let (place, folder) = (Place::new(), folder());
    let (_plugins, local) = backend(&place, folder.path()).await;
    assert!(
        local
            .health()
            .await
            .unwrap()
            .message
            .unwrap()
            .contains("no Docker engine")
    );
    let offers = local.get_offers(&all_offers()).await.unwrap();
    assert_eq!(offers.len(), 1);
    let offer = &offers[0];
    assert_eq!(
        (
            offer.region.as_str(),
            offer.instance.name.as_str(),
            offer.price
        ),
        ("local", "local", 0.0)
    );
    assert_eq!(
        (offer.availability, &offer.backend_data["runtime"]),
        (InstanceAvailability::Available, &json!("process"))
    );
    assert!(
        offer.instance.resources.cpus > 0
            && offer.instance.resources.memory_mib > 256
            && offer.instance.resources.disk.size_mib > 0
    );
    let config = instance_config("0123456789abcdef");
    let order = CreateInstanceRequest {
        offer: offer.clone(),
        config,
        placement_group: None,
    };
    let first = local.create_instance(&order).await.unwrap();
    assert_eq!(
        (first.instance_id.as_str(), first.dockerized),
        ("local-0123456789abcdef", false)
    );
    let data: JobProvisioningData = local
        .update_provisioning_data(first.clone(), SshKey::public(""))
        .await
        .unwrap();
    place.until_ready(&data.instance_id).await;
    let data = local
        .update_provisioning_data(data, SshKey::public(""))
        .await
        .unwrap();
    assert_eq!(data.hostname.as_deref(), Some("127.0.0.1"));
    let notes: serde_json::Value =
        serde_json::from_str(data.backend_data.as_ref().unwrap()).unwrap();
    assert_eq!(notes["runtime"], "auto");
    assert_eq!(
        notes["socket"],
        place
            .home("local-0123456789abcdef")
            .join("shim.sock")
            .to_str()
            .unwrap()
    );
    // The same order again, as after a lost answer: the same shim.
    assert_eq!(
        local.create_instance(&order).await.unwrap().instance_id,
        data.instance_id
    );
    assert_eq!(place.shims(&data.instance_id).len(), 1);
    for _ in 0..2 {
        local
            .terminate_instance(
                &data.instance_id,
                &data.region,
                data.backend_data.as_deref(),
            )
            .await
            .unwrap();
    }
    until("no process is left", || {
        mentioning(place.homes.path()).is_empty()
    })
    .await;
    // What a reboot ended, or lost its keeper, comes back when somebody asks for it.
    let again = local
        .update_provisioning_data(data, SshKey::public(""))
        .await
        .unwrap();
    assert_eq!(again.hostname.as_deref(), Some("127.0.0.1"));
    assert_eq!(place.shims(&again.instance_id).len(), 1);
    local
        .terminate_instance(
            &again.instance_id,
            &again.region,
            again.backend_data.as_deref(),
        )
        .await
        .unwrap();
    until("no process is left", || {
        mentioning(place.homes.path()).is_empty()
    })
    .await;
}
