//! The catalog of prices on this machine, and how a person's search becomes a question to it.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::config::SpotPolicy;
use dstack_api::plan::merged_profile;
use dstack_api::runs::RunSpec;
use dstack_backend_catalog::{
    Catalog, CatalogConfig, Filter, Found, ProviderItem, Reply, Request, Search, Source, Web,
    WebError, backend_of, provider_of,
};
use dstack_backend_types::resources::{Memory, Range, ResourcesSpec};
use dstack_backend_types::{
    BackendType, InstanceAvailability, InstanceOfferWithAvailability as Offer, Requirements,
    matching,
};

use crate::cx::Cx;
use crate::error::CliError;

/// For one file or one answer of a provider.
const TIMEOUT: Duration = Duration::from_secs(120);
const MAX_ANSWER: u64 = 512 * 1024 * 1024;
/// Smallest disk of providers whose disks are chosen, in GB.
const SMALLEST_DISK: f64 = 1.0;

/// The network of this machine.
pub(crate) struct Network(ureq::Agent);

impl Network {
    pub(crate) fn new() -> Self {
        Self(
            ureq::Agent::config_builder()
                .http_status_as_error(false)
                .timeout_global(Some(TIMEOUT))
                .build()
                .into(),
        )
    }
}

impl Web for Network {
    fn send(&self, request: &Request) -> Result<Reply, WebError> {
        let failed = |error: ureq::Error| WebError(error.to_string());
        let answer = match &request.body {
            None => {
                let mut call = self.0.get(&request.url);
                for (name, value) in &request.headers {
                    call = call.header(name, value);
                }
                call.call()
            }
            Some(body) => {
                let mut call = self.0.post(&request.url);
                for (name, value) in &request.headers {
                    call = call.header(name, value);
                }
                call.send(body.as_slice())
            }
        };
        let mut answer = answer.map_err(failed)?;
        let body = answer
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER)
            .read_to_vec()
            .map_err(failed)?;
        Ok(Reply {
            status: answer.status().as_u16(),
            body,
        })
    }
}

/// The catalog of this machine: the sources of the environment, and the prices that the program carries.
pub(crate) fn local(cx: &Cx<'_>) -> Result<Catalog, CliError> {
    let set = |name: &str| cx.vars.get(name).filter(|value| !value.is_empty());
    let mut sources = Vec::new();
    for name in ["DSTACK_CATALOG_SOURCES", "GPUHUNT_CATALOG_URL"] {
        let listed = Source::parse_list(&set(name).unwrap_or_default())
            .map_err(|error| CliError::message(format!("{name}: {error}")))?;
        sources.extend(listed);
    }
    if let Some(folder) = set("GPUHUNT_CATALOG_DIR") {
        sources.push(Source::Folder(folder.into()));
    }
    let config = CatalogConfig {
        sources,
        copies: Some(cx.settings.home.join(".dstack/catalog")),
        version: set("DSTACK_CATALOG_VERSION"),
        has_snapshot: true,
    };
    Ok(Catalog::new(config, Arc::new(Network::new())))
}

/// What a run needs of a machine, as far as prices go.
pub(crate) fn needs(spec: &RunSpec) -> Requirements {
    let profile = merged_profile(&spec.configuration, spec.profile.as_ref());
    let mut needs = Requirements::of(spec.configuration.base().resources.clone());
    needs.max_price = profile.params.max_price;
    needs.spot = match profile.params.spot_policy {
        Some(SpotPolicy::Auto) => None,
        Some(SpotPolicy::Spot) => Some(true),
        Some(SpotPolicy::OnDemand) | None => Some(false),
    };
    needs
}

/// The question for what a run needs; `None` if no catalog can answer it: existing machines are wanted.
pub(crate) fn search(
    spec: &RunSpec,
    needs: &Requirements,
    set_up: &[String],
    max_items: u32,
) -> Option<Search> {
    let params = merged_profile(&spec.configuration, spec.profile.as_ref()).params;
    let reuses = params
        .creation_policy
        .is_some_and(|policy| policy == dstack_api::config::CreationPolicy::Reuse);
    if params.fleets.is_some() || reuses {
        return None;
    }
    let mut filter = Filter::of(needs);
    if let Some(backends) = &params.backends {
        let names = backends
            .iter()
            .map(|name| provider_of(name.as_str()).to_owned());
        // Those that only live backends know have no rows, which is no mistake of the person.
        let known: Vec<String> = names
            .filter(|name| dstack_backend_catalog::OFFLINE.contains(&name.as_str()))
            .collect();
        if known.is_empty() {
            return None;
        }
        filter.provider = Some(known);
    }
    Some(Search {
        filter,
        locations: params.regions.clone(),
        instance_names: params.instance_types.clone(),
        skip: set_up
            .iter()
            .map(|name| provider_of(name).to_owned())
            .collect(),
        max_items: usize::try_from(max_items).ok(),
    })
}

/// What a row would be as an offer of its backend. A disk that is chosen is the smallest that fits.
pub(crate) fn offer(found: &ProviderItem, resources: &ResourcesSpec) -> Offer {
    let backend = BackendType::new(backend_of(&found.provider).to_owned());
    let mut offer = Offer::new(found.item.offer(&backend), InstanceAvailability::Unknown);
    if found.item.disk_size.is_none() {
        let chosen = Range::at_least(Memory(SMALLEST_DISK));
        matching::fit_disk(&mut offer.instance, resources, Some(chosen));
    }
    offer
}

/// Where prices are from, for people: `prices of 2025-03-02 (gcp, aws), 2026 (runpod)`.
pub(crate) fn origin(found: &Found) -> String {
    let mut dates: Vec<(String, Vec<&str>)> = Vec::new();
    for edition in &found.editions {
        let date = edition
            .as_of
            .clone()
            .or_else(|| edition.fetched_at.map(|time| time.to_string()))
            .or_else(|| edition.version.clone())
            .unwrap_or_else(|| "an unknown date".to_owned());
        match dates.iter_mut().find(|(known, _)| *known == date) {
            Some((_, providers)) => providers.push(&edition.provider),
            None => dates.push((date, vec![&edition.provider])),
        }
    }
    let parts: Vec<String> = dates
        .into_iter()
        .map(|(date, providers)| format!("{date} ({})", providers.join(", ")))
        .collect();
    format!("prices of {}", parts.join("; "))
}
