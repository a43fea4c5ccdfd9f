//! The promise over years: what was built for 1.0 works with today's other side, and the reverse with what comes later.

use std::path::{Path, PathBuf};
use std::process::Command;

use dstack_backend_types::methods::{
    CreateInstanceReply, CreateInstanceRequest, GetOffersReply, HealthReply, Method,
    VALIDATE_CONFIG,
};
use dstack_backend_types::{BackendError, ErrorKind, InstanceAvailability};
use serde_json::{Value, json};

use crate::built::plugins;
use dstack_backend_abi::{HostServices, RResult, RSlice, RStr, RVec, Reply};
use dstack_backend_types::services as wire;

extern "C" fn log(_: *const (), _: u64, _: u32, _: RStr<'_>, _: RStr<'_>, _: RStr<'_>) {}

extern "C" fn request(_: *const (), _: u64, service: u32, _: RSlice<'_, u8>) -> Reply {
    let bytes = match service {
        wire::DESCRIBE => serde_json::to_vec(&wire::Described {
            host_version: "today".to_owned(),
            log_level: 3,
            services: [(wire::SLEEP.to_string(), 1)].into_iter().collect(),
            agents: None,
        }),
        wire::NOW => serde_json::to_vec(&wire::Now { unix_micros: 1 }),
        _ => {
            let error = BackendError::unsupported("no such service");
            return RResult::RErr(RVec::from(serde_json::to_vec(&error).unwrap_or_default()));
        }
    };
    RResult::ROk(RVec::from(bytes.unwrap_or_default()))
}

fn services() -> HostServices {
    HostServices {
        context: std::ptr::null(),
        log,
        request,
    }
}

/// Builds the frozen workspace; its plugin and its host.
fn frozen() -> (PathBuf, PathBuf) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.join("../../tests/frozen/1.0");
    // The target folder that this test was built in, but another one below it: another workspace, other features.
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap().join("frozen");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--locked"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .unwrap();
    assert!(
        status.success(),
        "the frozen copy does not build: it is never edited"
    );
    let debug = target.join("debug");
    (debug.join("libfrozen_plugin.so"), debug.join("frozen-host"))
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> T {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

#[test]
fn a_plugin_of_1_0_works_with_todays_host() {
    let (plugin, _) = frozen();
    let inspected = dstack_backend_loader::inspect(&plugin).unwrap();
    assert_eq!(inspected.manifest.name, "frozen");
    assert!(inspected.manifest.has("create_instance") && !inspected.manifest.has("volumes"));
    let plugin = inspected.open(services()).unwrap();
    let config = json!({"type": "frozen", "token": "t", "unknown_to_it": [1]}).to_string();
    let backend = plugin.open_backend(config.as_bytes()).unwrap();
    let call =
        |method: u32, request: &Value| backend.call(method, 1, request.to_string().as_bytes());

    let request = json!({"requirements": {"resources": {}}, "full_offers": false, "image": "later", "even_later": 1});
    let offers: GetOffersReply = read(&call(1, &request).unwrap());
    assert_eq!(
        offers.offers[0].availability,
        InstanceAvailability::Available
    );
    assert_eq!(
        offers.offers[0].blocks, 1,
        "a default for what it does not know"
    );

    let mut request = CreateInstanceRequest {
        offer: offers.offers[0].clone(),
        config: serde_json::from_value(json!({
            "project_name": "main", "instance_name": "i", "user": "me", "provider_ref": "0123456789abcdef",
        }))
        .unwrap(),
        placement_group: None,
    };
    let made: CreateInstanceReply =
        read(&call(CreateInstanceRequest::NUMBER, &json!(request)).unwrap());
    assert_eq!(made.provisioning_data.instance_id, "i-0123456789abcdef");
    assert!(
        made.provisioning_data.public_ip_enabled,
        "a default for what it does not know"
    );
    request.offer.region = "south".to_owned();
    let refused: BackendError =
        read(&call(CreateInstanceRequest::NUMBER, &json!(request)).unwrap_err());
    assert_eq!(refused.kind, ErrorKind::NoCapacity);

    let health: HealthReply = read(&call(6, &json!({})).unwrap());
    assert_eq!(
        health.message.unwrap(),
        "today true true 1",
        "it has asked today's services"
    );
    for method in [VALIDATE_CONFIG, 96, 4_000_000] {
        let unknown: BackendError = read(&call(method, &json!({})).unwrap_err());
        assert_eq!(unknown.kind, ErrorKind::Unsupported);
    }
}

#[test]
fn a_plugin_with_things_from_the_future_works_with_a_host_of_1_0_and_with_todays() {
    let (_, host) = frozen();
    let plugin = plugins(&["dstack-backend-future"]).remove(0);
    let output = Command::new(host).arg(&plugin).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let seen: Value = read(&output.stdout);
    assert_eq!(seen["manifest"]["name"], "future");
    assert_eq!(
        seen["offers"]["offers"][0]["availability"], "unknown",
        "a new word is unknown"
    );
    assert_eq!(seen["offers"]["offers"][0]["price"], 0.5);
    assert_eq!(
        seen["made"]["provisioning_data"]["instance_id"],
        "0123456789abcdef"
    );
    assert_eq!(
        seen["refused"]["kind"], "internal",
        "a new kind is internal"
    );
    assert_eq!(seen["refused"]["message"], "it goes on");
    assert_eq!(seen["unknown"]["kind"], "unsupported");
    assert_eq!(seen["health"]["message"], "1.0.0 Some(Unsupported)");

    let inspected = dstack_backend_loader::inspect(&plugin).unwrap();
    assert!(
        inspected.manifest.has("time_travel"),
        "unknown words are kept"
    );
    let opened = inspected.open(services()).unwrap();
    let backend = opened.open_backend(br#"{"token": "t"}"#).unwrap();
    let offers = backend
        .call(1, 1, br#"{"requirements": {"resources": {}}}"#)
        .unwrap();
    let offers: GetOffersReply = read(&offers);
    assert_eq!(offers.offers[0].availability, InstanceAvailability::Unknown);
    let refused = backend
        .call(3, 1, br#"{"instance_id": "i", "region": "r"}"#)
        .unwrap_err();
    assert_eq!(read::<BackendError>(&refused).kind, ErrorKind::Internal);
    assert_eq!(
        &*backend.call(400, 1, b"{}").unwrap(),
        b"{\"later_field\":{\"deep\":[null,1.5]},\"moved_h\":-3}"
    );
}
