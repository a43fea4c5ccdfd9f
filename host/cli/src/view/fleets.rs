//! The table of fleets and their instances.

use dstack_api::config::{FleetConfiguration, FleetNodes};
use dstack_api::fleets::Fleet;
use dstack_api::instances::{HealthStatus, Instance};
use jiff::Timestamp;

use super::values;
use crate::ui::{Tone, Ui};

/// Fleets as a table: a fleet's row, then its instances'.
pub(crate) fn table(ui: &Ui, fleets: &[Fleet], is_verbose: bool, now: Timestamp) -> String {
    let head: &[&str] = if is_verbose {
        &[
            "NAME",
            "NODES",
            "RESOURCES",
            "SPOT",
            "BACKEND",
            "PRICE",
            "STATUS",
            "CREATED",
            "ERROR",
        ]
    } else {
        &[
            "NAME", "NODES", "GPU", "SPOT", "BACKEND", "PRICE", "STATUS", "CREATED",
        ]
    };
    let mut rows = Vec::new();
    for fleet in fleets {
        rows.push(fleet_row(ui, fleet, is_verbose, now));
        rows.extend(
            fleet
                .instances
                .iter()
                .map(|instance| instance_row(ui, instance, is_verbose, now)),
        );
    }
    ui.table(head, &rows)
}

fn fleet_row(ui: &Ui, fleet: &Fleet, is_verbose: bool, now: Timestamp) -> Vec<String> {
    let status = ui.paint(
        if fleet.status == dstack_api::fleets::FleetStatus::Active {
            Tone::Good
        } else {
            Tone::Warn
        },
        fleet.status.as_str(),
    );
    let mut row = vec![fleet.name.clone(), nodes(&fleet.spec.configuration)];
    row.extend(["", "", "", ""].map(str::to_owned));
    row.push(status);
    row.push(values::ago(fleet.created_at, now));
    if is_verbose {
        row.push(fleet.status_message.clone().unwrap_or_default());
    }
    row
}

/// `0..1`, `2`, `1..`; for SSH fleets the number of hosts.
pub(crate) fn nodes(configuration: &FleetConfiguration) -> String {
    match (&configuration.nodes, &configuration.ssh_config) {
        (
            Some(FleetNodes {
                min,
                max: Some(max),
                ..
            }),
            _,
        ) if max == min => min.to_string(),
        (
            Some(FleetNodes {
                min,
                max: Some(max),
                ..
            }),
            _,
        ) => format!("{min}..{max}"),
        (Some(FleetNodes { min, max: None, .. }), _) => format!("{min}.."),
        (None, Some(ssh)) => ssh.hosts.len().to_string(),
        (None, None) => String::new(),
    }
}

fn instance_row(ui: &Ui, instance: &Instance, is_verbose: bool, now: Timestamp) -> Vec<String> {
    let resources = instance.instance_type.as_ref().map(|kind| &kind.resources);
    let what = resources.map(|it| {
        if is_verbose {
            values::resources(it)
        } else {
            values::gpus(it).unwrap_or_else(|| "-".to_owned())
        }
    });
    let backend = instance
        .backend
        .as_ref()
        .map(|name| values::backend(name, instance.region.as_deref().unwrap_or_default()))
        .unwrap_or_default();
    let mut row = vec![
        format!("   instance={}", instance.instance_num),
        String::new(),
        what.unwrap_or_default(),
        resources
            .map(|it| if it.spot { "yes" } else { "no" })
            .unwrap_or_default()
            .to_owned(),
        backend,
        instance.price.map(values::price).unwrap_or_default(),
        status(ui, instance),
        values::ago(instance.created, now),
    ];
    if is_verbose {
        let reason = instance.termination_reason.clone().unwrap_or_default();
        let message = instance
            .termination_reason_message
            .clone()
            .map(|text| format!(" ({text})"))
            .unwrap_or_default();
        row.push(format!("{reason}{message}"));
    }
    row
}

/// The status with the blocks in use and what is wrong with the machine.
fn status(ui: &Ui, instance: &Instance) -> String {
    let mut text = ui.paint(
        values::instance_tone(instance.status),
        instance.status.as_str(),
    );
    if let Some(total) = instance.total_blocks.filter(|total| *total > 1) {
        text.push_str(&format!(" ({}/{total})", instance.busy_blocks));
    }
    if instance.unreachable {
        text.push_str(&ui.paint(Tone::Bad, " (unreachable)"));
    } else if instance.health_status != HealthStatus::Healthy {
        text.push_str(&ui.paint(Tone::Warn, &format!(" ({})", instance.health_status)));
    }
    text
}
