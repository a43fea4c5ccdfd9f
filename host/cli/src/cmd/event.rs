//! `dstack event`: what happened in a project.

use std::collections::HashSet;
use std::time::Duration;

use clap::Subcommand;
use dstack_api::events::{Event, EventTargetType, ListEventsRequest};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use crate::cx::{Cx, Here, ProjectOption};
use crate::error::CliError;

/// Events of a project
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List events, oldest first
    #[command(
        alias = "ls",
        after_help = "Examples:\n  dstack event list --within-run NAME\n  dstack event list --since 1h --include-target-type job\n  dstack event list -w"
    )]
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// Go on with events as they come; end it with Ctrl+C
    #[arg(short, long)]
    watch: bool,
    /// Only events after this: a duration such as 10m, or a time; default: the last 100
    #[arg(long, value_parser = super::logs::since)]
    since: Option<Timestamp>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    within: WithinArgs,
    /// Only events about this kind of thing; may be repeated
    #[arg(long, value_name = "TYPE", value_parser = kind)]
    include_target_type: Vec<EventTargetType>,
    /// Print JSON: a list, or with -w one event a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct TargetArgs {
    /// Events about this fleet; may be repeated
    #[arg(long, value_name = "NAME")]
    target_fleet: Vec<String>,
    /// Events about this run; may be repeated
    #[arg(long, value_name = "NAME")]
    target_run: Vec<String>,
    /// Events about this volume; may be repeated
    #[arg(long, value_name = "NAME")]
    target_volume: Vec<String>,
    /// Events about this gateway; may be repeated
    #[arg(long, value_name = "NAME")]
    target_gateway: Vec<String>,
    /// Events about this secret; may be repeated
    #[arg(long, value_name = "NAME")]
    target_secret: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct WithinArgs {
    /// Events about this fleet and its instances; may be repeated
    #[arg(long, value_name = "NAME")]
    within_fleet: Vec<String>,
    /// Events about this run and its jobs; may be repeated
    #[arg(long, value_name = "NAME")]
    within_run: Vec<String>,
    /// Events about this gateway and its replicas; may be repeated
    #[arg(long, value_name = "NAME")]
    within_gateway: Vec<String>,
}

fn kind(text: &str) -> Result<EventTargetType, String> {
    text.parse().map_err(|_| {
        let known: Vec<&str> = EventTargetType::ALL
            .iter()
            .map(|one| one.as_str())
            .collect();
        format!("one of {}", known.join(", "))
    })
}

/// Most events of one answer.
const PAGE: usize = 100;
/// Between two looks of `-w`.
const PAUSE: Duration = Duration::from_secs(2);
/// Events may become visible so late.
const LATE: SignedDuration = SignedDuration::from_secs(20);

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let Command::List(args) = args.command.unwrap_or(Command::List(args.list));
    let here = cx.here(args.project.project.as_deref())?;
    let filter = filter(&args, &here)?;
    let mut events = match args.since {
        Some(since) => since_then(&here, &filter, since)?,
        None => {
            let mut newest: Vec<Event> = here.client.post("/api/events/list", &filter)?;
            newest.reverse();
            newest
        }
    };
    if args.json && !args.watch {
        return cx.ui.json(&events);
    }
    let mut seen = HashSet::new();
    loop {
        for event in &events {
            if seen.insert(event.id) {
                let line = if args.json {
                    json!(event).to_string()
                } else {
                    line(event)
                };
                cx.ui.line(line)?;
            }
        }
        if !args.watch {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
        let from = cx.now().checked_sub(LATE).unwrap_or(Timestamp::MIN);
        events = since_then(&here, &filter, from)?;
    }
}

/// All events after a time, oldest first.
fn since_then(
    here: &Here,
    filter: &ListEventsRequest,
    since: Timestamp,
) -> Result<Vec<Event>, CliError> {
    let mut ask = ListEventsRequest {
        ascending: true,
        prev_recorded_at: Some(since),
        ..filter.clone()
    };
    let mut all = Vec::new();
    loop {
        let page: Vec<Event> = here.client.post("/api/events/list", &ask)?;
        let is_last = page.len() < PAGE;
        if let Some(last) = page.last() {
            ask.prev_recorded_at = Some(last.recorded_at);
            ask.prev_id = Some(last.id);
        }
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

fn line(event: &Event) -> String {
    let targets: Vec<String> = event
        .targets
        .iter()
        .map(|target| format!("{} {}", target.kind, target.name))
        .collect();
    let actor = event
        .actor_user
        .as_deref()
        .map(|name| format!("[by {name}] "));
    format!(
        "[{}] {}[{}] {}",
        event.recorded_at.strftime("%Y-%m-%d %H:%M:%S"),
        actor.unwrap_or_default(),
        targets.join(", "),
        event.message
    )
}

#[derive(Deserialize)]
struct WithId {
    id: Uuid,
}

#[derive(Deserialize)]
struct WithProjectId {
    project_id: Uuid,
}

/// The ids of things by their names.
fn ids(
    here: &Here,
    operation: &str,
    key: &str,
    names: &[String],
) -> Result<Option<Vec<Uuid>>, CliError> {
    if names.is_empty() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for name in names {
        let ask = json!({ key: name });
        let one: WithId = here
            .client
            .post(&here.path(operation), &ask)
            .map_err(|error| {
                if error.is_not_found() {
                    let kind = operation
                        .split('/')
                        .next()
                        .unwrap_or_default()
                        .trim_end_matches('s');
                    CliError::message(format!(
                        "there is no {kind} {name} in project {}",
                        here.project.name
                    ))
                } else {
                    error
                }
            })?;
        found.push(one.id);
    }
    Ok(Some(found))
}

fn filter(args: &ListArgs, here: &Here) -> Result<ListEventsRequest, CliError> {
    let (target, within) = (&args.target, &args.within);
    let mut filter = ListEventsRequest {
        target_fleets: ids(here, "fleets/get", "name", &target.target_fleet)?,
        target_runs: ids(here, "runs/get", "run_name", &target.target_run)?,
        target_volumes: ids(here, "volumes/get", "name", &target.target_volume)?,
        target_gateways: ids(here, "gateways/get", "name", &target.target_gateway)?,
        target_secrets: ids(here, "secrets/get", "name", &target.target_secret)?,
        within_fleets: ids(here, "fleets/get", "name", &within.within_fleet)?,
        within_runs: ids(here, "runs/get", "run_name", &within.within_run)?,
        within_gateways: ids(here, "gateways/get", "name", &within.within_gateway)?,
        include_target_types: (!args.include_target_type.is_empty())
            .then(|| args.include_target_type.clone()),
        ..ListEventsRequest::default()
    };
    let is_within = filter.within_fleets.is_some()
        || filter.within_runs.is_some()
        || filter.within_gateways.is_some();
    if !is_within {
        let path = format!("/api/projects/{}/get", here.project.name);
        let project: WithProjectId = here.client.ask(&path)?;
        filter.within_projects = Some(vec![project.project_id]);
    }
    Ok(filter)
}
