//! One configured account: offers, containers, clean-up of orphans.

use std::collections::BTreeMap;

use dstack_backend_sdk::boot::{ContainerSetup, RUNNER_SSH_PORT, container_agent_urls};
use dstack_backend_sdk::{prelude::*, rest::encode, serde_json::json};
use serde::Deserialize;

use crate::config::{HelloContainerConfig, HelloContainerConfigurator};

const BACKEND: &str = "hello-container";
/// Plans and prices change seldom, so they are part of the backend; a catalog that the server has comes first.
pub(crate) const PLANS: offers::Csv = offers::Csv(include_str!("offers.csv"));

/// One configured account.
pub(crate) struct HelloContainer {
    api: Rest,
    regions: Vec<String>,
    offers: AllOffersCache,
}

#[derive(Deserialize)]
struct Pod {
    id: String,
    name: String,
    region: String,
    state: String,
    host: Option<String>,
    /// Port of the container to port of the host.
    #[serde(default)]
    ports: BTreeMap<u16, u16>,
    created_at_us: i64,
}

impl From<Pod> for Instance {
    fn from(pod: Pod) -> Self {
        let state = match pod.state.as_str() {
            "running" => InstanceState::Running,
            "deleting" => InstanceState::Deleting,
            "failed" => InstanceState::Failed("no reason was given".to_owned()),
            _ => InstanceState::Starting,
        };
        Self {
            address: pod.host,
            ssh_port: pod.ports.get(&RUNNER_SSH_PORT).copied(),
            // This cloud has no tags, so the reference is the end of the name.
            provider_ref: names::provider_ref_of_name(&pod.name).map(str::to_owned),
            created_at_us: Some(pod.created_at_us),
            ..Self::new(pod.id, pod.region, state)
        }
    }
}

impl Backend for HelloContainer {
    type Configurator = HelloContainerConfigurator;

    fn new(config: HelloContainerConfig) -> Result<Self> {
        Ok(Self {
            api: config.api(),
            regions: config.regions,
            offers: AllOffersCache::new(),
        })
    }
}

impl SimpleCloud for HelloContainer {
    fn offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply> {
        let catalog = offers::FirstOf(offers::HostCatalog::new(BACKEND), PLANS);
        self.offers.fitting(request, DiskPolicy::Fixed, || {
            let items = catalog.items(&request.requirements)?;
            let mut offers = offers::from_items(BACKEND, items, &self.regions);
            for offer in &mut offers {
                offer.instance_runtime = InstanceRuntime::Runner;
            }
            Ok(offers)
        })
    }

    fn check_account(&self) -> Result<()> {
        self.api.get("/account").done()
    }

    fn instances(&self, _provider_ref: Option<&str>) -> Result<Vec<Instance>> {
        let paging = Paging::number("page", Some("/pages"));
        let pods: Vec<Pod> = self.api.get("/pods").all("/items", &paging)?;
        Ok(pods.into_iter().map(Instance::from).collect())
    }

    fn instance(&self, id: &str, _region: &str) -> Result<Option<Instance>> {
        let pod = self.api.get(format!("/pods/{}", encode(id)));
        Ok(pod.found::<Pod>()?.map(Instance::from))
    }

    fn run(&self, request: &RunJobRequest) -> Result<RunJobReply> {
        let (offer, job) = (&request.offer, &request.job);
        let has = &offer.instance.resources;
        let arch = has.cpu_arch.unwrap_or(CpuArchitecture::X86);
        let mut keys = vec![request.project_key.public.trim().to_owned()];
        keys.extend_from_slice(&request.extra_authorized_keys);
        let script = ContainerSetup::new(container_agent_urls()?, arch, keys).script();
        let body = json!({
            "name": names::job_name_with_ref(&request.run, job, names::MAX_NAME_LEN),
            "region": offer.region,
            "plan": offer.instance.name,
            "spot": has.spot,
            "image": job.image_name,
            "registry": job.registry_auth,
            "user": "root",
            "command": ["/bin/sh", "-c", script],
            "ports": [RUNNER_SSH_PORT],
        });
        let pod = self.api.post("/pods").json(&body);
        run_container(self, request, || Ok(pod.fetch::<Pod>()?.into()))
    }

    fn delete(&self, id: &str, _region: &str) -> Result<()> {
        self.api.delete(format!("/pods/{}", encode(id))).gone()
    }
}
