//! What is wrong with a file: rows that cannot be, and what a whole file of a known provider must have.

mod coverage;

use dstack_backend_types::CatalogItem;
use serde::{Deserialize, Serialize};

use crate::archive::{ArchiveError, read_zip, usable};
use crate::table::Table;

/// Defects that are told one by one; of more only the number.
const TOLD: usize = 50;

/// What a file claims to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All that its provider rents out.
    Whole,
    /// A part of it: only the rows are looked at.
    Partial,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Good rows.
    pub rows: usize,
    /// Rows that cannot be read.
    pub skipped: usize,
    /// What is wrong, for people; nothing if all is well.
    pub defects: Vec<String>,
}

/// Checks a CSV text or a zip file with one.
///
/// # Errors
/// Nothing in it can be read.
pub fn check(
    provider: &str,
    bytes: &[u8],
    coverage: Coverage,
) -> Result<CheckReport, ArchiveError> {
    let loaded = if bytes.starts_with(b"PK") {
        read_zip(provider, bytes)?
    } else {
        usable(provider, Table::read(bytes))?
    };
    let items: Vec<CatalogItem> = loaded.table.items().collect();
    let mut defects: Vec<String> = loaded
        .bad
        .iter()
        .map(|row| format!("line {}: {}", row.line, row.reason))
        .collect();
    for item in &items {
        for defect in of_row(item) {
            let (name, location) = (&item.instance_name, &item.location);
            defects.push(format!("{name} in {location}: {defect}"));
        }
    }
    if coverage == Coverage::Whole {
        defects.extend(coverage::missing(provider, &items));
    }
    let more = defects.len().saturating_sub(TOLD);
    if more > 0 {
        defects.truncate(TOLD);
        defects.push(format!("{more} more"));
    }
    Ok(CheckReport {
        rows: items.len(),
        skipped: loaded.bad_count,
        defects,
    })
}

/// What of one row cannot be.
pub(crate) fn of_row(item: &CatalogItem) -> Vec<&'static str> {
    let has_gpu = item.gpu_count > 0;
    let gpu_fields = [
        item.gpu_name.is_some(),
        item.gpu_memory.is_some(),
        item.gpu_vendor.is_some(),
    ];
    [
        (item.price <= 0.0, "the price is not above 0"),
        (item.cpu == 0, "it has no processor"),
        (item.memory <= 0.0, "it has no memory"),
        (
            item.disk_size.is_some_and(|size| size <= 0.0),
            "the disk is not above 0",
        ),
        (
            has_gpu && gpu_fields.contains(&false),
            "accelerators without model, memory or maker",
        ),
        (
            !has_gpu && gpu_fields.contains(&true),
            "a model, memory or maker of no accelerators",
        ),
    ]
    .into_iter()
    .filter_map(|(is_so, defect)| is_so.then_some(defect))
    .collect()
}
