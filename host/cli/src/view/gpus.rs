//! The table of offers grouped by GPU.

use dstack_api::gpus::{CpuGroup, GpuGroup, GpuGroupBy, Span};
use dstack_backend_types::BackendType;

use super::values;
use crate::ui::Ui;

/// One row a group.
pub(crate) fn table(ui: &Ui, groups: &[GpuGroup], by: &[GpuGroupBy]) -> String {
    let has_region = by.contains(&GpuGroupBy::Region);
    let rows: Vec<Vec<String>> = groups
        .iter()
        .enumerate()
        .map(|(at, group)| {
            let memory = match group.memory_mib {
                0 => String::new(),
                mib => format!(":{}", values::memory(mib)),
            };
            let backends = place(
                group.backend.as_ref(),
                group.backends.as_deref(),
                group.region.as_deref().filter(|_| has_region),
            );
            vec![
                (at + 1).to_string(),
                format!(
                    "{}{memory}:{}",
                    group.name,
                    span(group.count, |count| count.to_string())
                ),
                group.spot.join(", "),
                span(group.price, values::price),
                backends,
            ]
        })
        .collect();
    ui.table(&["#", "GPU", "SPOT", "$/GPU", "BACKEND"], &rows)
}

/// The same for machines without GPU.
pub(crate) fn cpu_table(ui: &Ui, groups: &[CpuGroup]) -> String {
    let rows: Vec<Vec<String>> = groups
        .iter()
        .enumerate()
        .map(|(at, group)| {
            let cpu = format!(
                "{}:{}",
                group.cpu_arch.join(","),
                span(group.count, |count| count.to_string())
            );
            vec![
                (at + 1).to_string(),
                cpu,
                span(group.memory_mib, values::memory),
                group.spot.join(", "),
                span(group.price, values::price),
                place(
                    group.backend.as_ref(),
                    group.backends.as_deref(),
                    group.region.as_deref(),
                ),
            ]
        })
        .collect();
    ui.table(&["#", "CPU", "MEMORY", "SPOT", "PRICE", "BACKEND"], &rows)
}

fn place(one: Option<&BackendType>, all: Option<&[BackendType]>, region: Option<&str>) -> String {
    match one {
        Some(backend) => values::backend(backend, region.unwrap_or_default()),
        None => {
            let names = all
                .unwrap_or_default()
                .iter()
                .map(|backend| values::backend(backend, ""));
            names.collect::<Vec<_>>().join(", ")
        }
    }
}

fn span<T: PartialEq + Copy>(span: Span<T>, show: impl Fn(T) -> String) -> String {
    match (span.min, span.max) {
        (Some(min), Some(max)) if min == max => show(min),
        (Some(min), Some(max)) => format!("{}..{}", show(min), show(max)),
        (Some(min), None) => format!("{}..", show(min)),
        (None, Some(max)) => format!("..{}", show(max)),
        (None, None) => "-".to_owned(),
    }
}
