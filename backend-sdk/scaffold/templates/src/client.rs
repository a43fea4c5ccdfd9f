//! The provider's API: address, login, errors, shapes.

//? container
use std::collections::BTreeMap;

use dstack_backend_sdk::boot::RUNNER_SSH_PORT;
//?
use dstack_backend_sdk::prelude::*;
//? signed
use dstack_backend_sdk::rest::SigV4;
//?
use serde::Deserialize;

use crate::config::__Name__Config;

/// The client of an account.
pub(crate) fn api(config: &__Name__Config) -> Rest {
    // FILL-IN: the API's address.
    let url = config.api_url.as_deref();
    let url = url.unwrap_or("https://api.__name__.example/v1");
    // FILL-IN: which answers mean which kind of error; without a rule the status decides.
    let errors = ErrorMap::new()
        .code("sold_out", ErrorKind::NoCapacity)
        .code("limit_reached", ErrorKind::Quota)
        //? bearer
        .auth_fields(["creds.api_key"]);
    Rest::new(url).errors(errors).bearer(&config.creds.api_key)
    //? basic
        .auth_fields(["creds.user", "creds.password"]);
    let creds = &config.creds;
    Rest::new(url)
        .errors(errors)
        .basic(&creds.user, &creds.password)
    //? signed
        .auth_fields(["creds.access_key", "creds.secret_key"]);
    // FILL-IN: region and service of the signature, or an own `Sign` for another one.
    let creds = &config.creds;
    let (id, key) = (creds.access_key.expose(), creds.secret_key.clone());
    let sign = SigV4::new(id, key, "global", "__name__");
    Rest::new(url).errors(errors).signed(sign)
    //?
}

/// Whether the account can be reached.
pub(crate) fn check_account(api: &Rest) -> Result<()> {
    // FILL-IN: a cheap request that needs the credentials.
    api.get("/account").done()
}

// FILL-IN: an instance as the API shows it. Leave out what is not used; `Option` for what may be missing.
//? vm
#[derive(Deserialize)]
pub(crate) struct Server {
    id: String,
    region: String,
    state: String,
    ip: Option<String>,
    private_ip: Option<String>,
    #[serde(default)]
    tags: tags::Tags,
    created_at_us: Option<i64>,
}

impl From<Server> for Instance {
    fn from(server: Server) -> Self {
        // FILL-IN: the provider's words for states.
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
            created_at_us: server.created_at_us,
            ..Self::new(server.id, server.region, state)
        }
    }
}
//? container
#[derive(Deserialize)]
pub(crate) struct Pod {
    id: String,
    name: String,
    region: String,
    state: String,
    host: Option<String>,
    /// Port of the container to port of the host.
    #[serde(default)]
    ports: BTreeMap<u16, u16>,
    created_at_us: Option<i64>,
}

impl From<Pod> for Instance {
    fn from(pod: Pod) -> Self {
        // FILL-IN: the provider's words for states.
        let state = match pod.state.as_str() {
            "running" => InstanceState::Running,
            "deleting" => InstanceState::Deleting,
            "failed" => InstanceState::Failed("it gives no reason".to_owned()),
            _ => InstanceState::Starting,
        };
        Self {
            address: pod.host,
            ssh_port: pod.ports.get(&RUNNER_SSH_PORT).copied(),
            // FILL-IN: take a tag if the provider has tags; else the reference is the end of the name.
            provider_ref: names::provider_ref_of_name(&pod.name).map(str::to_owned),
            created_at_us: pod.created_at_us,
            ..Self::new(pod.id, pod.region, state)
        }
    }
}
//?
