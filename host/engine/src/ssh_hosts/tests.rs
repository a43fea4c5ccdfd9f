use serde_json::json;

use super::*;

fn fleet(configuration: serde_json::Value) -> FleetSpec {
    let mut whole = json!({"type": "fleet", "name": "f"});
    whole
        .as_object_mut()
        .unwrap()
        .extend(configuration.as_object().unwrap().clone());
    serde_json::from_value(json!({"configuration": whole, "profile": {"name": "default"}})).unwrap()
}

fn facts() -> HostFacts {
    HostFacts {
        arch: CpuArchitecture::X86,
        gpu_vendor: "nvidia".into(),
        gpu_name: "NVIDIA A100-SXM4-80GB".into(),
        gpu_memory_mib: 81_559,
        gpu_count: 8,
        gpu_driver: Some("550.1".into()),
        addresses: vec![
            "172.17.0.1/16".into(),
            "10.1.0.7/24".into(),
            "192.168.3.4/24".into(),
        ],
        disk_bytes: 100 << 30,
        cpus: 64,
        memory_bytes: 512 << 30,
        backend_data: Some("{}".into()),
    }
}

fn row(spec: &FleetSpec, host: &Host) -> InstanceRow {
    let (_, changes) = crate::new_fleet::create(
        crate::ids::ProjectId(uuid::Uuid::nil()),
        crate::ids::UserId(uuid::Uuid::nil()),
        "f",
        spec.clone(),
        Timestamp::UNIX_EPOCH,
        &mut Ids::from_number(1),
    );
    let found = changes
        .new_instances
        .into_iter()
        .find(|new| new.row.ssh_host.as_deref() == Some(&*host.identity()));
    found.unwrap().row
}

#[test]
fn hosts_take_from_the_fleet_what_they_do_not_say() {
    let spec = fleet(json!({"blocks": 2, "ssh_config": {
        "user": "common", "port": 2200, "identity_file": "k",
        "proxy_jump": {"hostname": "jump", "user": "j", "identity_file": "k"},
        "hosts": ["a", {"hostname": "b", "port": 22, "user": "own", "blocks": "auto", "internal_ip": "10.0.0.2"}]
    }}));
    let [a, b] = hosts(&spec).try_into().unwrap();
    assert_eq!(
        (a.identity().as_str(), a.user.as_str()),
        ("a:2200", "common")
    );
    assert_eq!(a.proxy.as_ref().unwrap().port, 22);
    assert_eq!(a.sharing, Sharing::Count(2));
    assert_eq!((b.identity().as_str(), b.user.as_str()), ("b:22", "own"));
    assert_eq!(
        (b.sharing, b.internal_ip.as_deref()),
        (Sharing::AUTO, Some("10.0.0.2"))
    );
}

#[test]
fn a_host_is_described_by_nominal_sizes() {
    let spec = fleet(
        json!({"ssh_config": {"user": "u", "identity_file": "k", "hosts": ["gpu-host"], "network": "10.1.0.9/24"}, "blocks": 4}),
    );
    let host = hosts(&spec).remove(0);
    let (data, offer) = describe(&spec, &row(&spec, &host), &host, &facts()).unwrap();
    let gpus = &offer.instance.resources.gpus;
    assert_eq!(
        (gpus.len(), gpus[0].name.as_str(), gpus[0].memory_mib),
        (8, "A100", 81_920)
    );
    assert_eq!((offer.total_blocks, offer.price), (4, 0.0));
    assert_eq!(
        (data.internal_ip.as_deref(), data.ssh_port),
        (Some("10.1.0.7"), Some(22))
    );
    assert_eq!(data.gpu_driver.unwrap().version, "550.1");
    let mut odd = facts();
    odd.cpus = 63;
    let error = describe(&spec, &row(&spec, &host), &host, &odd).unwrap_err();
    assert!(error.contains("63 CPUs and 8 GPUs"), "{error}");
}

#[test]
fn a_host_outside_its_network_is_named_with_its_addresses() {
    let with = |more: serde_json::Value| {
        let mut ssh = json!({"user": "u", "identity_file": "k", "hosts": ["h"]});
        ssh.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let spec = fleet(json!({"ssh_config": ssh}));
        let host = hosts(&spec).remove(0);
        describe(&spec, &row(&spec, &host), &host, &facts()).map(|(data, _)| data.internal_ip)
    };
    assert_eq!(with(json!({})), Ok(Some("10.1.0.7".into())));
    assert_eq!(
        with(json!({"network": "192.168.3.0/24"})),
        Ok(Some("192.168.3.4".into()))
    );
    let error = with(json!({"network": "10.9.0.0/16"})).unwrap_err();
    assert!(
        error.contains("10.9.0.0/16") && error.contains("10.1.0.7"),
        "{error}"
    );
    let own = |ip| with(json!({"hosts": [{"hostname": "h", "internal_ip": ip}]}));
    assert_eq!(own("192.168.3.4"), Ok(Some("192.168.3.4".into())));
    assert!(own("10.0.0.1").is_err());
}

#[test]
fn networks_hold_addresses_by_their_bits() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert!(is_within(ip("10.1.2.3"), "10.0.0.0/8"));
    assert!(is_within(ip("10.1.2.3"), "0.0.0.0/0"));
    assert!(!is_within(ip("10.1.2.3"), "10.1.3.0/24"));
    assert!(!is_within(ip("fd00::1"), "10.0.0.0/8"));
    assert!(is_within(ip("fd00::1"), "fd00::/64"));
}
