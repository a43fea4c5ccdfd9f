//! Runs: plan, question, submission.

use std::time::Duration;

use dstack_api::fleets::{Fleet, ListProjectFleetsRequest};
use dstack_api::instances::{Instance, InstanceStatus};
use dstack_api::runs::{ApplyAction, GetRunPlanRequest, Run, RunPlan, StopRunsRequest};
use serde_json::{Value, json};

use super::{Args, explain, run_spec};
use crate::attach;
use crate::cmd::logs::get_run;
use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::ssh::Wishes;
use crate::ui::Tone;
use crate::view;

/// What applying means for the run that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// There is none of that name, or it has ended.
    Submit,
    /// It is changed while it runs.
    Update,
    /// It is stopped, then a new one takes its name.
    Replace,
}

pub(crate) fn apply(
    args: &Args,
    source: run_spec::Source,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let (spec, code) = run_spec::make(args, source, here, cx)?;
    let request = GetRunPlanRequest {
        run_spec: spec,
        max_offers: Some(args.max_offers),
        reverse_offers: false,
        full_offers: args.offers.full_offers,
        unallocated_resources: args.offers.unallocated,
        for_offers_only: false,
    };
    // The answer is kept as it came: parts of it go back, and the server compares them with what it has.
    let answer: Value = here.client.post(&here.path("runs/get_plan"), &request)?;
    let plan = serde_json::from_value::<RunPlan>(answer.clone()).map_err(|error| {
        CliError::Unreadable {
            url: here.client.url().to_owned(),
            reason: error.to_string(),
        }
    })?;
    show(args, &plan, here, cx)?;
    if args.explain {
        explain::show(&request.run_spec, here, cx)?;
    }
    let change = change(&plan);
    let changed = changed(&answer);
    let name = plan.run_spec.run_name.clone();
    if change == Change::Update && changed.is_empty() && !args.force {
        let name = name.unwrap_or_default();
        return cx.ui.line(format!(
            "Run {name} is active, and nothing changed. Pass --force to apply it anyway."
        ));
    }
    if !args.yes
        && !cx
            .ui
            .confirm(&question(change, name.as_deref(), &plan, &changed))?
    {
        return cx.ui.line("Exiting...");
    }
    if change == Change::Replace {
        stop_and_wait(name.as_deref().unwrap_or_default(), here, cx)?;
    }
    code.upload(here)?;
    let order = json!({
        "plan": {
            "run_spec": answer["run_spec"],
            "current_resource": for_request(answer["current_resource"].clone()),
        },
        "force": args.force,
    });
    let run: Run = here.client.post(&here.path("runs/apply"), &order)?;
    let name = run.run_spec.run_name.clone().unwrap_or_default();
    let verb = if change == Change::Update {
        "updated"
    } else {
        "submitted"
    };
    if args.detach {
        return cx.ui.line(format!("Run {name} {verb}, detaching..."));
    }
    let follow = attach::Follow {
        verb: Some(verb),
        is_quick: args.yes,
        shows_log: true,
        since: None,
        replica: None,
        job: 0,
        wishes: Wishes {
            identity: args.ssh_identity.clone(),
            host: args.host.clone(),
            // Those of the options stand in the specification by now.
            ports: Vec::new(),
        },
    };
    attach::follow(run, follow, here, cx)
}

fn show(args: &Args, plan: &RunPlan, here: &Here, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let table = view::plan::run(&cx.ui, plan, args.verbose);
    cx.ui.line(table)?;
    cx.ui.line("")?;
    let mut shown = Vec::new();
    for job in &plan.job_plans {
        // Nodes that are alike share their offers.
        let requirements = &job.job_spec.requirements;
        if job.offers.is_empty() || shown.contains(&requirements) {
            continue;
        }
        shown.push(requirements);
        let table = view::offers::table(&cx.ui, &job.offers, job.total_offers, job.max_price);
        cx.ui.line(table)?;
        cx.ui.line("")?;
    }
    if let Some(note) = view::process_note(plan) {
        let note = cx.ui.paint(Tone::Warn, &note);
        cx.ui.line(note)?;
        cx.ui.line("")?;
    }
    if plan
        .job_plans
        .first()
        .is_some_and(|job| job.offers.is_empty())
    {
        let ask = ListProjectFleetsRequest {
            include_imported: true,
        };
        let fleets: Vec<Fleet> = here.client.post(&here.path("fleets/list"), &ask)?;
        let text = cx.ui.paint(Tone::Warn, &no_offers(&fleets));
        cx.ui.line(text)?;
        cx.ui.line("")?;
    }
    Ok(())
}

/// Why there may be none, and what to do.
fn no_offers(fleets: &[Fleet]) -> String {
    if fleets.is_empty() {
        return "The project has no fleets, and a run needs one. Create it first: `type: fleet` with `nodes: 0..1`, then `dstack apply -f FILE`.".to_owned();
    }
    let is_busy = |instance: &&Instance| instance.status == InstanceStatus::Busy;
    let instances = fleets.iter().flat_map(|fleet| &fleet.instances);
    let wait = match instances.filter(is_busy).count() {
        0 => String::new(),
        busy => format!(" wait until a machine is free ({busy} busy),"),
    };
    format!(
        "No offers match. Ask for less,{wait} or look at what there is: `dstack fleet -v`, `dstack offer`. Why: pass --explain."
    )
}

fn change(plan: &RunPlan) -> Change {
    let active = plan
        .current_resource
        .as_ref()
        .filter(|run| !run.status.is_finished());
    match (active, plan.action) {
        (None, _) => Change::Submit,
        (Some(_), ApplyAction::Update) => Change::Update,
        (Some(_), ApplyAction::Create) => Change::Replace,
    }
}

fn question(change: Change, name: Option<&str>, plan: &RunPlan, changed: &[String]) -> String {
    let what = name.map_or_else(|| "a new run".to_owned(), |name| format!("the run {name}"));
    let why = if changed.is_empty() {
        String::new()
    } else {
        format!(" Changed: {}.", changed.join(", "))
    };
    match change {
        Change::Submit if plan.current_resource.is_some() => {
            format!(
                "Finished run {} already exists. Override it?",
                name.unwrap_or_default()
            )
        }
        Change::Submit => format!("Submit {what}?"),
        Change::Update => format!("Active run already exists.{why} Update {what} in place?"),
        Change::Replace => format!(
            "Active run already exists and cannot be changed in place.{why} Stop and override {what}?"
        ),
    }
}

/// The keys in which the plan differs from the run that is there.
fn changed(answer: &Value) -> Vec<String> {
    let current = &answer["current_resource"]["run_spec"];
    let new = match &answer["effective_run_spec"] {
        Value::Null => &answer["run_spec"],
        effective => effective,
    };
    if current.is_null() {
        return Vec::new();
    }
    let keys = |new: &Value, current: &Value| -> Vec<String> {
        let all = new
            .as_object()
            .into_iter()
            .chain(current.as_object())
            .flat_map(|map| map.keys());
        let mut keys: Vec<String> = all
            .filter(|key| new[key.as_str()] != current[key.as_str()])
            .cloned()
            .collect();
        keys.sort();
        keys.dedup();
        keys
    };
    // Where the file lies does not matter to the run.
    let mut all: Vec<String> = keys(new, current)
        .into_iter()
        .filter(|key| key != "configuration" && key != "configuration_path")
        .collect();
    all.extend(keys(&new["configuration"], &current["configuration"]));
    all
}

/// A run as older servers take it in a request: without what they do not know there.
fn for_request(mut run: Value) -> Value {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.remove("job_connection_info");
                if map.contains_key("memory_mib") && map.contains_key("cpus") {
                    map.remove("description");
                }
                let defaults = [
                    ("node_group_index", json!(0)),
                    ("node_group_name", json!("0")),
                    ("node_group_job_index", json!(0)),
                ];
                if defaults
                    .iter()
                    .all(|(key, default)| map.get(*key) == Some(default))
                {
                    for (key, _) in &defaults {
                        map.remove(*key);
                    }
                }
                map.values_mut().for_each(clean);
            }
            Value::Array(items) => items.iter_mut().for_each(clean),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    clean(&mut run);
    run
}

fn stop_and_wait(name: &str, here: &Here, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let order = StopRunsRequest {
        runs_names: vec![name.to_owned()],
        abort: false,
    };
    here.client.post::<()>(&here.path("runs/stop"), &order)?;
    cx.ui.line(format!("Stopping the run {name}..."))?;
    loop {
        match get_run(here, name) {
            Ok(run) if run.status.is_finished() => return Ok(()),
            Ok(_) => std::thread::sleep(Duration::from_millis(250)),
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_keys_are_named_and_the_place_of_the_file_is_none() {
        let answer = json!({
            "effective_run_spec": {"configuration_path": "b.yml", "profile": null, "configuration": {"env": {"A": "1"}, "image": "x"}},
            "current_resource": {"run_spec": {"configuration_path": "a.yml", "profile": null, "configuration": {"env": {}, "image": "x", "user": "u"}}},
        });
        assert_eq!(changed(&answer), ["env", "user"]);
        assert_eq!(
            changed(&json!({"effective_run_spec": {"profile": 1}, "current_resource": null})),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_run_goes_back_without_what_older_servers_refuse() {
        let run = json!({"jobs": [{
            "job_connection_info": {},
            "job_spec": {"node_group_index": 0, "node_group_name": "0", "node_group_job_index": 0, "job_num": 0},
            "resources": {"cpus": 1, "memory_mib": 1, "description": ""},
        }, {"job_spec": {"node_group_index": 1, "node_group_name": "w", "node_group_job_index": 0}}]});
        let expected = json!({"jobs": [{
            "job_spec": {"job_num": 0},
            "resources": {"cpus": 1, "memory_mib": 1},
        }, {"job_spec": {"node_group_index": 1, "node_group_name": "w", "node_group_job_index": 0}}]});
        assert_eq!(for_request(run), expected);
    }
}
