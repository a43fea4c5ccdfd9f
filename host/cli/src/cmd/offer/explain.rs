//! What each condition costs: how many offers there were without it.

use serde::Serialize;

use super::{Args, ask, elsewhere, spec_of};
use crate::cmd::options::{ProfileOptions, ResourceOptions};
use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::prices;

/// One condition.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Explained {
    /// The option; none is all of them together.
    condition: Option<&'static str>,
    /// How many offers there were without it; with all of them in the first row.
    offers: u64,
}

/// Takes one condition back.
type Drop = fn(&mut ResourceOptions, &mut ProfileOptions);

/// The conditions that options can set.
const CONDITIONS: [(&str, Drop); 11] = [
    ("--gpu", |resources, _| resources.gpu = None),
    ("--cpu", |resources, _| resources.cpu = None),
    ("--memory", |resources, _| resources.memory = None),
    ("--disk", |resources, _| resources.disk = None),
    ("--max-price", |_, profile| profile.max_price = None),
    ("--backend", |_, profile| profile.backend.clear()),
    ("--region", |_, profile| profile.region.clear()),
    ("--instance-type", |_, profile| {
        profile.instance_type.clear()
    }),
    ("--fleet", |_, profile| profile.fleet.clear()),
    ("--reuse", |_, profile| profile.reuse = false),
    ("on-demand or spot only", |_, profile| {
        profile.spot = false;
        profile.on_demand = false;
        profile.spot_policy = None;
        profile.spot_auto = true;
    }),
];

/// Asks `count` with each condition taken back that was set.
fn explain(
    args: &Args,
    with_all: u64,
    mut count: impl FnMut(&ResourceOptions, &ProfileOptions) -> Result<u64, CliError>,
) -> Result<Vec<Explained>, CliError> {
    let mut explained = vec![Explained {
        condition: None,
        offers: with_all,
    }];
    let before = format!("{:?}{:?}", args.resources, args.profile);
    for (condition, take_back) in CONDITIONS {
        let (mut resources, mut profile) = (args.resources.clone(), args.profile.clone());
        take_back(&mut resources, &mut profile);
        if format!("{resources:?}{profile:?}") != before {
            explained.push(Explained {
                condition: Some(condition),
                offers: count(&resources, &profile)?,
            });
        }
    }
    Ok(explained)
}

pub(super) fn with_server(
    args: &Args,
    with_all: u64,
    here: &Here,
    cx: &Cx<'_>,
) -> Result<Vec<Explained>, CliError> {
    explain(args, with_all, |resources, profile| {
        let plan = ask(args, spec_of(resources, profile, cx)?, 1, here)?;
        Ok(plan.job_plans.first().map_or(0, |job| job.total_offers))
    })
}

pub(super) fn without_server(
    args: &Args,
    with_all: usize,
    cx: &Cx<'_>,
) -> Result<Vec<Explained>, CliError> {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    explain(args, number(with_all), |resources, profile| {
        let spec = spec_of(resources, profile, cx)?;
        let found = elsewhere::find(args, &spec, &prices::needs(&spec), cx)?;
        Ok(number(found.total))
    })
}

pub(super) fn show(explained: &[Explained], cx: &mut Cx<'_>) -> Result<(), CliError> {
    let rows: Vec<Vec<String>> = explained
        .iter()
        .map(|one| {
            let text = match one.condition {
                None => "with all conditions".to_owned(),
                Some(condition) => format!("without {condition}"),
            };
            vec![text, one.offers.to_string()]
        })
        .collect();
    let table = cx.ui.table(&["CONDITIONS", "OFFERS"], &rows);
    cx.ui.line(format!("\n{table}"))
}
