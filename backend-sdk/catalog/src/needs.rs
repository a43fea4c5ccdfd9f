//! Queries by what a job needs, as backends ask them.

use dstack_backend_types::resources::{ComputeCapability, GpuSpec, Memory};
use dstack_backend_types::services::CatalogQuery;
use dstack_backend_types::{AcceleratorVendor, CatalogItem, Gpu, Requirements, gpus};

use crate::table::{GpuKind, Hot, Judged, Table, Traits};

/// The items that a backend asks for, in the table's order. The rules are those of [`CatalogItem::fits`], each judged once for
/// all rows that are alike in it.
pub fn select(table: &Table, query: &CatalogQuery) -> Vec<CatalogItem> {
    rows(table, query)
        .into_iter()
        .filter_map(|row| table.item(row))
        .collect()
}

fn rows(table: &Table, query: &CatalogQuery) -> Vec<u32> {
    let needs = query.requirements.as_ref();
    let judged = Judged {
        gpus: table
            .gpus
            .iter()
            .map(|kind| needs.is_none_or(|needs| gpu_fits(kind, needs.resources.gpu.as_ref())))
            .collect(),
        traits: table
            .traits
            .iter()
            .map(|traits| {
                has_only(traits, query.flags.as_deref())
                    && needs
                        .is_none_or(|needs| traits_fit(traits, needs, query.is_disk_configurable))
            })
            .collect(),
        locations: query
            .locations
            .as_ref()
            .map(|wanted| table.locations_in(wanted)),
    };
    table.select(&judged, |hot| {
        needs.is_none_or(|needs| row_fits(hot, needs))
    })
}

fn has_only(traits: &Traits, flags: Option<&[String]>) -> bool {
    flags.is_none_or(|known| traits.flags.iter().all(|flag| known.contains(flag)))
}

fn row_fits(row: &Hot, needs: &Requirements) -> bool {
    needs.max_price.is_none_or(|max| row.price <= max)
        && needs.resources.cpu.count.contains(row.cpu)
        && needs.resources.memory.contains(in_mib(row.memory))
}

fn traits_fit(traits: &Traits, needs: &Requirements, is_disk_configurable: bool) -> bool {
    let disk = in_mib(traits.disk.unwrap_or_default());
    needs.spot.is_none_or(|spot| spot == traits.spot)
        && needs
            .resources
            .cpu
            .arch
            .is_none_or(|arch| arch == traits.arch)
        && (is_disk_configurable
            || disk == Memory(0.0)
            || needs
                .resources
                .disk
                .is_none_or(|asked| asked.size.contains(disk)))
}

/// Offers have sizes in whole MiB, and are filtered by them.
fn in_mib(gib: f64) -> Memory {
    Memory::from_mib(Memory(gib).mib())
}

fn gpu_fits(has: &GpuKind, spec: Option<&GpuSpec>) -> bool {
    let Some(spec) = spec else { return true };
    if has.count == 0 {
        return spec.count.min == Some(0) || no_gpu_fits(spec);
    }
    let mib = Memory(has.memory.unwrap_or_default()).mib();
    let total = Memory::from_mib(mib.saturating_mul(u64::from(has.count)));
    let gpu = Gpu {
        name: has.name.clone().unwrap_or_default(),
        memory_mib: mib,
        vendor: has.vendor,
    };
    spec.count.contains(has.count)
        && spec
            .memory
            .is_none_or(|asked| asked.contains(Memory::from_mib(mib)))
        && spec.total_memory.is_none_or(|asked| asked.contains(total))
        && spec.vendor.is_none_or(|asked| gpu.vendor() == asked)
        && spec.name.as_ref().is_none_or(|names| {
            names
                .iter()
                .any(|name| name.eq_ignore_ascii_case(&gpu.name))
        })
        && spec.compute_capability.is_none_or(|least| {
            gpu.vendor() == AcceleratorVendor::Nvidia
                && gpus::compute_capability(&gpu.name)
                    .is_some_and(|(major, minor)| ComputeCapability(major, minor) >= least)
        })
}

/// Whether a machine without accelerators has what is asked of them: nothing but sizes from 0.
fn no_gpu_fits(spec: &GpuSpec) -> bool {
    let none = Memory(0.0);
    spec.count.contains(0)
        && spec.memory.is_none_or(|asked| asked.contains(none))
        && spec.total_memory.is_none_or(|asked| asked.contains(none))
        && spec.vendor.is_none()
        && spec.name.is_none()
        && spec.compute_capability.is_none()
}
