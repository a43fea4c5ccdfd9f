//! The table of volumes.

use dstack_api::volumes::{Volume, VolumeStatus};
use jiff::Timestamp;
use serde_json::Value;

use super::values;
use crate::ui::{Tone, Ui};

/// Volumes as a table.
pub(crate) fn table(ui: &Ui, volumes: &[Volume], is_verbose: bool, now: Timestamp) -> String {
    let head: &[&str] = if is_verbose {
        &[
            "NAME", "BACKEND", "REGION", "STATUS", "ATTACHED", "CREATED", "ERROR",
        ]
    } else {
        &["NAME", "BACKEND", "STATUS", "CREATED"]
    };
    let rows: Vec<_> = volumes
        .iter()
        .map(|volume| row(ui, volume, is_verbose, now))
        .collect();
    ui.table(head, &rows)
}

fn row(ui: &Ui, volume: &Volume, is_verbose: bool, now: Timestamp) -> Vec<String> {
    let text = |key: &str| {
        let value = volume.configuration.get(key).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let (tone, status) = match volume.status {
        _ if volume.deleted => (Tone::Dim, "deleted"),
        VolumeStatus::Active => (Tone::Good, volume.status.as_str()),
        VolumeStatus::Failed => (Tone::Bad, volume.status.as_str()),
        VolumeStatus::Submitted | VolumeStatus::Provisioning => {
            (Tone::Warn, volume.status.as_str())
        }
    };
    let mut row = vec![volume.name.clone(), text("backend")];
    if is_verbose {
        let zone = volume
            .provisioning_data
            .as_ref()
            .and_then(|data| data.availability_zone.clone());
        row.push(zone.unwrap_or_else(|| text("region")));
    }
    row.push(ui.paint(tone, status));
    if is_verbose {
        let places = volume.attachments.iter().flatten();
        let places: Vec<_> = places.map(|it| it.instance.name.clone()).collect();
        row.push(places.join(", "));
    }
    row.push(values::ago(volume.created_at, now));
    if is_verbose {
        row.push(volume.status_message.clone().unwrap_or_default());
    }
    row
}
