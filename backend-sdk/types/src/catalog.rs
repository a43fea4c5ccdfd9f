//! Rows of an offer catalog: what a provider rents out, where, for how much.
//!
//! A catalog is a CSV file with a header, read by the names of its columns, which are the fields of [`CatalogItem`]. Columns
//! that are not known are ignored.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::backend_type::BackendType;
use crate::instances::{AcceleratorVendor, CpuArchitecture, Disk, Gpu, InstanceType, Resources};
use crate::matching;
use crate::offers::{InstanceAvailability, InstanceOffer, InstanceOfferWithAvailability};
use crate::requirements::Requirements;
use crate::resources::Memory;

/// One row. Field names are those of the columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogItem {
    /// The provider's name for the machine type.
    pub instance_name: String,
    /// Region; with some providers a zone.
    pub location: String,
    /// US dollars an hour.
    pub price: f64,
    /// Virtual processors.
    pub cpu: u32,
    /// Main memory in GiB.
    pub memory: f64,
    /// 0: none.
    #[serde(default)]
    pub gpu_count: u32,
    /// Model.
    #[serde(default)]
    pub gpu_name: Option<String>,
    /// Memory of one accelerator in GiB.
    #[serde(default)]
    pub gpu_memory: Option<f64>,
    /// Whether it can be taken away at any time.
    #[serde(default)]
    pub spot: bool,
    /// In GB; `None` if it is chosen at creation or unknown.
    #[serde(default)]
    pub disk_size: Option<f64>,
    /// Maker of the accelerators; there is one if there are accelerators.
    #[serde(default)]
    pub gpu_vendor: Option<AcceleratorVendor>,
    /// Hide the item from those who do not know the word.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Processor family.
    #[serde(default = "x86")]
    pub cpu_arch: CpuArchitecture,
    /// For the backend itself.
    #[serde(default)]
    pub provider_data: Map<String, Value>,
}

const fn x86() -> CpuArchitecture {
    CpuArchitecture::X86
}

/// A row that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Its line in the file, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// What a CSV text has: its good rows in order, and what is wrong with the others. A text whose header lacks a needed column
/// has bad rows only.
pub fn read_csv(text: &str) -> (Vec<CatalogItem>, Vec<BadRow>) {
    let (mut items, mut bad) = (Vec::new(), Vec::new());
    each_row(text.as_bytes(), |row| match row {
        Ok(item) => items.push(item),
        Err(row) => bad.push(row),
    });
    (items, bad)
}

/// The rows of a CSV text in UTF-8 one after another, so that a long one need not be in memory. After an error of the reader
/// there are no more rows.
pub fn each_row(text: impl std::io::Read, mut take: impl FnMut(Result<CatalogItem, BadRow>)) {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
    let columns = match reader.headers() {
        Ok(header) => Columns::of(header),
        Err(error) => {
            let reason = error.to_string();
            return take(Err(BadRow { line: 1, reason }));
        }
    };
    let mut record = csv::StringRecord::new();
    loop {
        let line = |at: Option<&csv::Position>| at.map_or(0, csv::Position::line);
        match reader.read_record(&mut record) {
            Ok(true) => take(Row(&columns, &record).item().map_err(|reason| BadRow {
                line: line(record.position()),
                reason,
            })),
            Ok(false) => return,
            Err(error) => {
                let is_end = error.is_io_error();
                take(Err(BadRow {
                    line: line(error.position()),
                    reason: error.to_string(),
                }));
                if is_end {
                    return;
                }
            }
        }
    }
}

/// Names of the columns, in the order in which they are written.
pub const COLUMNS: [&str; 14] = [
    "instance_name",
    "location",
    "price",
    "cpu",
    "memory",
    "gpu_count",
    "gpu_name",
    "gpu_memory",
    "spot",
    "disk_size",
    "gpu_vendor",
    "flags",
    "cpu_arch",
    "provider_data",
];

/// Where each of [`COLUMNS`] is in a file.
struct Columns([Option<usize>; COLUMNS.len()]);

impl Columns {
    fn of(header: &csv::StringRecord) -> Self {
        Self(COLUMNS.map(|column| header.iter().position(|name| name.trim() == column)))
    }
}

/// A row by the names of its columns.
struct Row<'a>(&'a Columns, &'a csv::StringRecord);

impl Row<'_> {
    fn text(&self, column: &str) -> Option<&str> {
        let known = COLUMNS.iter().position(|name| *name == column)?;
        let at = self.0.0.get(known).copied().flatten()?;
        self.1
            .get(at)
            .map(str::trim)
            .filter(|text| !text.is_empty())
    }

    fn needed(&self, column: &str) -> Result<&str, String> {
        self.text(column)
            .ok_or_else(|| format!("{column} is missing"))
    }

    fn parsed<T: std::str::FromStr>(&self, column: &str) -> Result<Option<T>, String> {
        self.text(column)
            .map(|text| {
                text.parse()
                    .map_err(|_| format!("{column} {text:?} is no number"))
            })
            .transpose()
    }

    fn float(&self, column: &str) -> Result<Option<f64>, String> {
        match self.parsed::<f64>(column)? {
            Some(number) if !number.is_finite() || number < 0.0 => {
                Err(format!("{column} {number} makes no sense"))
            }
            other => Ok(other),
        }
    }

    fn number<T>(value: Option<T>, column: &str) -> Result<T, String> {
        value.ok_or_else(|| format!("{column} is missing"))
    }

    fn word<T>(&self, column: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, String> {
        self.text(column)
            .map(|text| read(text).ok_or_else(|| format!("{column} {text:?} is not known")))
            .transpose()
    }

    fn item(&self) -> Result<CatalogItem, String> {
        let gpu_count = Self::number(self.parsed("gpu_count")?, "gpu_count")?;
        let mut gpu_name = self.text("gpu_name").map(str::to_owned);
        let mut gpu_vendor = self.word("gpu_vendor", |word| {
            AcceleratorVendor::ALL
                .into_iter()
                .find(|vendor| vendor.as_str().eq_ignore_ascii_case(word))
        })?;
        if gpu_count > 0 && gpu_vendor.is_none() {
            // Old files name the maker in the model, or not at all.
            let tpu = gpu_name
                .as_deref()
                .and_then(|name| name.strip_prefix("tpu-").map(str::to_owned));
            gpu_vendor = Some(match tpu {
                Some(_) => AcceleratorVendor::Google,
                None => AcceleratorVendor::Nvidia,
            });
            gpu_name = tpu.or(gpu_name);
        }
        let provider_data = self.word("provider_data", |text| serde_json::from_str(text).ok())?;
        Ok(CatalogItem {
            instance_name: self.needed("instance_name")?.to_owned(),
            location: self.needed("location")?.to_owned(),
            price: Self::number(self.float("price")?, "price")?,
            cpu: Self::number(self.parsed("cpu")?, "cpu")?,
            memory: Self::number(self.float("memory")?, "memory")?,
            gpu_count,
            gpu_name,
            gpu_memory: self.float("gpu_memory")?,
            spot: Self::number(
                self.word("spot", |word| word.to_ascii_lowercase().parse().ok())?,
                "spot",
            )?,
            disk_size: self.float("disk_size")?,
            gpu_vendor,
            flags: self
                .text("flags")
                .map(|words| words.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
            cpu_arch: self
                .word("cpu_arch", CpuArchitecture::parse)?
                .unwrap_or(x86()),
            provider_data: provider_data.unwrap_or_default(),
        })
    }
}

impl CatalogItem {
    /// The machine type. A disk of unknown size has size 0.
    pub fn instance(&self) -> InstanceType {
        let gpu = Gpu {
            name: self.gpu_name.clone().unwrap_or_default(),
            memory_mib: Memory(self.gpu_memory.unwrap_or_default()).mib(),
            vendor: self.gpu_vendor,
        };
        InstanceType {
            name: self.instance_name.clone(),
            resources: Resources {
                cpus: self.cpu,
                memory_mib: Memory(self.memory).mib(),
                gpus: vec![gpu; usize::try_from(self.gpu_count).unwrap_or_default()],
                spot: self.spot,
                disk: Disk {
                    size_mib: Memory(self.disk_size.unwrap_or_default()).mib(),
                },
                cpu_arch: Some(self.cpu_arch),
                description: String::new(),
            },
        }
    }

    /// The offer of a backend. Its `backend_data` is the item's `provider_data`.
    pub fn offer(&self, backend: &BackendType) -> InstanceOffer {
        InstanceOffer {
            backend: backend.clone(),
            instance: self.instance(),
            region: self.location.clone(),
            price: self.price,
            backend_data: self.provider_data.clone(),
        }
    }

    /// Whether it has what is required, costs no more and is spot or not as asked. Its own disk size is not looked at if the
    /// disk is chosen at creation. Reservation, multinode and options of backends are not looked at: only the backend can judge.
    pub fn fits(&self, requirements: &Requirements, is_disk_configurable: bool) -> bool {
        let offer = InstanceOfferWithAvailability::new(
            self.offer(&BackendType::new("")),
            InstanceAvailability::Unknown,
        );
        if is_disk_configurable {
            matching::matches_without_disk(&offer, requirements)
        } else {
            matching::matches(&offer, requirements)
        }
    }

    /// Whether each of its flags is among these.
    pub fn has_only_flags(&self, known: &[String]) -> bool {
        self.flags.iter().all(|flag| known.contains(flag))
    }
}
