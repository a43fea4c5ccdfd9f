//! `dstack offer`: what machines there are, and at what price.

mod elsewhere;
mod explain;

use dstack_api::config::RunConfiguration;
use dstack_api::gpus::{GpuGroupBy, ListGpusRequest, ListGpusResponse};
use dstack_api::runs::{GetRunPlanRequest, RunPlan, RunSpec};
use dstack_backend_types::Requirements;
use dstack_backend_types::resources::ResourcesSpec;
use serde_json::{Value, json};

use self::elsewhere::Elsewhere;

use crate::cmd::apply::choose_profile;
use crate::cmd::options::{OfferOptions, ProfileOptions, ResourceOptions};
use crate::cx::{Cx, Here, ProjectOption};
use crate::error::CliError;
use crate::local_config::ConfigError;
use crate::{prices, view};

/// What machines are offered, and at what price
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack offer                          the cheapest of everything\n  dstack offer --gpu H100:8 --spot      spot machines with eight H100\n  dstack offer --gpu 24GB.. -b aws --max-price 2\n  dstack offer --group-by gpu,backend   by GPU and backend\n  dstack offer --gpu H100 --explain     what each condition costs\n  dstack offer --catalog                also of clouds that are not set up\n  dstack offer --json                   for scripts"
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
    /// Also the catalog's prices of clouds that are not set up; without a cloud that is, they are shown anyway
    #[arg(long)]
    catalog: bool,
    /// Say how many offers there were without each of the conditions
    #[arg(long, conflicts_with = "group_by")]
    explain: bool,
    #[command(flatten)]
    offers: OfferOptions,
    #[command(flatten)]
    resources: ResourceOptions,
    #[command(flatten)]
    profile: ProfileOptions,
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let group_by = grouping(&args.group_by)?;
    let spec = spec(&args, cx)?;
    match (here(&args, cx)?, group_by) {
        (Some(here), Some(group_by)) => grouped(&args, spec, group_by, &here, cx),
        (Some(here), None) => single(&args, spec, &here, cx),
        (None, group_by) => elsewhere::alone(&args, &spec, group_by, cx),
    }
}

/// The project; `None` if no server is known yet: prices are shown all the same.
fn here(args: &Args, cx: &mut Cx<'_>) -> Result<Option<Here>, CliError> {
    match cx.here(args.project.project.as_deref()) {
        Ok(here) => Ok(Some(here)),
        Err(CliError::Config(ConfigError::Empty)) => Ok(None),
        Err(error) => Err(error),
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

fn spec(args: &Args, cx: &Cx<'_>) -> Result<RunSpec, CliError> {
    spec_of(&args.resources, &args.profile, cx)
}

/// A run that asks for nothing but what the options say. The image is one that servers never look up.
fn spec_of(
    asked: &ResourceOptions,
    profile: &ProfileOptions,
    cx: &Cx<'_>,
) -> Result<RunSpec, CliError> {
    let text = json!({"type": "task", "image": "scratch", "commands": [":"], "user": "root"});
    let mut configuration: RunConfiguration =
        serde_json::from_value(text).expect("the text above is a task");
    let mut resources = ResourcesSpec::unconstrained();
    asked.apply(&mut resources);
    configuration.base_mut().resources = resources;
    profile.apply(configuration.profile_mut());
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
        profile: Some(choose_profile(profile, &cx.folder, cx)?),
        ssh_key_pub: None,
    })
}

impl Args {
    fn is_json(&self) -> bool {
        self.json || self.format == "json"
    }
}

fn ask(args: &Args, spec: RunSpec, max_offers: u32, here: &Here) -> Result<RunPlan, CliError> {
    let request = GetRunPlanRequest {
        run_spec: spec,
        max_offers: Some(max_offers),
        reverse_offers: false,
        full_offers: args.offers.full_offers,
        unallocated_resources: args.offers.unallocated,
        for_offers_only: true,
    };
    here.client.post(&here.path("runs/get_plan"), &request)
}

fn single(args: &Args, spec: RunSpec, here: &Here, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let plan = ask(args, spec.clone(), args.max_offers, here)?;
    let job = plan.job_plans.first().ok_or_else(|| CliError::Unreadable {
        url: here.client.url().to_owned(),
        reason: "a plan without jobs".to_owned(),
    })?;
    let requirements = &job.job_spec.requirements;
    let elsewhere = Elsewhere::beside(args, &spec, requirements, here)?;
    let explained = args
        .explain
        .then(|| explain::with_server(args, job.total_offers, here, cx))
        .transpose()?;
    if args.is_json() {
        let mut document = document(requirements);
        document["project"] = json!(plan.project_name);
        document["user"] = json!(plan.user);
        document["offers"] = json!(job.offers);
        document["total_offers"] = json!(job.total_offers);
        if let Some(elsewhere) = &elsewhere {
            document["catalog"] = elsewhere.json();
        }
        if let Some(explained) = &explained {
            document["explain"] = json!(explained);
        }
        return cx.ui.json(&document);
    }
    if !job.offers.is_empty() {
        let table = view::offers::table(&cx.ui, &job.offers, job.total_offers, job.max_price);
        cx.ui.line(table)?;
    } else if elsewhere.is_none() {
        none(cx)?;
    }
    if let Some(elsewhere) = &elsewhere {
        elsewhere.show(job.offers.is_empty(), cx)?;
    }
    explained.map_or(Ok(()), |explained| explain::show(&explained, cx))
}

/// What a script reads, without what only a server knows.
fn document(requirements: &Requirements) -> Value {
    json!({
        "project": null,
        "user": null,
        "requirements": {
            "resources": requirements.resources,
            "max_price": requirements.max_price,
            "spot": requirements.spot,
            "reservation": requirements.reservation,
        },
        "offers": [],
        "total_offers": 0,
    })
}

fn grouped(
    args: &Args,
    spec: RunSpec,
    group_by: Vec<GpuGroupBy>,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let request = ListGpusRequest {
        run_spec: spec.clone(),
        group_by: Some(group_by.clone()).filter(|list| !list.is_empty()),
        reverse: false,
        full_offers: args.offers.full_offers,
        unallocated_resources: args.offers.unallocated,
    };
    let answer: ListGpusResponse = here.client.post(&here.path("gpus/list"), &request)?;
    let elsewhere = Elsewhere::beside(args, &spec, &prices::needs(&spec), here)?;
    let other = elsewhere.as_ref().map(|one| one.groups(&spec, &group_by));
    if args.is_json() {
        let mut document = json!({ "project": here.project.name, "gpus": answer.gpus });
        if let Some(cpus) = &answer.cpus {
            document["cpus"] = json!(cpus);
        }
        if let Some(other) = &other {
            document["catalog"] = json!(other);
        }
        return cx.ui.json(&document);
    }
    let has_own = show_groups(&answer, &group_by, cx)?;
    match (&elsewhere, &other) {
        (Some(elsewhere), Some(other)) => {
            elsewhere.head(!has_own, cx)?;
            show_groups(other, &group_by, cx)?;
            elsewhere.foot(cx)
        }
        _ if has_own => Ok(()),
        _ => none(cx),
    }
}

/// Whether there was something to show.
fn show_groups(
    answer: &ListGpusResponse,
    group_by: &[GpuGroupBy],
    cx: &mut Cx<'_>,
) -> Result<bool, CliError> {
    let cpus = answer.cpus.as_deref().unwrap_or_default();
    if !answer.gpus.is_empty() {
        let table = view::gpus::table(&cx.ui, &answer.gpus, group_by);
        cx.ui.line(table)?;
    }
    if !cpus.is_empty() {
        let table = view::gpus::cpu_table(&cx.ui, cpus);
        cx.ui.line(table)?;
    }
    Ok(!answer.gpus.is_empty() || !cpus.is_empty())
}

fn none(cx: &mut Cx<'_>) -> Result<(), CliError> {
    cx.ui
        .warn("No offers match. `dstack backend list` shows which backends the server has.")
}
