//! The table of gateways.

use dstack_api::gateways::{Gateway, GatewayReplica, GatewayReplicaStatus, GatewayStatus};
use jiff::Timestamp;
use serde_json::Value;

use super::values;
use crate::ui::{Tone, Ui};

/// Gateways as a table. One with several machines, or with a load balancer in a verbose table, has a row for each of them.
pub(crate) fn table(ui: &Ui, gateways: &[Gateway], is_verbose: bool, now: Timestamp) -> String {
    let mut head = vec!["NAME", "BACKEND", "HOSTNAME", "DOMAIN", "DEFAULT", "STATUS"];
    if is_verbose {
        head.extend(["CREATED", "ERROR"]);
    }
    let mut rows = Vec::new();
    for gateway in gateways {
        rows.push(row(ui, gateway, is_verbose, now));
        if gateway.replicas.len() > 1 {
            let replicas = gateway.replicas.iter();
            rows.extend(replicas.map(|replica| replica_row(ui, replica, is_verbose, now)));
        }
    }
    ui.table(&head, &rows)
}

fn row(ui: &Ui, gateway: &Gateway, is_verbose: bool, now: Timestamp) -> Vec<String> {
    let text = |key: &str| {
        let value = gateway.configuration.get(key).and_then(Value::as_str);
        value.unwrap_or_default()
    };
    let tone = match gateway.status {
        GatewayStatus::Running => Tone::Good,
        GatewayStatus::Failed => Tone::Bad,
        GatewayStatus::Submitted | GatewayStatus::Provisioning => Tone::Warn,
    };
    let mut row = vec![
        gateway.name.clone(),
        format!("{} ({})", text("backend"), text("region")),
        gateway.hostname.clone().unwrap_or_default(),
        gateway.wildcard_domain.clone().unwrap_or_default(),
        if gateway.default { "✓" } else { "" }.to_owned(),
        ui.paint(tone, gateway.status.as_str()),
    ];
    if is_verbose {
        row.push(values::ago(gateway.created_at, now));
        row.push(gateway.status_message.clone().unwrap_or_default());
    }
    row
}

fn replica_row(ui: &Ui, replica: &GatewayReplica, is_verbose: bool, now: Timestamp) -> Vec<String> {
    let tone = match replica.status {
        GatewayReplicaStatus::Running => Tone::Good,
        GatewayReplicaStatus::Terminated => Tone::Dim,
        GatewayReplicaStatus::Submitted
        | GatewayReplicaStatus::Provisioning
        | GatewayReplicaStatus::Terminating => Tone::Warn,
    };
    let backend = replica.backend.as_ref();
    let region = replica.region.as_deref().unwrap_or_default();
    let mut row = vec![
        format!("   replica={}", replica.replica_num),
        backend
            .map(|name| values::backend(name, region))
            .unwrap_or_default(),
        replica.hostname.clone().unwrap_or_default(),
        String::new(),
        String::new(),
        ui.paint(tone, replica.status.as_str()),
    ];
    if is_verbose {
        row.push(values::ago(replica.created_at, now));
        row.push(replica.status_message.clone().unwrap_or_default());
    }
    row
}
