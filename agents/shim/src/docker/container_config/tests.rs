use clap::Parser;
use dstack_agent_protocol::shim::GpuDevice;
use serde_json::{Value, json};

use super::*;
use crate::args::Args;

fn sample() -> Value {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let path = root.join("../../tests/contract/agents/shim-docker-container-create.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn defaults() -> TaskDefaults {
    let mut defaults = TaskDefaults::new(&Args::parse_from([
        "dstack-shim",
        "--runner-log-level",
        "5",
    ]));
    defaults.env = vec![("http_proxy".into(), "http://proxy:3128".into())];
    defaults
}

fn config(network_mode: NetworkMode) -> TaskConfig {
    TaskConfig {
        id: "23a2c7a0-6c88-48ee-8028-b9ad9f6f5c24".into(),
        image_name: "dstack-test/small:1".into(),
        network_mode,
        container_ssh_keys: vec!["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL0Z user@laptop".into()],
        ..TaskConfig::default()
    }
}

fn body(config: &TaskConfig, vendor: Option<Vendor>, gpus: &[&str], root: &Path) -> Value {
    let gpus: Vec<String> = gpus.iter().map(|id| (*id).to_owned()).collect();
    let request = Request {
        config,
        defaults: &defaults(),
        home: Path::new("/root/.dstack"),
        runner_dir: "/root/.dstack/runners/my-run-0-0-1f3c9b7a/runner".into(),
        vendor,
        gpus: &gpus,
        has_display: true,
        root,
    };
    serde_json::to_value(request.body()).unwrap()
}

fn nowhere() -> &'static Path {
    Path::new("/nonexistent")
}

/// Everything but the shell command must equal the sample, and the command must end as the sample's does.
fn assert_matches(mut body: Value, mut wanted: Value) {
    let take = |value: &mut Value| value["Cmd"].take()[0].as_str().unwrap().to_owned();
    let (command, wanted_command) = (take(&mut body), take(&mut wanted));
    let wanted_end = wanted_command.split_once("> && ").unwrap().1;
    assert_eq!(command.split_once(" ) && ").unwrap().1, wanted_end);
    assert_eq!(body["Labels"][HOME_LABEL].take(), "/root/.dstack");
    body["Labels"].as_object_mut().unwrap().remove(HOME_LABEL);
    assert_eq!(body, wanted);
}

#[test]
fn host_and_bridge_containers_match_the_samples() {
    let host = body(&config(NetworkMode::Host), None, &[], nowhere());
    assert_matches(host, sample()["host_mode_cpu"].clone());
    let block = TaskConfig {
        cpu: 12.0,
        memory: 64 << 30,
        shm_size: 16 << 30,
        ..config(NetworkMode::Bridge)
    };
    assert_matches(
        body(&block, None, &[], nowhere()),
        sample()["bridge_mode_block"].clone(),
    );
}

#[test]
fn each_vendor_gets_its_settings_and_the_ids_can_be_read_back() {
    let nvidia = "GPU-2b79666e-d81f-f3f8-fd47-9903f118c3f5";
    for (vendor, gpus, key) in [
        (Vendor::Nvidia, vec![nvidia], "nvidia_host_config_additions"),
        (
            Vendor::Amd,
            vec!["/dev/dri/renderD128"],
            "amd_host_config_additions",
        ),
        (
            Vendor::Tenstorrent,
            vec!["0"],
            "tenstorrent_host_config_additions",
        ),
    ] {
        let body = body(&config(NetworkMode::Host), Some(vendor), &gpus, nowhere());
        for (field, value) in sample()[key].as_object().unwrap() {
            if field != "Mounts_if_present" {
                assert_eq!(&body["HostConfig"][field], value, "{vendor:?} {field}");
            }
        }
        let inspected: ContainerInspectResponse = serde_json::from_value(body).unwrap();
        assert_eq!(gpu_ids(&inspected, vendor), gpus);
    }
    let gaudi = body(
        &config(NetworkMode::Host),
        Some(Vendor::Intel),
        &["0", "1"],
        nowhere(),
    );
    for (field, value) in sample()["gaudi_additions"]["HostConfig"]
        .as_object()
        .unwrap()
    {
        assert_eq!(&gaudi["HostConfig"][field], value, "{field}");
    }
    assert_eq!(gaudi["Env"][1], "HABANA_VISIBLE_DEVICES=0,1");
    let inspected: ContainerInspectResponse =
        serde_json::from_value(json!({"HostConfig": {}, "Config": {"Env": gaudi["Env"]}})).unwrap();
    assert_eq!(gpu_ids(&inspected, Vendor::Intel), ["0", "1"]);
}

#[test]
fn a_given_device_list_replaces_the_vendors_settings() {
    let config = TaskConfig {
        gpu_devices: vec![GpuDevice {
            path_on_host: "/dev/nvidia0".into(),
            path_in_container: "/dev/nvidia0".into(),
        }],
        ..config(NetworkMode::Host)
    };
    let body = body(&config, Some(Vendor::Nvidia), &["GPU-1"], nowhere());
    assert_eq!(
        body["HostConfig"]["Devices"][0]["PathOnHost"],
        "/dev/nvidia0"
    );
    assert_eq!(body["HostConfig"]["DeviceRequests"], Value::Null);
}

#[test]
fn host_devices_are_handed_over_where_they_exist() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("dev/infiniband")).unwrap();
    std::fs::create_dir_all(root.path().join("dev/hugepages-1G")).unwrap();
    let body = body(
        &config(NetworkMode::Host),
        Some(Vendor::Tenstorrent),
        &["0"],
        root.path(),
    );
    let wanted = &sample()["infiniband_host_config_additions"];
    assert_eq!(body["HostConfig"]["Ulimits"], wanted["Ulimits"]);
    assert_eq!(body["HostConfig"]["Devices"][1], wanted["Devices"][0]);
    let hugepages = &sample()["tenstorrent_host_config_additions"]["Mounts_if_present"][0];
    assert_eq!(&body["HostConfig"]["Mounts"][2], hugepages);
}
