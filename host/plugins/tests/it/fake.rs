//! A whole backend through the host: the cloud in a folder.

use crate::place::{all_offers, folder, instance_config, put};
use dstack_backend_types::{
    ErrorKind, SshKey,
    methods::{CreateInstanceRequest, ListResourceGroupsRequest, StoredConfig},
};
use dstack_plugins::{Backend, Plugins, PluginsConfig, write_lock};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

struct Fake {
    plugins: Plugins,
    backend: Backend,
    cloud: TempDir,
    _folder: TempDir,
}

impl Fake {
    async fn new() -> Self {
        let (folder, cloud) = (folder(), tempfile::tempdir().unwrap());
        put(folder.path(), "dstack-backend-fake", "fake");
        write_lock(folder.path()).unwrap();
        let plugins = Plugins::load(PluginsConfig::new(vec![folder.path().to_owned()]));
        let backend = plugins
            .open("fake", &json!({"type": "fake", "folder": cloud.path()}))
            .await
            .unwrap();
        Self {
            plugins,
            backend,
            cloud,
            _folder: folder,
        }
    }

    fn turn(&self, knobs: &Value) {
        fs::write(self.cloud.path().join("knobs.json"), knobs.to_string()).unwrap();
    }

    async fn order(&self, provider_ref: &str) -> CreateInstanceRequest {
        let offers = self.backend.get_offers(&all_offers()).await.unwrap();
        CreateInstanceRequest {
            offer: offers[0].clone(),
            config: instance_config(provider_ref),
            placement_group: None,
        }
    }
}

#[tokio::test]
async fn offers_come_in_chunks_and_in_order() {
    let fake = Fake::new().await;
    fake.turn(&json!({"offers": 1750}));
    let mut sizes = Vec::new();
    let mut names = Vec::new();
    let each = |chunk: Vec<dstack_backend_types::InstanceOfferWithAvailability>| {
        sizes.push(chunk.len());
        names.extend(chunk.into_iter().map(|offer| offer.instance.name));
    };
    fake.backend
        .get_offers_in_chunks(&all_offers(), each)
        .await
        .unwrap();
    assert_eq!(sizes, [500, 500, 500, 250]);
    assert!(
        names
            .iter()
            .enumerate()
            .all(|(number, name)| name.ends_with(&format!("-{number}")))
    );
}

#[tokio::test]
async fn a_machine_lives_and_ends_and_a_lost_answer_makes_no_second_one() {
    let fake = Fake::new().await;
    fake.turn(&json!({"lost_answers": 1, "looks_until_ready": 1, "slow_terminations": 1}));
    let order = fake.order("0123456789abcdef").await;
    assert_eq!(
        fake.backend
            .create_instance(&order)
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Transport
    );
    let data = fake.backend.create_instance(&order).await.unwrap();
    assert_eq!(
        (data.instance_id.as_str(), data.hostname.as_deref()),
        ("fake-000001", None)
    );
    let groups = fake
        .backend
        .call(&ListResourceGroupsRequest::default())
        .await
        .unwrap()
        .groups;
    assert_eq!(
        (groups.len(), groups[0].provider_ref.as_str()),
        (1, "0123456789abcdef")
    );
    let key = SshKey::public("ssh-ed25519 AAAA");
    let data = fake
        .backend
        .update_provisioning_data(data, key.clone())
        .await
        .unwrap();
    assert_eq!(data.hostname, None);
    let data = fake
        .backend
        .update_provisioning_data(data, key)
        .await
        .unwrap();
    assert_eq!(
        (data.hostname.as_deref(), data.ssh_port),
        (Some("127.0.0.1"), Some(22))
    );
    let error = fake
        .backend
        .terminate_instance(&data.instance_id, &data.region, None)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotYetTerminated);
    for _ in 0..2 {
        fake.backend
            .terminate_instance(&data.instance_id, &data.region, None)
            .await
            .unwrap();
    }
    let journal = fs::read_to_string(fake.cloud.path().join("journal.jsonl")).unwrap();
    assert_eq!(journal.lines().count(), 2, "{journal}");
}

#[tokio::test]
async fn no_capacity_and_quota_are_told_apart() {
    let fake = Fake::new().await;
    let order = fake.order("a").await;
    fake.turn(&json!({"no_capacity_for": ["small-0"]}));
    assert_eq!(
        fake.backend
            .create_instance(&order)
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::NoCapacity
    );
    fake.turn(&json!({"quota": 0}));
    assert_eq!(
        fake.backend
            .create_instance(&order)
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Quota
    );
}

#[tokio::test]
async fn credentials_are_stored_apart_and_come_back() {
    let fake = Fake::new().await;
    let configurator = fake.plugins.configurator("fake").await.unwrap();
    let config = json!({"type": "fake", "folder": "/cloud", "token": "hush"})
        .as_object()
        .unwrap()
        .clone();
    configurator.validate(config.clone(), false).await.unwrap();
    let mut wrong = config.clone();
    wrong.insert("token".to_owned(), "wrong".into());
    let error = configurator.validate(wrong, false).await.unwrap_err();
    assert_eq!(
        (error.kind(), &error.error.details["fields"]),
        (ErrorKind::Auth, &json!(["token"]))
    );
    let record: StoredConfig = configurator.create("main", config.clone()).await.unwrap();
    assert!(
        !Value::Object(record.config.clone())
            .to_string()
            .contains("hush")
    );
    assert_eq!(
        configurator.with_creds(record.clone()).await.unwrap(),
        config
    );
    let public = configurator.public_view(record).await.unwrap();
    assert!(
        public.contains_key("folder") && !public.contains_key("token"),
        "{public:?}"
    );
    let schema = configurator.describe().await.unwrap();
    assert!(
        schema.to_string().contains("\"writeOnly\":true"),
        "{schema}"
    );
}
