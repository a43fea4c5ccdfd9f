//! Volumes and gateways.

use std::time::Duration;

use dstack_api::config::{GatewayConfiguration, VolumeConfiguration};
use dstack_api::gateways::{
    ApplyGatewayPlanInput, ApplyGatewayPlanRequest, Gateway, GatewayPlan, GatewaySpec,
    GatewayStatus, GetGatewayPlanRequest,
};
use dstack_api::runs::ApplyAction;
use dstack_api::volumes::{Volume, VolumeStatus};
use serde_json::{Value, json};

use super::Args;
use crate::cmd::{gateway, volume};
use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::view;

pub(crate) fn apply_volume(
    args: &Args,
    mut configuration: VolumeConfiguration,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    if args.name.is_some() {
        configuration.name.clone_from(&args.name);
    }
    super::check_name("volume", configuration.name.as_deref())?;
    let current = match &configuration.name {
        Some(name) => volume::find(here, name)?,
        None => None,
    };
    if let Some(current) = &current {
        let wanted = serde_json::to_value(&configuration).unwrap_or_default();
        if current.configuration == wanted && !args.force {
            let (name, status) = (&current.name, current.status);
            return cx.ui.line(format!(
                "Volume {name} exists ({status}), and nothing changed. Pass --force to make it anew; its data is lost then."
            ));
        }
        let question = format!(
            "Volume {} exists. Delete it with its data and create it again?",
            current.name
        );
        if !args.yes && !cx.ui.confirm(&question)? {
            return cx.ui.line("Exiting...");
        }
        volume::end(here, &current.name)?;
    } else if !agreed(args, "volume", configuration.name.as_deref(), cx)? {
        return Ok(());
    }
    let order = json!({ "configuration": configuration });
    let made: Volume = here.client.post(&here.path("volumes/create"), &order)?;
    if args.detach {
        return cx
            .ui
            .line(format!("Volume {} submitted, detaching...", made.name));
    }
    wait(made, here, cx)
}

/// Shows the volume until the provider has made it, or has not.
fn wait(mut made: Volume, here: &Here, cx: &mut Cx<'_>) -> Result<(), CliError> {
    loop {
        let table = view::volumes::table(&cx.ui, std::slice::from_ref(&made), false, cx.now());
        match made.status {
            VolumeStatus::Submitted | VolumeStatus::Provisioning => cx.ui.live(&table)?,
            VolumeStatus::Active => {
                cx.ui.live("")?;
                return cx.ui.line(table);
            }
            VolumeStatus::Failed => {
                cx.ui.live("")?;
                let why = made.status_message.unwrap_or_default();
                return Err(CliError::message(format!(
                    "volume {} could not be made: {why}",
                    made.name
                )));
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        made = volume::find(here, &made.name)?.ok_or_else(|| {
            CliError::message(format!("volume {} was deleted meanwhile", made.name))
        })?;
    }
}

pub(crate) fn apply_gateway(
    args: &Args,
    mut configuration: GatewayConfiguration,
    path: &str,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    if args.name.is_some() {
        configuration.name.clone_from(&args.name);
    }
    super::check_name("gateway", configuration.name.as_deref())?;
    let ask = GetGatewayPlanRequest {
        spec: GatewaySpec {
            configuration,
            configuration_path: Some(path.to_owned()),
        },
    };
    let plan: GatewayPlan = here
        .client
        .post(&here.path("gateways/get_plan"), &as_client(&ask))?;
    let is_update = plan.action == ApplyAction::Update;
    let mut current_resource = plan.current_resource;
    match &current_resource {
        None => {
            let name = plan.spec.configuration.name.as_deref();
            if !agreed(args, "gateway", name, cx)? {
                return Ok(());
            }
        }
        Some(current) => {
            let wanted = serde_json::to_value(&plan.effective_spec.configuration);
            let mut wanted = wanted.unwrap_or_default();
            if wanted["default"].is_null() {
                wanted["default"] = Value::Bool(current.default);
            }
            if current.configuration == wanted && !args.force {
                return cx.ui.line(format!(
                    "Gateway {} exists ({}), and nothing changed. Pass --force to apply it anyway.",
                    current.name, current.status
                ));
            }
            let question = if is_update {
                format!("Gateway {} exists. Update it in place?", current.name)
            } else {
                format!(
                    "Gateway {} exists. Delete it and create it again?",
                    current.name
                )
            };
            if !args.yes && !cx.ui.confirm(&question)? {
                return cx.ui.line("Exiting...");
            }
            if !is_update {
                gateway::end(here, &current.name)?;
            }
        }
    }
    if !is_update {
        current_resource = None;
    }
    let order = ApplyGatewayPlanRequest {
        plan: ApplyGatewayPlanInput {
            spec: plan.spec,
            current_resource,
        },
        force: args.force,
    };
    let made: Gateway = here
        .client
        .post(&here.path("gateways/apply"), &as_client(&order))?;
    if args.detach {
        return cx
            .ui
            .line(format!("Gateway {} submitted, detaching...", made.name));
    }
    wait_for_gateway(made, here, cx)
}

/// A request without what other servers do not know.
fn as_client(request: &impl serde::Serialize) -> Value {
    serde_json::to_value(request).unwrap_or_default()
}

/// Shows the gateway until it runs, or has failed.
fn wait_for_gateway(mut made: Gateway, here: &Here, cx: &mut Cx<'_>) -> Result<(), CliError> {
    loop {
        let table = view::gateways::table(&cx.ui, std::slice::from_ref(&made), false, cx.now());
        match made.status {
            GatewayStatus::Submitted | GatewayStatus::Provisioning => cx.ui.live(&table)?,
            GatewayStatus::Running => {
                cx.ui.live("")?;
                return cx.ui.line(table);
            }
            GatewayStatus::Failed => {
                cx.ui.live("")?;
                let why = made.status_message.unwrap_or_default();
                let name = &made.name;
                return Err(CliError::message(format!(
                    "gateway {name} could not be made: {why}"
                )));
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        made = gateway::find(here, &made.name)?.ok_or_else(|| {
            CliError::message(format!("gateway {} was deleted meanwhile", made.name))
        })?;
    }
}

fn agreed(args: &Args, what: &str, name: Option<&str>, cx: &mut Cx<'_>) -> Result<bool, CliError> {
    let target = name.map_or_else(
        || format!("a new {what}"),
        |name| format!("the {what} {name}"),
    );
    if args.yes || cx.ui.confirm(&format!("Create {target}?"))? {
        return Ok(true);
    }
    cx.ui.line("Exiting...")?;
    Ok(false)
}
