//! What a plan says: properties, then offers.

use dstack_api::config::{
    DEFAULT_FLEET_IDLE_SECONDS, DEFAULT_RUN_IDLE_SECONDS, FleetConfiguration, ProfileParams,
    RunConfiguration, SpotPolicy,
};
use dstack_api::fleets::FleetPlan;
use dstack_api::jobs::Retry;
use dstack_api::runs::{RunPlan, RunSpec};

use dstack_backend_types::resources::{GpuSpec, ResourcesSpec};

use super::values;
use crate::ui::Ui;

/// The properties of a run, without a head.
pub(crate) fn run(ui: &Ui, plan: &RunPlan, is_verbose: bool) -> String {
    let spec = plan.effective_run_spec.as_ref().unwrap_or(&plan.run_spec);
    let configuration = &spec.configuration;
    let params = merged(spec);
    let resources = plan
        .job_plans
        .first()
        .map_or(&configuration.base().resources, |job| {
            &job.job_spec.requirements.resources
        });
    let mut rows = vec![
        ("Project", plan.project_name.clone()),
        ("User", plan.user.clone()),
        ("Type", kind(configuration)),
        ("Resources", resources_text(resources)),
    ];
    rows.extend(common(&params));
    if is_verbose
        || params
            .creation_policy
            .is_some_and(|policy| policy.as_str() != "reuse-or-create")
    {
        let policy = params
            .creation_policy
            .map_or("reuse-or-create", |policy| policy.as_str());
        rows.push(("Creation policy", policy.to_owned()));
    }
    rows.push(("Idle duration", idle(&params, DEFAULT_RUN_IDLE_SECONDS)));
    let max = params
        .max_duration
        .and_then(dstack_api::config::Limit::seconds);
    rows.push(("Max duration", max.map_or_else(off, values::duration)));
    if let RunConfiguration::DevEnvironment(dev) = configuration {
        rows.push((
            "Inactivity duration",
            dev.inactivity_duration.map_or_else(off, values::duration),
        ));
    }
    if is_verbose || params.reservation.is_some() {
        rows.push((
            "Reservation",
            params.reservation.clone().unwrap_or_else(|| "-".to_owned()),
        ));
    }
    properties(ui, rows)
}

/// The properties of a fleet.
pub(crate) fn fleet(ui: &Ui, plan: &FleetPlan) -> String {
    let spec = plan.effective_spec.as_ref().unwrap_or(&plan.spec);
    let configuration: &FleetConfiguration = &spec.configuration;
    let mut rows = vec![
        ("Project", plan.project_name.clone()),
        ("User", plan.user.clone()),
        ("Type", "fleet".to_owned()),
    ];
    if let Some(ssh) = &configuration.ssh_config {
        rows.push(("Fleet type", "ssh".to_owned()));
        rows.push((
            "Hosts",
            ssh.hosts
                .iter()
                .map(|host| host.hostname())
                .collect::<Vec<_>>()
                .join(", "),
        ));
        return properties(ui, rows);
    }
    let mut params = spec.profile.params.clone();
    params.merge(&configuration.profile());
    rows.push(("Fleet type", "cloud".to_owned()));
    rows.push(("Nodes", super::fleets::nodes(configuration)));
    if let Some(placement) = configuration.placement {
        rows.push(("Placement", placement.as_str().to_owned()));
    }
    let resources = configuration.resources.as_ref();
    rows.push((
        "Resources",
        resources.map_or_else(|| "any".to_owned(), resources_text),
    ));
    rows.extend(common(&params));
    rows.push(("Idle duration", idle(&params, DEFAULT_FLEET_IDLE_SECONDS)));
    properties(ui, rows)
}

/// The parameters in force: the profile's, replaced by what the configuration says itself.
fn merged(spec: &RunSpec) -> ProfileParams {
    let mut params = spec
        .profile
        .as_ref()
        .map(|profile| profile.params.clone())
        .unwrap_or_default();
    params.merge(spec.configuration.profile());
    params
}

fn properties(ui: &Ui, rows: Vec<(&'static str, String)>) -> String {
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    ui.table(&[], &rows)
}

fn common(params: &ProfileParams) -> Vec<(&'static str, String)> {
    let spot = params.spot_policy.unwrap_or(SpotPolicy::OnDemand);
    let retry = params.effective_retry();
    vec![
        ("Spot policy", spot.as_str().to_owned()),
        (
            "Max price",
            params.max_price.map_or_else(off, values::price),
        ),
        (
            "Retry policy",
            retry.map_or_else(off, |retry| retry_text(&retry)),
        ),
    ]
}

/// Without the GPUs that nobody asked for.
fn resources_text(resources: &ResourcesSpec) -> String {
    let mut resources = resources.clone();
    resources.gpu = resources.gpu.filter(|gpu| {
        let unasked = GpuSpec {
            vendor: gpu.vendor,
            ..GpuSpec::unasked()
        };
        *gpu != unasked
    });
    resources.to_string()
}

fn retry_text(retry: &Retry) -> String {
    let events: Vec<&str> = retry.on_events.iter().map(|event| event.as_str()).collect();
    format!(
        "{} for {}",
        events.join(", "),
        values::duration(retry.duration)
    )
}

fn idle(params: &ProfileParams, default: i64) -> String {
    params
        .idle_seconds(default)
        .map_or_else(|| "-".to_owned(), values::duration)
}

fn off() -> String {
    "off".to_owned()
}

fn kind(configuration: &RunConfiguration) -> String {
    let word = configuration.kind().as_str();
    let RunConfiguration::Task(task) = configuration else {
        return word.to_owned();
    };
    let nodes = match &task.groups {
        Some(groups) => groups.iter().map(|group| group.nodes).sum(),
        None => task.nodes.unwrap_or(1),
    };
    if nodes > 1 {
        format!("{word} (nodes={nodes})")
    } else {
        word.to_owned()
    }
}
