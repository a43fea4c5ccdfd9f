//! The wire types read and write the recorded samples unchanged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, helpers too")]

use std::path::PathBuf;

use dstack_agent_protocol::runner::{Metrics, PullResponse, RunResponse, SubmitRequest};
use dstack_agent_protocol::shim::{
    ComponentList, HostInfo, InstallRequest, InstanceHealth, InstanceInfo, NetworkMode,
    ShutdownRequest, TaskConfig, TaskInfo, TaskList, TaskStatus, TerminateRequest,
};
use dstack_agent_protocol::{Healthcheck, RUNNER_SERVICE, SHIM_SERVICE, Secret};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn sample(name: &str) -> Value {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let path = root
        .join("../../tests/contract/agents")
        .join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Reads the part at `pointer` as `T` and requires that writing it gives the same JSON.
fn round_trip<T: Serialize + DeserializeOwned>(name: &str, pointer: &str) -> T {
    let sample = sample(name);
    let wire = sample
        .pointer(pointer)
        .unwrap_or_else(|| panic!("{name}{pointer} is missing"));
    let value: T = serde_json::from_value(wire.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(
        &serde_json::to_value(&value).unwrap(),
        wire,
        "{name}{pointer}"
    );
    value
}

#[test]
fn shim_samples_round_trip() {
    let health: Healthcheck = round_trip("shim-healthcheck", "/response/json");
    assert_eq!(health.service, SHIM_SERVICE);
    round_trip::<TaskList>("shim-task-list", "/response/json");
    for name in [
        "shim-task-info-pulling",
        "shim-task-info-running-bridge",
        "shim-task-info-running-host",
        "shim-task-info-terminated",
        "shim-task-terminate",
    ] {
        round_trip::<TaskInfo>(name, "/response/json");
    }
    let whole: TaskConfig = round_trip("shim-task-submit-whole-instance", "/request/json");
    assert_eq!((whole.gpu, whole.network_mode), (-1, NetworkMode::Host));
    let block: TaskConfig = round_trip("shim-task-submit-block", "/request/json");
    assert_eq!(block.network_mode, NetworkMode::Bridge);
    assert_eq!(block.volumes[0].volume_id, "vol-0a1b2c3d4e5f60718");
    round_trip::<TerminateRequest>("shim-task-terminate", "/request/json");
    round_trip::<ShutdownRequest>("shim-shutdown", "/request/json");
    round_trip::<InstallRequest>("shim-component-install", "/request/json");
    round_trip::<ComponentList>("shim-components", "/response/json");
    round_trip::<InstanceHealth>("shim-instance-health-none", "/response/json");
    round_trip::<InstanceHealth>("shim-instance-health-dcgm", "/response/json");
    round_trip::<InstanceInfo>("shim-instance-info", "/response/json");
    round_trip::<InstanceInfo>("shim-instance-info", "/response_without_gpus/json");
    round_trip::<HostInfo>("shim-file-host_info", "/content");
}

#[test]
fn runner_samples_round_trip() {
    let health: Healthcheck = round_trip("runner-healthcheck", "/response/json");
    assert_eq!(health.service, RUNNER_SERVICE);
    round_trip::<SubmitRequest>("runner-submit", "/request/json");
    round_trip::<SubmitRequest>("runner-submit-remote-repo", "/request/json");
    round_trip::<RunResponse>("runner-run", "/response/json");
    round_trip::<Metrics>("runner-metrics", "/response/json");
    for pointer in [
        "/response/json",
        "/next_response/json",
        "/variant_max_duration",
        "/variant_exit_code",
    ] {
        round_trip::<PullResponse>("runner-pull", pointer);
    }
}

#[test]
fn null_and_unknown_fields_are_accepted() {
    let config: TaskConfig = serde_json::from_value(json!({
        "id": "i", "name": null, "gpu": null, "network_mode": "", "volumes": null, "new_field": {"a": 1}
    }))
    .unwrap();
    assert_eq!(
        config,
        TaskConfig {
            id: "i".into(),
            ..TaskConfig::default()
        }
    );
    let submit: SubmitRequest =
        serde_json::from_value(json!({"run": null, "job_spec": {"env": null, "commands": ["a"]}}))
            .unwrap();
    assert_eq!(submit.job_spec.commands, ["a"]);
    let terminate: TerminateRequest = serde_json::from_value(json!({"timeout": null})).unwrap();
    assert_eq!(terminate, TerminateRequest::default());
}

#[test]
fn secrets_are_not_in_debug_output() {
    let config = TaskConfig {
        registry_password: Secret::new("hunter2"),
        ..TaskConfig::default()
    };
    assert!(!format!("{config:?}").contains("hunter2"));
    assert_eq!(
        serde_json::to_value(&config).unwrap()["registry_password"],
        "hunter2"
    );
}

#[test]
fn every_pair_of_statuses_has_its_rule() {
    use TaskStatus::*;
    let allowed = [
        (Pending, Preparing),
        (Preparing, Pulling),
        (Pulling, Creating),
        (Creating, Running),
        (Running, Running),
    ];
    for from in TaskStatus::ALL {
        for to in TaskStatus::ALL {
            let expected = to == Terminated || allowed.contains(&(from, to));
            assert_eq!(from.can_become(to), expected, "{from} -> {to}");
        }
        assert_eq!(TaskStatus::parse(from.as_str()), Some(from));
        assert_eq!(serde_json::to_value(from).unwrap(), from.as_str());
    }
}
