//! What is asked of CPUs.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::Range;
use crate::deserialize_by_value;
use crate::instances::CpuArchitecture;
use crate::reading::{Failed, FromValue, Reader, describe};

impl FromValue for CpuArchitecture {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        value
            .as_str()
            .and_then(Self::parse)
            .ok_or_else(|| cx.fail(format!("expected x86 or arm, got {}", describe(value))))
    }
}

/// What is asked of the CPUs of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CpuSpec {
    /// The architecture; absent means any.
    pub arch: Option<CpuArchitecture>,
    /// How many virtual CPUs.
    pub count: Range<u32>,
}

impl Default for CpuSpec {
    fn default() -> Self {
        Self {
            arch: None,
            count: Range::at_least(2),
        }
    }
}

impl CpuSpec {
    fn from_text(text: &str, cx: &mut Reader) -> Result<Self, Failed> {
        let compact: String = text.chars().filter(|c| *c != ' ').collect();
        let (mut arch, mut count) = (None, None);
        for token in compact.split(':') {
            let digits = !token.is_empty() && token.chars().all(|c| c.is_ascii_digit());
            if digits || token.contains("..") {
                if count.replace(Range::from_text(token, cx)?).is_some() {
                    return Err(cx.fail(format!("the count is given twice in \"{text}\"")));
                }
            } else if let Some(word) = CpuArchitecture::parse(token) {
                if arch.replace(word).is_some() {
                    return Err(cx.fail(format!("the architecture is given twice in \"{text}\"")));
                }
            } else {
                return Err(cx.fail(format!(
                    "\"{token}\" is neither a count nor an architecture (x86, arm)"
                )));
            }
        }
        Ok(Self {
            arch,
            count: count.unwrap_or_else(|| Self::default().count),
        })
    }
}

impl fmt::Display for CpuSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(arch) = self.arch {
            write!(f, "{arch}:")?;
        }
        self.count.fmt(f)
    }
}

impl FromValue for CpuSpec {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match value {
            Value::Number(number) if !number.is_f64() => u32::from_value(value, cx).map(|n| Self {
                arch: None,
                count: Range::exactly(n),
            }),
            Value::String(text) => Self::from_text(text, cx),
            Value::Object(map) if map.contains_key("min") || map.contains_key("max") => {
                Range::from_value(value, cx).map(|count| Self { arch: None, count })
            }
            Value::Object(_) => {
                let mut obj = cx.object(value)?;
                let arch = obj.optional("arch", cx);
                let count = obj.defaulted("count", cx, || Self::default().count);
                obj.finish(cx)?;
                Ok(Self {
                    arch: arch?,
                    count: count?,
                })
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Number(_) => {
                Err(cx.fail(format!(
                    "expected CPUs such as 4, 2..8 or arm:4, got {}",
                    describe(value)
                )))
            }
        }
    }
}

deserialize_by_value!(CpuSpec);
