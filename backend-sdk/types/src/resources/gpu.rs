//! What is asked of GPUs and other accelerators.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::{Memory, Range};
use crate::deserialize_by_value;
use crate::instances::AcceleratorVendor;
use crate::reading::{Failed, FromValue, Obj, Reader, describe, text_of};

impl FromValue for AcceleratorVendor {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        value.as_str().and_then(Self::parse).ok_or_else(|| {
            cx.fail(format!(
                "expected one of nvidia, amd, google (tpu), intel, tenstorrent (tt), got {}",
                describe(value)
            ))
        })
    }
}

/// NVIDIA's compute capability, `8.6` as (8, 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ComputeCapability(pub u32, pub u32);

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl ComputeCapability {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once('.')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

impl FromValue for ComputeCapability {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let read = match value {
            Value::String(text) => Self::parse(text),
            // A float keeps at least one digit after the dot, so its text is `8.0` for 8.0.
            Value::Number(number) if number.is_f64() => Self::parse(&number.to_string()),
            Value::Array(parts) => match parts.as_slice() {
                [major, minor] => Some(Self(
                    u32::from_value(major, cx)?,
                    u32::from_value(minor, cx)?,
                )),
                _ => None,
            },
            Value::Number(_) | Value::Null | Value::Bool(_) | Value::Object(_) => None,
        };
        read.ok_or_else(|| {
            cx.fail(format!(
                "expected a version such as 8.6 or [8, 6], got {}",
                describe(value)
            ))
        })
    }
}

/// What is asked of the accelerators of one machine. Each property limits; absent ones do not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuSpec {
    /// The vendor.
    pub vendor: Option<AcceleratorVendor>,
    /// Models, any of which will do; compared without case. An empty list fits nothing.
    pub name: Option<Vec<String>>,
    /// How many. When 0 is in the range, machines without accelerators fit whatever else is asked.
    pub count: Range<u32>,
    /// Memory of each accelerator, GB.
    pub memory: Option<Range<Memory>>,
    /// Memory of all accelerators of the machine together, GB.
    pub total_memory: Option<Range<Memory>>,
    /// The least compute capability.
    pub compute_capability: Option<ComputeCapability>,
}

impl GpuSpec {
    /// Any accelerators in this count.
    pub fn with_count(count: Range<u32>) -> Self {
        Self {
            vendor: None,
            name: None,
            count,
            memory: None,
            total_memory: None,
            compute_capability: None,
        }
    }

    /// What applies when nothing is written: no accelerator needed.
    pub fn unasked() -> Self {
        Self::with_count(Range::at_least(0))
    }

    fn from_text(text: &str, cx: &mut Reader) -> Result<Self, Failed> {
        let compact: String = text.chars().filter(|c| *c != ' ').collect();
        let mut spec = Self::with_count(Range::at_least(1));
        let mut count = None;
        for token in compact.split(':') {
            let twice = |what: &str| format!("the {what} is given twice in \"{text}\"");
            if token.is_empty() {
                return Err(cx.fail(format!("an empty part between colons in \"{text}\"")));
            } else if let Some(vendor) = AcceleratorVendor::parse(token) {
                if spec.vendor.replace(vendor).is_some() {
                    return Err(cx.fail(twice("vendor")));
                }
            } else if token.starts_with(|c: char| c.is_alphabetic()) {
                let names = names(token.split(','), cx)?;
                if spec.name.replace(names).is_some() {
                    return Err(cx.fail(format!(
                        "{}; separate several names by commas",
                        twice("name")
                    )));
                }
            } else if token.contains(|c: char| c.is_alphabetic()) {
                if spec.memory.replace(Range::from_text(token, cx)?).is_some() {
                    return Err(cx.fail(twice("memory")));
                }
            } else if count.replace(Range::from_text(token, cx)?).is_some() {
                return Err(cx.fail(twice("count")));
            }
        }
        spec.count = count.unwrap_or(spec.count);
        Ok(spec)
    }

    fn from_object(mut obj: Obj<'_>, cx: &mut Reader) -> Result<Self, Failed> {
        let vendor = obj.optional("vendor", cx);
        let name = obj.optional_with("name", cx, |value, cx| match value {
            Value::Array(_) => {
                let list = Vec::<String>::from_value(value, cx)?;
                Ok(list
                    .iter()
                    .map(|name| without_tpu_prefix(name, cx))
                    .collect())
            }
            other => match text_of(other) {
                Some(text) => names(text.split(',').map(str::trim), cx),
                None => Err(cx.fail(format!(
                    "expected a name or a list, got {}",
                    describe(other)
                ))),
            },
        });
        let count = obj.defaulted("count", cx, || Range::at_least(1));
        let memory = obj.optional("memory", cx);
        let total_memory = obj.optional("total_memory", cx);
        let compute_capability = obj.optional("compute_capability", cx);
        obj.finish(cx)?;
        Ok(Self {
            vendor: vendor?,
            name: name?,
            count: count?,
            memory: memory?,
            total_memory: total_memory?,
            compute_capability: compute_capability?,
        })
    }
}

fn names<'t>(parts: impl Iterator<Item = &'t str>, cx: &mut Reader) -> Result<Vec<String>, Failed> {
    parts
        .map(|name| match name {
            "" => Err(cx.fail("an empty name in the list of names")),
            name => Ok(without_tpu_prefix(name, cx)),
        })
        .collect()
}

/// Older files name TPUs `tpu-v2-8`; the vendor word replaced the prefix.
fn without_tpu_prefix(name: &str, cx: &mut Reader) -> String {
    match name.strip_prefix("tpu-") {
        Some(rest) => {
            cx.warn(format!(
                "the prefix `tpu-` of `{name}` is deprecated, write `tpu:{rest}`"
            ));
            rest.to_owned()
        }
        None => name.to_owned(),
    }
}

impl fmt::Display for GpuSpec {
    /// The short form, `nvidia:H100,H200:80GB..:8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.vendor.map(|vendor| vendor.to_string()));
        parts.extend(self.name.as_ref().map(|names| names.join(",")));
        parts.extend(self.memory.map(|memory| memory.to_string()));
        parts.push(self.count.to_string());
        f.write_str(&parts.join(":"))?;
        if let Some(total) = self.total_memory {
            write!(f, " (total {total})")?;
        }
        if let Some(capability) = self.compute_capability {
            write!(f, " (compute capability {capability})")?;
        }
        Ok(())
    }
}

impl FromValue for GpuSpec {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match value {
            Value::Number(_) => {
                u32::from_value(value, cx).map(|count| Self::with_count(Range::exactly(count)))
            }
            Value::String(text) => Self::from_text(text, cx),
            Value::Object(_) => Self::from_object(cx.object(value)?, cx),
            Value::Null | Value::Bool(_) | Value::Array(_) => Err(cx.fail(format!(
                "expected a GPU such as 2, 24GB, H100 or H100:80GB:8, got {}",
                describe(value)
            ))),
        }
    }
}

deserialize_by_value!(ComputeCapability, GpuSpec);
