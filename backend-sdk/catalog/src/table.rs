//! Rows of one provider in columns: every text once, every kind of accelerator judged once a query.

use std::collections::HashMap;
use std::hash::Hash;

use dstack_backend_types::catalog::{BadRow, CatalogItem, each_row};
use dstack_backend_types::{AcceleratorVendor, CpuArchitecture, gpus};

/// Bad rows that are kept; of more only the number is known.
const KEPT_BAD_ROWS: usize = 100;

/// What of a file could be used.
#[derive(Debug)]
pub struct Loaded {
    /// The good rows.
    pub table: Table,
    /// The first bad rows.
    pub bad: Vec<BadRow>,
    /// How many rows are bad.
    pub bad_count: usize,
}

/// The accelerators of a machine. Few kinds are many rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GpuKind {
    pub(crate) vendor: Option<AcceleratorVendor>,
    pub(crate) name: Option<String>,
    /// Of one, in GiB.
    pub(crate) memory: Option<f64>,
    pub(crate) count: u32,
    /// NVIDIA only, of a known model.
    pub(crate) capability: Option<(u32, u32)>,
}

/// What else has few values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Traits {
    pub(crate) spot: bool,
    pub(crate) arch: CpuArchitecture,
    /// In GB.
    pub(crate) disk: Option<f64>,
    pub(crate) flags: Vec<String>,
}

/// What a query looks at in every row: 32 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hot {
    pub(crate) price: f64,
    pub(crate) memory: f64,
    pub(crate) cpu: u32,
    pub(crate) gpu: u32,
    pub(crate) traits: u32,
    location: u32,
}

/// What is only needed of rows that fit.
#[derive(Debug, Clone, Copy)]
struct Cold {
    name: u32,
    data: u32,
}

/// All rows of one provider, in the order of its file.
#[derive(Debug, Default)]
pub struct Table {
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    names: Vec<Box<str>>,
    locations: Vec<Box<str>>,
    /// Provider data as JSON; empty for none.
    data: Vec<Box<str>>,
    pub(crate) gpus: Vec<GpuKind>,
    pub(crate) traits: Vec<Traits>,
    /// Rows of each kind of accelerator, ascending.
    by_gpu: Vec<Vec<u32>>,
}

/// Values by number, while a table is filled.
struct Numbers<K>(HashMap<K, u32>);

impl<K: Eq + Hash> Numbers<K> {
    fn new() -> Self {
        Self(HashMap::new())
    }

    /// The number of a value; `make` adds a new one to the list that the numbers count.
    fn of(&mut self, key: K, make: impl FnOnce(&K) -> usize) -> u32 {
        if let Some(number) = self.0.get(&key) {
            return *number;
        }
        let number = u32::try_from(make(&key)).expect("fewer values than rows");
        self.0.insert(key, number);
        number
    }
}

type GpuKey = (Option<AcceleratorVendor>, Option<String>, Option<u64>, u32);
type TraitsKey = (bool, CpuArchitecture, Option<u64>, Vec<String>);

/// A table that is being filled.
struct Builder {
    table: Table,
    names: Numbers<Box<str>>,
    locations: Numbers<Box<str>>,
    data: Numbers<Box<str>>,
    gpus: Numbers<GpuKey>,
    traits: Numbers<TraitsKey>,
}

fn text(list: &mut Vec<Box<str>>, numbers: &mut Numbers<Box<str>>, value: String) -> u32 {
    numbers.of(value.into_boxed_str(), |value| {
        list.push(value.clone());
        list.len() - 1
    })
}

impl Builder {
    fn new() -> Self {
        Self {
            table: Table::default(),
            names: Numbers::new(),
            locations: Numbers::new(),
            data: Numbers::new(),
            gpus: Numbers::new(),
            traits: Numbers::new(),
        }
    }

    fn push(&mut self, item: CatalogItem) {
        let table = &mut self.table;
        let data = if item.provider_data.is_empty() {
            String::new()
        } else {
            serde_json::Value::Object(item.provider_data).to_string()
        };
        let name = text(&mut table.names, &mut self.names, item.instance_name);
        let data = text(&mut table.data, &mut self.data, data);
        let location = text(&mut table.locations, &mut self.locations, item.location);
        let key = (
            item.gpu_vendor,
            item.gpu_name,
            item.gpu_memory.map(f64::to_bits),
            item.gpu_count,
        );
        let (kinds, by_gpu) = (&mut table.gpus, &mut table.by_gpu);
        let gpu = self.gpus.of(key, |(vendor, name, memory, count)| {
            let is_nvidia = *vendor == Some(AcceleratorVendor::Nvidia);
            let model = name.as_deref().filter(|_| is_nvidia);
            kinds.push(GpuKind {
                vendor: *vendor,
                name: name.clone(),
                memory: memory.map(f64::from_bits),
                count: *count,
                capability: model.and_then(gpus::compute_capability),
            });
            by_gpu.push(Vec::new());
            kinds.len() - 1
        });
        let key = (
            item.spot,
            item.cpu_arch,
            item.disk_size.map(f64::to_bits),
            item.flags,
        );
        let all = &mut table.traits;
        let traits = self.traits.of(key, |(spot, arch, disk, flags)| {
            all.push(Traits {
                spot: *spot,
                arch: *arch,
                disk: disk.map(f64::from_bits),
                flags: flags.clone(),
            });
            all.len() - 1
        });
        let row =
            u32::try_from(table.hot.len()).expect("no catalog has four thousand million rows");
        if let Some(rows) = table.by_gpu.get_mut(index(gpu)) {
            rows.push(row);
        }
        table.hot.push(Hot {
            price: item.price,
            memory: item.memory,
            cpu: item.cpu,
            gpu,
            traits,
            location,
        });
        table.cold.push(Cold { name, data });
    }

    fn finish(self) -> Table {
        let mut table = self.table;
        table.hot.shrink_to_fit();
        table.cold.shrink_to_fit();
        table.by_gpu.iter_mut().for_each(Vec::shrink_to_fit);
        table
    }
}

/// A row or a value as a place in a list.
pub(crate) fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl FromIterator<CatalogItem> for Table {
    fn from_iter<T: IntoIterator<Item = CatalogItem>>(items: T) -> Self {
        let mut builder = Builder::new();
        items.into_iter().for_each(|item| builder.push(item));
        builder.finish()
    }
}

impl Table {
    /// Reads a CSV text as it comes in: neither the text nor its rows are held in memory.
    pub fn read(csv: impl std::io::Read) -> Loaded {
        let mut builder = Builder::new();
        let (mut bad, mut bad_count) = (Vec::new(), 0);
        each_row(csv, |row| match row {
            Ok(item) => builder.push(item),
            Err(row) => {
                bad_count += 1;
                if bad.len() < KEPT_BAD_ROWS {
                    bad.push(row);
                }
            }
        });
        Loaded {
            table: builder.finish(),
            bad,
            bad_count,
        }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.hot.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.hot.is_empty()
    }

    /// How many different locations there are.
    pub fn location_count(&self) -> usize {
        self.locations.len()
    }

    /// The price of a row, in US dollars an hour.
    pub(crate) fn price(&self, row: u32) -> f64 {
        self.hot
            .get(index(row))
            .map_or(f64::INFINITY, |hot| hot.price)
    }

    /// One row as it was in the file.
    pub(crate) fn item(&self, row: u32) -> Option<CatalogItem> {
        let at = index(row);
        let (hot, cold) = (self.hot.get(at)?, self.cold.get(at)?);
        let gpu = self.gpus.get(index(hot.gpu))?;
        let traits = self.traits.get(index(hot.traits))?;
        let data = self.data.get(index(cold.data))?;
        Some(CatalogItem {
            instance_name: self.names.get(index(cold.name))?.to_string(),
            location: self.locations.get(index(hot.location))?.to_string(),
            price: hot.price,
            cpu: hot.cpu,
            memory: hot.memory,
            gpu_count: gpu.count,
            gpu_name: gpu.name.clone(),
            gpu_memory: gpu.memory,
            spot: traits.spot,
            disk_size: traits.disk,
            gpu_vendor: gpu.vendor,
            flags: traits.flags.clone(),
            cpu_arch: traits.arch,
            provider_data: serde_json::from_str(data).unwrap_or_default(),
        })
    }

    /// All rows in order.
    pub fn items(&self) -> impl Iterator<Item = CatalogItem> + '_ {
        (0..self.hot.len())
            .filter_map(|row| u32::try_from(row).ok())
            .filter_map(|row| self.item(row))
    }

    /// The rows of which all of this holds, in order: the kind of accelerator, the traits and the location by the numbers that
    /// were found fitting, the rest by `fits`.
    pub(crate) fn select(&self, judged: &Judged, fits: impl Fn(&Hot) -> bool) -> Vec<u32> {
        let has = |list: &[bool], number: u32| list.get(index(number)).copied().unwrap_or(false);
        let is_wanted = |row: u32| {
            self.hot.get(index(row)).is_some_and(|hot| {
                has(&judged.gpus, hot.gpu)
                    && fits(hot)
                    && has(&judged.traits, hot.traits)
                    && judged
                        .locations
                        .as_ref()
                        .is_none_or(|locations| has(locations, hot.location))
            })
        };
        let kinds = || {
            self.by_gpu
                .iter()
                .zip(&judged.gpus)
                .filter(|(_, fits)| **fits)
                .map(|(rows, _)| rows)
        };
        let candidates: usize = kinds().map(Vec::len).sum();
        if candidates >= self.hot.len() / 4 {
            let all = 0..u32::try_from(self.hot.len()).unwrap_or(u32::MAX);
            return all.filter(|row| is_wanted(*row)).collect();
        }
        let mut rows: Vec<u32> = kinds()
            .flatten()
            .copied()
            .filter(|row| is_wanted(*row))
            .collect();
        rows.sort_unstable();
        rows
    }

    /// Which locations are among these, compared in any case.
    pub(crate) fn locations_in(&self, wanted: &[String]) -> Vec<bool> {
        self.locations
            .iter()
            .map(|known| wanted.iter().any(|one| one.eq_ignore_ascii_case(known)))
            .collect()
    }
}

/// Which values of a table fit, by their numbers.
pub(crate) struct Judged {
    pub(crate) gpus: Vec<bool>,
    pub(crate) traits: Vec<bool>,
    /// `None`: everywhere.
    pub(crate) locations: Option<Vec<bool>>,
}
