//! Prices of clouds that are not set up: of the server's catalog, or of this machine's if there is no server.

use dstack_api::gpus::{GpuGroupBy, ListGpusResponse, groups};
use dstack_api::projects::Project;
use dstack_api::runs::RunSpec;
use dstack_backend_catalog::Found;
use dstack_backend_types::{InstanceOfferWithAvailability as Offer, Requirements};
use serde_json::{Value, json};

use super::{Args, document, none, show_groups};
use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::{prices, view};

/// Backends that rent nothing out.
const OWN_MACHINES: [&str; 2] = ["local", "remote"];

/// What of a catalog fits.
pub(super) struct Elsewhere {
    found: Found,
    offers: Vec<Offer>,
    has_server: bool,
}

impl Elsewhere {
    fn new(found: Found, needs: &Requirements, has_server: bool) -> Option<Self> {
        if found.items.is_empty() {
            return None;
        }
        let offers = found
            .items
            .iter()
            .map(|item| prices::offer(item, &needs.resources))
            .collect();
        Some(Self {
            found,
            offers,
            has_server,
        })
    }

    /// Of the server's catalog, if no cloud is set up in the project, or if it is asked for.
    pub(super) fn beside(
        args: &Args,
        spec: &RunSpec,
        needs: &Requirements,
        here: &Here,
    ) -> Result<Option<Self>, CliError> {
        // Other servers have no catalog to ask.
        if here.client.host_version().is_none() || args.offers.unallocated {
            return Ok(None);
        }
        let path = format!("/api/projects/{}/get", here.project.name);
        let project: Project = here.client.ask(&path)?;
        let set_up: Vec<String> = project
            .backends
            .iter()
            .map(|backend| backend.name.as_str().to_owned())
            .filter(|name| !OWN_MACHINES.contains(&name.as_str()))
            .collect();
        if !set_up.is_empty() && !args.catalog {
            return Ok(None);
        }
        let Some(search) = prices::search(spec, needs, &set_up, args.limit()) else {
            return Ok(None);
        };
        let found = here.client.post("/api/x/catalog/search", &search)?;
        Ok(Self::new(found, needs, true))
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "offers": self.offers,
            "total_offers": self.found.total,
            "editions": self.found.editions,
        })
    }

    /// The same in groups.
    pub(super) fn groups(&self, spec: &RunSpec, by: &[GpuGroupBy]) -> ListGpusResponse {
        let gpu = spec.configuration.base().resources.gpu.as_ref();
        let no_gpu = gpu.is_some_and(|gpu| gpu.count.max == Some(0));
        ListGpusResponse {
            gpus: groups::of_gpus(&self.offers, by),
            cpus: no_gpu.then(|| groups::of_cpus(&self.offers, by)),
        }
    }

    pub(super) fn head(&self, is_all: bool, cx: &mut Cx<'_>) -> Result<(), CliError> {
        let text = match (self.has_server, is_all) {
            (false, _) => "No server is configured yet; these are prices of the catalog:",
            (true, true) => {
                "Nothing that is set up fits; these are prices of clouds that are not set up:"
            }
            (true, false) => "\nClouds that are not set up:",
        };
        cx.ui.line(text)
    }

    pub(super) fn foot(&self, cx: &mut Cx<'_>) -> Result<(), CliError> {
        cx.ui.line(format!(" {}", prices::origin(&self.found)))
    }

    pub(super) fn show(&self, is_all: bool, cx: &mut Cx<'_>) -> Result<(), CliError> {
        self.head(is_all, cx)?;
        let table = view::prices::offers(&cx.ui, &self.offers, &self.found);
        cx.ui.line(table)
    }
}

impl Args {
    /// How many rows of a catalog are needed: groups need all.
    fn limit(&self) -> u32 {
        if self.group_by.is_empty() {
            self.max_offers
        } else {
            u32::MAX
        }
    }
}

/// Prices alone: no server is known.
pub(super) fn alone(
    args: &Args,
    spec: &RunSpec,
    group_by: Option<Vec<GpuGroupBy>>,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let needs = prices::needs(spec);
    let found = find(args, spec, &needs, cx)?;
    let explained = args
        .explain
        .then(|| super::explain::without_server(args, found.total, cx))
        .transpose()?;
    let elsewhere = Elsewhere::new(found, &needs, false);
    if args.is_json() {
        let mut document = document(&needs);
        if let (Some(elsewhere), Some(by)) = (&elsewhere, &group_by) {
            document = json!({"project": null, "gpus": [], "catalog": elsewhere.groups(spec, by)});
        } else if let Some(elsewhere) = &elsewhere {
            document["catalog"] = elsewhere.json();
        }
        if let Some(explained) = &explained {
            document["explain"] = json!(explained);
        }
        return cx.ui.json(&document);
    }
    match (&elsewhere, &group_by) {
        (None, _) => none(cx)?,
        (Some(elsewhere), None) => elsewhere.show(true, cx)?,
        (Some(elsewhere), Some(by)) => {
            elsewhere.head(true, cx)?;
            show_groups(&elsewhere.groups(spec, by), by, cx)?;
            elsewhere.foot(cx)?;
        }
    }
    explained.map_or(Ok(()), |explained| super::explain::show(&explained, cx))
}

/// What the catalog of this machine has.
pub(super) fn find(
    args: &Args,
    spec: &RunSpec,
    needs: &Requirements,
    cx: &Cx<'_>,
) -> Result<Found, CliError> {
    let Some(search) = prices::search(spec, needs, &[], args.limit()) else {
        return Ok(Found::default());
    };
    prices::local(cx)?
        .search(&search, cx.now())
        .map_err(|error| CliError::message(view::prices::chain(&error)))
}
