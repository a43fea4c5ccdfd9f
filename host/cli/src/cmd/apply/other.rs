//! Volumes and gateways.

use dstack_api::config::{GatewayConfiguration, VolumeConfiguration};
use serde_json::{Value, json};

use super::Args;
use crate::cx::{Cx, Here};
use crate::error::CliError;

pub(crate) fn volume(
    args: &Args,
    mut configuration: VolumeConfiguration,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    if args.name.is_some() {
        configuration.name.clone_from(&args.name);
    }
    if !agreed(args, "volume", configuration.name.as_deref(), cx)? {
        return Ok(());
    }
    let order = json!({ "configuration": configuration });
    let volume: Value = here.client.post(&here.path("volumes/create"), &order)?;
    submitted("Volume", &volume, cx)
}

pub(crate) fn gateway(
    args: &Args,
    mut configuration: GatewayConfiguration,
    path: &str,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    if args.name.is_some() {
        configuration.name.clone_from(&args.name);
    }
    let name = configuration.name.clone();
    let spec = json!({ "configuration": configuration, "configuration_path": path });
    let plan: Value = here
        .client
        .post(&here.path("gateways/get_plan"), &json!({ "spec": spec }))?;
    if !agreed(args, "gateway", name.as_deref(), cx)? {
        return Ok(());
    }
    let order = json!({
        "plan": { "spec": plan["spec"], "current_resource": plan["current_resource"] },
        "force": args.force,
    });
    let gateway: Value = here.client.post(&here.path("gateways/apply"), &order)?;
    submitted("Gateway", &gateway, cx)
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

fn submitted(what: &str, answer: &Value, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let name = answer["name"].as_str().unwrap_or_default();
    cx.ui.line(format!("{what} {name} submitted, detaching..."))
}
