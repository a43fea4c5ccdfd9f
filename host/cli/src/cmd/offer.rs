//! `dstack offer`: what machines there are, and at what price.

use dstack_api::config::RunConfiguration;
use dstack_api::gpus::{GpuGroupBy, ListGpusRequest, ListGpusResponse};
use dstack_api::runs::{GetRunPlanRequest, RunPlan, RunSpec};
use dstack_backend_types::resources::ResourcesSpec;
use serde_json::json;

use crate::cmd::apply::choose_profile;
use crate::cmd::options::{OfferOptions, ProfileOptions, ResourceOptions};
use crate::cx::{Cx, Here, ProjectOption};
use crate::error::CliError;
use crate::view;

/// What machines are offered, and at what price
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack offer                          the cheapest of everything\n  dstack offer --gpu H100:8 --spot      spot machines with eight H100\n  dstack offer --gpu 24GB.. -b aws --max-price 2\n  dstack offer --group-by gpu,backend   by GPU and backend\n  dstack offer --json                   for scripts"
)]
pub(crate) struct Args {
    #[command(flatten)]
    project: ProjectOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How to print
    #[arg(long, value_parser = ["plain", "json"], default_value = "plain", hide = true)]
    format: String,
    /// Group by gpu, and within it by backend, region and count; may be repeated
    #[arg(long, value_name = "FIELD", value_delimiter = ',', value_parser = ["gpu", "backend", "region", "count"])]
    group_by: Vec<String>,
    /// How many offers to show
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_offers: u32,
    #[command(flatten)]
    offers: OfferOptions,
    #[command(flatten)]
    resources: ResourceOptions,
    #[command(flatten)]
    profile: ProfileOptions,
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let group_by = grouping(&args.group_by)?;
    let here = cx.here(args.project.project.as_deref())?;
    let spec = spec(&args, cx)?;
    match group_by {
        Some(group_by) => grouped(&args, spec, group_by, &here, cx),
        None => single(&args, spec, &here, cx),
    }
}

/// What to group by beside the GPU; `None` if offers are to be listed one by one.
fn grouping(fields: &[String]) -> Result<Option<Vec<GpuGroupBy>>, CliError> {
    let has = |field: &str| fields.iter().any(|given| given == field);
    if fields.is_empty() {
        return Ok(None);
    }
    if !has("gpu") {
        return Err(CliError::Usage(
            "--group-by needs gpu, such as --group-by gpu,backend".to_owned(),
        ));
    }
    if has("region") && !has("backend") {
        return Err(CliError::Usage(
            "--group-by region needs backend too, such as --group-by gpu,backend,region".to_owned(),
        ));
    }
    let known = [
        ("backend", GpuGroupBy::Backend),
        ("region", GpuGroupBy::Region),
        ("count", GpuGroupBy::Count),
    ];
    Ok(Some(
        known
            .into_iter()
            .filter(|(field, _)| has(field))
            .map(|(_, group)| group)
            .collect(),
    ))
}

/// A run that asks for nothing but what the options say. The image is one that servers never look up.
fn spec(args: &Args, cx: &Cx<'_>) -> Result<RunSpec, CliError> {
    let text = json!({"type": "task", "image": "scratch", "commands": [":"], "user": "root"});
    let mut configuration: RunConfiguration =
        serde_json::from_value(text).expect("the text above is a task");
    let mut resources = ResourcesSpec::unconstrained();
    args.resources.apply(&mut resources);
    configuration.base_mut().resources = resources;
    args.profile.apply(configuration.profile_mut());
    Ok(RunSpec {
        run_name: None,
        repo_id: None,
        repo_data: None,
        repo_code_hash: None,
        repo_dir: None,
        file_archives: Vec::new(),
        working_dir: None,
        configuration_path: None,
        configuration,
        profile: Some(choose_profile(&args.profile, &cx.folder, cx)?),
        ssh_key_pub: None,
    })
}

impl Args {
    fn is_json(&self) -> bool {
        self.json || self.format == "json"
    }
}

fn single(args: &Args, spec: RunSpec, here: &Here, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let request = GetRunPlanRequest {
        run_spec: spec,
        max_offers: Some(args.max_offers),
        reverse_offers: false,
        full_offers: args.offers.full_offers,
        unallocated_resources: args.offers.unallocated,
        for_offers_only: true,
    };
    let plan: RunPlan = here.client.post(&here.path("runs/get_plan"), &request)?;
    let job = plan.job_plans.first().ok_or_else(|| CliError::Unreadable {
        url: here.client.url().to_owned(),
        reason: "a plan without jobs".to_owned(),
    })?;
    let requirements = &job.job_spec.requirements;
    if args.is_json() {
        return cx.ui.json(&json!({
            "project": plan.project_name,
            "user": plan.user,
            "requirements": {
                "resources": requirements.resources,
                "max_price": requirements.max_price,
                "spot": requirements.spot,
                "reservation": requirements.reservation,
            },
            "offers": job.offers,
            "total_offers": job.total_offers,
        }));
    }
    if job.offers.is_empty() {
        return none(cx);
    }
    let table = view::offers::table(&cx.ui, &job.offers, job.total_offers, job.max_price);
    cx.ui.line(table)
}

fn grouped(
    args: &Args,
    spec: RunSpec,
    group_by: Vec<GpuGroupBy>,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let request = ListGpusRequest {
        run_spec: spec,
        group_by: Some(group_by.clone()).filter(|list| !list.is_empty()),
        reverse: false,
        full_offers: args.offers.full_offers,
        unallocated_resources: args.offers.unallocated,
    };
    let answer: ListGpusResponse = here.client.post(&here.path("gpus/list"), &request)?;
    if args.is_json() {
        let mut document = json!({ "project": here.project.name, "gpus": answer.gpus });
        if let Some(cpus) = &answer.cpus {
            document["cpus"] = json!(cpus);
        }
        return cx.ui.json(&document);
    }
    let cpus = answer.cpus.unwrap_or_default();
    if answer.gpus.is_empty() && cpus.is_empty() {
        return none(cx);
    }
    if !answer.gpus.is_empty() {
        let table = view::gpus::table(&cx.ui, &answer.gpus, &group_by);
        cx.ui.line(table)?;
    }
    if !cpus.is_empty() {
        let table = view::gpus::cpu_table(&cx.ui, &cpus);
        cx.ui.line(table)?;
    }
    Ok(())
}

fn none(cx: &mut Cx<'_>) -> Result<(), CliError> {
    cx.ui
        .warn("No offers match. `dstack backend list` shows which backends the server has.")
}
