//! Fleets: plan, question, creation.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use dstack_api::config::{FleetConfiguration, SshHost};
use dstack_api::fleets::{
    ApplyFleetPlanInput, ApplyFleetPlanRequest, DeleteFleetsRequest, Fleet, FleetPlan, FleetSpec,
    GetFleetPlanRequest, GetFleetRequest,
};
use dstack_api::instances::InstanceStatus;
use dstack_api::runs::ApplyAction;
use serde_json::Value;

use super::host_keys::Keys;
use super::{Args, profiles};
use crate::cmd::fleet::wait_gone;
use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::ui::Tone;
use crate::view;

pub(crate) fn apply(
    args: &Args,
    mut configuration: FleetConfiguration,
    path: &str,
    folder: &Path,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    if args.name.is_some() {
        configuration.name.clone_from(&args.name);
    }
    super::check_name("fleet", configuration.name.as_deref())?;
    args.fill_env(&mut configuration.env, cx)?;
    read_keys(&mut configuration, folder, cx)?;
    let profile = profiles::default(folder, cx)?;
    let spec = FleetSpec {
        configuration,
        configuration_path: Some(path.to_owned()),
        profile,
        autocreated: false,
    };
    let plan: FleetPlan = here.client.post(
        &here.path("fleets/get_plan"),
        &as_client(&GetFleetPlanRequest { spec }),
    )?;
    super::own_fields::check(
        &serde_json::to_value(&plan.spec.configuration).unwrap_or_default(),
        here,
    )?;
    show(args, &plan, cx)?;
    let current = plan.current_resource.as_ref();
    let effective = plan.effective_spec.as_ref().unwrap_or(&plan.spec);
    let is_update = plan.action == Some(ApplyAction::Update);
    let is_same = current.is_some_and(|fleet| {
        fleet.spec.configuration == effective.configuration
            && fleet.spec.profile == effective.profile
            && !lacks_hosts(fleet)
    });
    let name = plan.spec.configuration.name.clone();
    if is_same && !args.force {
        return cx.ui.line(format!(
            "Fleet {} exists, and nothing changed. Pass --force to apply it anyway.",
            name.unwrap_or_default()
        ));
    }
    // The same fleet, applied by force, is made anew.
    let is_replaced = current.is_some() && (!is_update || is_same);
    let what = name.as_ref().map_or_else(
        || "a new fleet".to_owned(),
        |name| format!("the fleet {name}"),
    );
    let question = match current {
        None => format!("Create {what}?"),
        Some(_) if is_replaced => format!("Fleet already exists. Delete and create {what} again?"),
        Some(_) => format!("Fleet already exists. Update {what} in place?"),
    };
    if !args.yes && !cx.ui.confirm(&question)? {
        return cx.ui.line("Exiting...");
    }
    if is_replaced && let Some(name) = &name {
        here.client.post::<()>(
            &here.path("fleets/delete"),
            &DeleteFleetsRequest {
                names: vec![name.clone()],
            },
        )?;
        wait_gone(
            here,
            &GetFleetRequest {
                name: Some(name.clone()),
                id: None,
            },
        )?;
    }
    let current_resource = plan.current_resource.filter(|_| !is_replaced);
    let order = ApplyFleetPlanRequest {
        plan: ApplyFleetPlanInput {
            spec: plan.spec,
            current_resource,
        },
        force: args.force,
    };
    let fleet: Fleet = here
        .client
        .post(&here.path("fleets/apply"), &as_client(&order))?;
    if args.detach {
        let verb = if is_update && !is_replaced {
            "updated"
        } else {
            "submitted"
        };
        return cx
            .ui
            .line(format!("Fleet {} {verb}, detaching...", fleet.name));
    }
    wait(fleet, here, cx)
}

/// Own hosts that could not be prepared are tried again, although the file is the same.
fn lacks_hosts(fleet: &Fleet) -> bool {
    let hosts = fleet.spec.configuration.ssh_config.as_ref();
    let living = fleet.instances.iter().filter(|it| it.status.is_active());
    hosts.is_some_and(|ssh| living.count() < ssh.hosts.len())
}

/// A request without the key of a spec that only servers set, which others refuse.
fn as_client(request: &impl serde::Serialize) -> Value {
    let mut request = serde_json::to_value(request).unwrap_or_default();
    for spec in ["/spec", "/plan/spec"] {
        if let Some(Value::Object(spec)) = request.pointer_mut(spec) {
            spec.remove("autocreated");
        }
    }
    request
}

fn show(args: &Args, plan: &FleetPlan, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let table = view::plan::fleet(&cx.ui, plan);
    cx.ui.line(table)?;
    cx.ui.line("")?;
    if plan.spec.configuration.ssh_config.is_some() {
        return Ok(());
    }
    if plan.offers.is_empty() {
        let text = cx.ui.paint(
            Tone::Warn,
            "No offers match. Ask for less, or look at what there is: `dstack offer`.",
        );
        cx.ui.line(text)?;
    } else {
        let count = usize::try_from(args.max_offers)
            .unwrap_or(usize::MAX)
            .min(plan.offers.len());
        let offers = plan.offers.get(..count).unwrap_or_default();
        let table = view::offers::table(&cx.ui, offers, plan.total_offers, plan.max_offer_price);
        cx.ui.line(table)?;
    }
    cx.ui.line("")
}

/// Shows the fleet until each of its instances is up, or gone.
fn wait(mut fleet: Fleet, here: &Here, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let ask = GetFleetRequest {
        name: Some(fleet.name.clone()),
        id: None,
    };
    let mut said = String::new();
    let mut reasons = BTreeMap::new();
    loop {
        for instance in &fleet.instances {
            let number = instance.instance_num;
            let why = instance.termination_reason_message.as_ref();
            let Some(why) = why.filter(|_| instance.status == InstanceStatus::Pending) else {
                continue;
            };
            if reasons.insert(number, why.clone()).as_ref() != Some(why) {
                cx.ui.live("")?;
                let text = format!("instance {number}: {why}; trying again");
                let text = cx.ui.paint(Tone::Warn, &text);
                cx.ui.line(text)?;
            }
        }
        let is_ready = !fleet.instances.iter().any(|instance| {
            matches!(
                instance.status,
                InstanceStatus::Pending | InstanceStatus::Provisioning
            )
        });
        let failed = fleet.instances.iter().any(|instance| {
            instance.status == InstanceStatus::Terminated && instance.termination_reason.is_some()
        });
        let table = view::fleets::table(&cx.ui, std::slice::from_ref(&fleet), failed, cx.now());
        if is_ready {
            cx.ui.live("")?;
            cx.ui.line(table)?;
            return if failed { Err(CliError::Quiet) } else { Ok(()) };
        }
        if cx.ui.is_terminal() {
            cx.ui.live(&table)?;
        } else {
            let count = |status| {
                fleet
                    .instances
                    .iter()
                    .filter(|instance| instance.status == status)
                    .count()
            };
            let text = format!(
                "{}: {} pending, {} provisioning, {} ready",
                fleet.name,
                count(InstanceStatus::Pending),
                count(InstanceStatus::Provisioning),
                count(InstanceStatus::Idle) + count(InstanceStatus::Busy),
            );
            if text != said {
                cx.ui.line(&text)?;
                said = text;
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        fleet = here.client.post(&here.path("fleets/get"), &ask)?;
    }
}

/// Puts the keys of own hosts into the configuration, from the files it names.
fn read_keys(
    configuration: &mut FleetConfiguration,
    folder: &Path,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let Some(ssh) = &mut configuration.ssh_config else {
        return Ok(());
    };
    let mut keys = Keys {
        folder,
        cx,
        known: BTreeMap::new(),
    };
    if let Some(file) = &ssh.identity_file {
        ssh.ssh_key = Some(keys.read(file)?);
    }
    if let Some(jump) = &mut ssh.proxy_jump {
        jump.ssh_key = Some(keys.read(&jump.identity_file)?);
    }
    for host in &mut ssh.hosts {
        let SshHost::Params(host) = host else {
            continue;
        };
        if let Some(file) = &host.identity_file {
            host.ssh_key = Some(keys.read(file)?);
        }
        if let Some(jump) = &mut host.proxy_jump {
            jump.ssh_key = Some(keys.read(&jump.identity_file)?);
        }
    }
    Ok(())
}
