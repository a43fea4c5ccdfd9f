//! Queries with the reference's filter: names, bounds and exceptions are its own.

use dstack_backend_types::{AcceleratorVendor, CpuArchitecture};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::table::{GpuKind, Judged, Table, Traits};

/// A filter that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("the filter is not understood: {0}")]
pub struct FilterError(#[from] serde_json::Error);

/// What is wanted. Bounds are inclusive; what is `None` does not limit. Field names are those of the reference's filter.
///
/// If `min_gpu_count` is 0, machines without accelerators fit whatever else is said of accelerators. A disk of unknown size
/// fits. An empty list of flags hides all rows with flags.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// In any case; one name or a list.
    #[serde(deserialize_with = "words")]
    pub provider: Option<Vec<String>>,
    /// `x86` or `arm`.
    #[serde(deserialize_with = "arch")]
    pub cpu_arch: Option<CpuArchitecture>,
    /// Virtual processors.
    pub min_cpu: Option<f64>,
    /// Virtual processors.
    pub max_cpu: Option<f64>,
    /// GiB.
    pub min_memory: Option<f64>,
    /// GiB.
    pub max_memory: Option<f64>,
    /// Accelerators.
    pub min_gpu_count: Option<f64>,
    /// Accelerators.
    pub max_gpu_count: Option<f64>,
    /// Maker.
    #[serde(deserialize_with = "vendor")]
    pub gpu_vendor: Option<AcceleratorVendor>,
    /// Models in any case; one name or a list.
    #[serde(deserialize_with = "words")]
    pub gpu_name: Option<Vec<String>>,
    /// GiB of one accelerator.
    pub min_gpu_memory: Option<f64>,
    /// GiB of one accelerator.
    pub max_gpu_memory: Option<f64>,
    /// GiB of all accelerators together.
    pub min_total_gpu_memory: Option<f64>,
    /// GiB of all accelerators together.
    pub max_total_gpu_memory: Option<f64>,
    /// GB.
    pub min_disk_size: Option<f64>,
    /// GB.
    pub max_disk_size: Option<f64>,
    /// US dollars an hour.
    pub min_price: Option<f64>,
    /// US dollars an hour.
    pub max_price: Option<f64>,
    /// `"8.9"` or `[8, 9]`; only NVIDIA models have one.
    #[serde(deserialize_with = "capability")]
    pub min_compute_capability: Option<(u32, u32)>,
    /// As the least one.
    #[serde(deserialize_with = "capability")]
    pub max_compute_capability: Option<(u32, u32)>,
    /// Spot only, on-demand only, or both.
    pub spot: Option<bool>,
    /// Rows with any other flag are hidden.
    #[serde(deserialize_with = "words")]
    pub allowed_flags: Option<Vec<String>>,
}

impl Filter {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// An unknown field, or a value of the wrong kind, with its place.
    pub fn from_json(text: &str) -> Result<Self, FilterError> {
        // A list would be taken for the fields in order.
        let fields: serde_json::Map<String, Value> = serde_json::from_str(text)?;
        Ok(serde_json::from_value(Value::Object(fields))?)
    }

    /// Whether rows of this provider are wanted.
    pub fn wants(&self, provider: &str) -> bool {
        self.provider
            .as_ref()
            .is_none_or(|all| all.iter().any(|one| one.eq_ignore_ascii_case(provider)))
    }

    /// The rows that fit, in the table's order. The provider is not looked at: a table is of one.
    pub(crate) fn rows(&self, table: &Table) -> Vec<u32> {
        let judged = Judged {
            gpus: table.gpus.iter().map(|kind| self.gpu_fits(kind)).collect(),
            traits: table
                .traits
                .iter()
                .map(|traits| self.traits_fit(traits))
                .collect(),
            locations: None,
        };
        table.select(&judged, |hot| {
            is_between(hot.price, self.min_price, self.max_price)
                && is_between(f64::from(hot.cpu), self.min_cpu, self.max_cpu)
                && is_between(hot.memory, self.min_memory, self.max_memory)
        })
    }

    fn traits_fit(&self, has: &Traits) -> bool {
        self.spot.is_none_or(|spot| spot == has.spot)
            && self.cpu_arch.is_none_or(|arch| arch == has.arch)
            && has
                .disk
                .is_none_or(|disk| is_between(disk, self.min_disk_size, self.max_disk_size))
            && self
                .allowed_flags
                .as_ref()
                .is_none_or(|allowed| has.flags.iter().all(|flag| allowed.contains(flag)))
    }

    fn gpu_fits(&self, has: &GpuKind) -> bool {
        if self.min_gpu_count == Some(0.0) && has.count == 0 {
            return true;
        }
        let memory = has.memory.filter(|_| has.count > 0).unwrap_or(0.0);
        let count = f64::from(has.count);
        self.gpu_vendor
            .is_none_or(|vendor| has.vendor == Some(vendor))
            && is_between(count, self.min_gpu_count, self.max_gpu_count)
            && self.gpu_name.as_ref().is_none_or(|names| {
                has.name
                    .as_ref()
                    .is_some_and(|name| names.iter().any(|one| one.eq_ignore_ascii_case(name)))
            })
            && self.capability_fits(has)
            && is_between(memory, self.min_gpu_memory, self.max_gpu_memory)
            && is_between(
                count * memory,
                self.min_total_gpu_memory,
                self.max_total_gpu_memory,
            )
    }

    fn capability_fits(&self, has: &GpuKind) -> bool {
        let (min, max) = (self.min_compute_capability, self.max_compute_capability);
        (min.is_none() && max.is_none())
            || has
                .capability
                .is_some_and(|capability| is_between(capability, min, max))
    }
}

fn is_between<T: PartialOrd>(value: T, min: Option<T>, max: Option<T>) -> bool {
    min.is_none_or(|min| min <= value) && max.is_none_or(|max| value <= max)
}

fn words<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        One(String),
        Many(Vec<String>),
    }
    Ok(
        Option::<Words>::deserialize(input)?.map(|words| match words {
            Words::One(word) => vec![word],
            Words::Many(words) => words,
        }),
    )
}

/// A word that is read by `read`; none and an empty one do not limit.
fn word<'de, T, D: Deserializer<'de>>(
    input: D,
    read: impl Fn(&str) -> Option<T>,
    known: &str,
) -> Result<Option<T>, D::Error> {
    match Option::<String>::deserialize(input)? {
        None => Ok(None),
        Some(word) if word.is_empty() => Ok(None),
        Some(word) => read(&word)
            .map(Some)
            .ok_or_else(|| D::Error::custom(format!("{word:?} is none of {known}"))),
    }
}

fn arch<'de, D: Deserializer<'de>>(input: D) -> Result<Option<CpuArchitecture>, D::Error> {
    word(input, CpuArchitecture::parse, "x86, arm")
}

fn vendor<'de, D: Deserializer<'de>>(input: D) -> Result<Option<AcceleratorVendor>, D::Error> {
    word(
        input,
        AcceleratorVendor::parse,
        "nvidia, amd, google, intel, tenstorrent",
    )
}

fn capability<'de, D: Deserializer<'de>>(input: D) -> Result<Option<(u32, u32)>, D::Error> {
    let value = Option::<Value>::deserialize(input)?;
    let read = |value: &Value| match value {
        Value::String(text) => {
            let (major, minor) = text.trim().split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        }
        // A float keeps a digit after the dot.
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            let (major, minor) = text.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        }
        Value::Array(_) => serde_json::from_value(value.clone()).ok(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(&value).map(Some).ok_or_else(|| {
            D::Error::custom(format!(
                "{value} is no compute capability such as \"8.9\" or [8, 9]"
            ))
        }),
    }
}
