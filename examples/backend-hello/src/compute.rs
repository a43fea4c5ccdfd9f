//! One configured account: offers and machines.

use dstack_backend_sdk::{boot::ShimSetup, host, prelude::*, rest::encode, serde_json::json};
use serde::{Deserialize, de::DeserializeOwned};

use crate::config::{HelloConfig, HelloConfigurator};

/// One configured account.
pub(crate) struct Hello {
    pub(crate) api: Rest,
    pub(crate) config: HelloConfig,
    cache: AllOffersCache,
}

#[derive(Deserialize)]
struct Plan {
    #[serde(flatten)]
    item: CatalogItem,
    availability: InstanceAvailability,
}

#[derive(Deserialize)]
struct Server {
    id: String,
    region: String,
    state: String,
    ip: Option<String>,
    private_ip: Option<String>,
    tags: tags::Tags,
    created_at_us: i64,
}

impl From<Server> for Instance {
    fn from(server: Server) -> Self {
        let state = match server.state.as_str() {
            "running" => InstanceState::Running,
            "deleting" => InstanceState::Deleting,
            "failed" => InstanceState::Failed("it gives no reason".to_owned()),
            _ => InstanceState::Starting,
        };
        Self {
            address: server.ip,
            internal_ip: server.private_ip,
            provider_ref: server.tags.get(names::PROVIDER_REF_TAG).cloned(),
            created_at_us: Some(server.created_at_us),
            ..Self::new(server.id, server.region, state)
        }
    }
}

impl Backend for Hello {
    type Configurator = HelloConfigurator;

    fn new(config: HelloConfig) -> Result<Self> {
        let (api, cache) = (config.api(), AllOffersCache::new());
        Ok(Self { api, config, cache })
    }
}

/// The items of a list; with a reference only those that carry it.
pub(crate) fn list<T: DeserializeOwned>(api: &Rest, of: &str, by: Option<&str>) -> Result<Vec<T>> {
    let tag = by.map(|reference| format!("{}:{reference}", names::PROVIDER_REF_TAG));
    let call = api.get(of).query("tag", tag.unwrap_or_default());
    call.all(of, &Paging::cursor("after", "/next"))
}

impl SimpleCloud for Hello {
    fn offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply> {
        self.cache
            .fitting(request, DiskPolicy::configurable(20, 2048), || {
                let plans: Vec<Plan> = self.api.get("/plans").fetch()?;
                let rows = plans.into_iter().map(|plan| (plan.item, plan.availability));
                Ok(offers::from_rows("hello", rows, &self.config.regions))
            })
    }

    fn check_account(&self) -> Result<()> {
        self.api.get("/account").done()
    }

    fn instances(&self, provider_ref: Option<&str>) -> Result<Vec<Instance>> {
        let servers: Vec<Server> = list(&self.api, "/servers", provider_ref)?;
        Ok(servers.into_iter().map(Instance::from).collect())
    }

    fn instance(&self, id: &str, _region: &str) -> Result<Option<Instance>> {
        let server = self.api.get(format!("/servers/{}", encode(id)));
        Ok(server.found::<Server>()?.map(Instance::from))
    }

    fn make(&self, request: &CreateInstanceRequest) -> Result<Instance> {
        let (offer, config) = (&request.offer, &request.config);
        let has = &offer.instance.resources;
        let arch = has.cpu_arch.unwrap_or(CpuArchitecture::X86);
        let keys = config.ssh_keys.iter().map(|key| key.public.clone());
        let server = self.api.post("/servers").json(&json!({
            "name": names::instance_name(config, names::MAX_NAME_LEN),
            "region": offer.region,
            "plan": offer.instance.name,
            "disk_gb": has.disk.size_mib.div_ceil(1024),
            "user_data": ShimSetup::new(host::agent_urls()?, arch, keys.collect()).user_data(),
            "tags": tags::of_instance(config, &self.config.tags),
        }));
        Ok(server.fetch::<Server>()?.into())
    }

    fn delete(&self, id: &str, _region: &str) -> Result<()> {
        self.api.delete(format!("/servers/{}", encode(id))).gone()
    }
}
