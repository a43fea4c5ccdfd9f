//! What a host would send.

use std::collections::BTreeMap;

use dstack_backend_types::{
    BackendType, GatewayComputeConfiguration, InstanceConfiguration, JobInfo, PlacementGroup,
    PlacementGroupConfiguration, PlacementStrategy, RegistryAuth, Requirements, ResourcesSpec,
    RunInfo, SshKey, Volume, VolumeConfiguration,
};
use serde_json::Map;
use uuid::Uuid;

/// Stands in the private key; must be seen nowhere.
pub(crate) const PRIVATE_KEY_MARK: &str = "conformanceprivatekeymaterial";
/// Must be seen nowhere but in requests to the provider.
pub(crate) const REGISTRY_PASSWORD: &str = "conformance-registry-password";
pub(crate) const IMAGE: &str = "registry.example/conformance/image:1.2";

const PROJECT_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHoI0rZ3Yb2mQm0VvJ5o3o5o3o5o3o5o3o5o3o5o3o5o conformance-project";
pub(crate) const USER_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGf0cGf0cGf0cGf0cGf0cGf0cGf0cGf0cGf0cGf0cGf0 conformance-user";

/// 16 characters of `[a-z0-9]`, another one each time.
pub(crate) fn provider_ref() -> String {
    let text = Uuid::new_v4().simple().to_string();
    text.chars().take(16).collect()
}

pub(crate) fn key() -> SshKey {
    SshKey {
        public: PROJECT_KEY.to_owned(),
        private: Some(format!(
            "-----BEGIN OPENSSH PRIVATE KEY-----\n{PRIVATE_KEY_MARK}\n-----END OPENSSH PRIVATE KEY-----\n"
        )),
    }
}

fn tags() -> BTreeMap<String, String> {
    BTreeMap::from([("team".to_owned(), "conformance".to_owned())])
}

pub(crate) fn instance_config(provider_ref: &str) -> InstanceConfiguration {
    InstanceConfiguration {
        project_name: "main".to_owned(),
        instance_name: "conformance-0".to_owned(),
        user: "conformance".to_owned(),
        ssh_keys: vec![SshKey::public(PROJECT_KEY)],
        instance_id: Some(Uuid::new_v4().to_string()),
        volumes: None,
        reservation: None,
        tags: Some(tags()),
        provider_ref: Some(provider_ref.to_owned()),
    }
}

pub(crate) fn run() -> RunInfo {
    RunInfo {
        id: Uuid::new_v4(),
        run_name: "conformance".to_owned(),
        project_name: "main".to_owned(),
        user: "conformance".to_owned(),
        tags: Some(tags()),
    }
}

pub(crate) fn job(provider_ref: &str, number: u32, nodes: u32) -> JobInfo {
    JobInfo {
        id: Uuid::new_v4(),
        job_name: format!("conformance-{number}-0"),
        job_num: number,
        replica_num: 0,
        jobs_per_replica: nodes,
        image_name: IMAGE.to_owned(),
        registry_auth: Some(RegistryAuth {
            username: "conformance".to_owned(),
            password: REGISTRY_PASSWORD.to_owned(),
        }),
        privileged: false,
        container_user: None,
        mounts: Vec::new(),
        requirements: Requirements::of(ResourcesSpec::unconstrained()),
        provider_ref: Some(provider_ref.to_owned()),
    }
}

pub(crate) fn volume(
    backend: &str,
    region: &str,
    zone: Option<String>,
    provider_ref: &str,
) -> Volume {
    let backend = BackendType::new(backend.to_owned());
    Volume {
        id: Uuid::new_v4(),
        name: "conformance-volume".to_owned(),
        project_name: "main".to_owned(),
        user: "conformance".to_owned(),
        configuration: VolumeConfiguration {
            backend,
            name: Some("conformance-volume".to_owned()),
            size: Some(100.0),
            volume_id: None,
            region: Some(region.to_owned()),
            availability_zone: zone,
            tags: Some(tags()),
            other: Map::new(),
        },
        external: false,
        volume_id: None,
        provisioning_data: None,
        attachment_data: None,
        provider_ref: Some(provider_ref.to_owned()),
    }
}

pub(crate) fn gateway(
    backend: &str,
    region: &str,
    provider_ref: &str,
) -> GatewayComputeConfiguration {
    GatewayComputeConfiguration {
        project_name: "main".to_owned(),
        instance_name: "conformance-gateway-0".to_owned(),
        backend: BackendType::new(backend.to_owned()),
        region: region.to_owned(),
        instance_type: None,
        public_ip: true,
        ssh_key_pub: PROJECT_KEY.to_owned(),
        certificate: None,
        load_balancer: None,
        router: None,
        tags: Some(tags()),
        provider_ref: Some(provider_ref.to_owned()),
    }
}

pub(crate) fn placement_group(backend: &str, region: &str, provider_ref: &str) -> PlacementGroup {
    PlacementGroup {
        name: format!("dstack-conformance-{provider_ref}"),
        project_name: "main".to_owned(),
        configuration: PlacementGroupConfiguration {
            backend: BackendType::new(backend.to_owned()),
            region: region.to_owned(),
            placement_strategy: PlacementStrategy::Cluster,
        },
        provisioning_data: None,
        provider_ref: Some(provider_ref.to_owned()),
    }
}
