//! Memory sizes and ranges.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::deserialize_by_value;
use crate::reading::{
    Failed, FromValue, Obj, Reader, describe, integer_from_text, number_from_text,
};

/// A size in GB (1024 MB); a bare number and a text without a unit are GB as well.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Memory(pub f64);

impl Memory {
    /// The size in MiB, rounded to the nearest whole one; never negative.
    pub fn mib(self) -> u64 {
        let mib = (self.0 * 1024.0).round();
        #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
        #[expect(clippy::cast_sign_loss, reason = "`as` saturates at 0")]
        {
            mib as u64
        }
    }

    /// A size given in MiB.
    pub fn from_mib(mib: u64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 MiB")]
        Self(mib as f64 / 1024.0)
    }

    /// Reads `16GB`, `512 MB`, `0.5tb`, `8`; none for anything else. Spaces do not matter.
    pub fn parse(text: &str) -> Option<Self> {
        let text: String = text.chars().filter(|c| *c != ' ').collect();
        let text = text.to_ascii_lowercase();
        let (number, factor) = if let Some(number) = text.strip_suffix("tb") {
            (number, 1024.0)
        } else if let Some(number) = text.strip_suffix("gb") {
            (number, 1.0)
        } else if let Some(number) = text.strip_suffix("mb") {
            (number, 1.0 / 1024.0)
        } else {
            (text.as_str(), 1.0)
        };
        number_from_text(number)
            .map(|number| Self(number * factor))
            .filter(|size| size.0.is_finite())
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match self.0 {
            gb if gb >= 1024.0 && gb % 1024.0 == 0.0 => (gb / 1024.0, "TB"),
            gb if gb > 0.0 && gb < 1.0 => (gb * 1024.0, "MB"),
            gb => (gb, "GB"),
        };
        write!(f, "{}{unit}", number)
    }
}

impl FromValue for Memory {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let size = match value {
            Value::Number(number) => number.as_f64().map(Self),
            Value::String(text) => Self::parse(text),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        size.ok_or_else(|| {
            cx.fail(format!(
                "expected a size such as 512MB, 16GB or 1TB, got {}",
                describe(value)
            ))
        })
    }
}

/// What a [`Range`] can be of.
pub trait Bound: Copy + PartialOrd + fmt::Display + FromValue {
    /// What a bound is, for errors: `a whole number`.
    const EXPECTED: &'static str;

    /// Reads one bound of a text range.
    fn from_text(text: &str) -> Option<Self>;
}

impl Bound for u32 {
    const EXPECTED: &'static str = "a whole number";

    fn from_text(text: &str) -> Option<Self> {
        integer_from_text(text).and_then(|number| number.try_into().ok())
    }
}

impl Bound for i64 {
    const EXPECTED: &'static str = "a whole number";

    fn from_text(text: &str) -> Option<Self> {
        integer_from_text(text)
    }
}

impl Bound for f64 {
    const EXPECTED: &'static str = "a number";

    fn from_text(text: &str) -> Option<Self> {
        number_from_text(text)
    }
}

impl Bound for Memory {
    const EXPECTED: &'static str = "a size such as 512MB, 16GB or 1TB";

    fn from_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

/// An inclusive range; a bound that is absent does not limit. At least one bound is there, and min <= max.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Range<T> {
    /// The least value that fits.
    pub min: Option<T>,
    /// The greatest value that fits.
    pub max: Option<T>,
}

impl<T: Bound> Range<T> {
    /// Exactly one value.
    pub fn exactly(value: T) -> Self {
        Self {
            min: Some(value),
            max: Some(value),
        }
    }

    /// This value or more.
    pub fn at_least(min: T) -> Self {
        Self {
            min: Some(min),
            max: None,
        }
    }

    /// From `min` to `max`.
    pub fn between(min: T, max: T) -> Self {
        Self {
            min: Some(min),
            max: Some(max),
        }
    }

    /// Whether `value` is in the range.
    pub fn contains(&self, value: T) -> bool {
        self.min.is_none_or(|min| min <= value) && self.max.is_none_or(|max| value <= max)
    }

    /// The values that are in both ranges; none if there is no such value.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let pick = |a: Option<T>, b: Option<T>, a_wins: fn(&T, &T) -> bool| match (a, b) {
            (Some(a), Some(b)) => Some(if a_wins(&a, &b) { a } else { b }),
            (a, b) => a.or(b),
        };
        let both = Self {
            min: pick(self.min, other.min, |a, b| a >= b),
            max: pick(self.max, other.max, |a, b| a <= b),
        };
        match (both.min, both.max) {
            (Some(min), Some(max)) if min > max => None,
            _ => Some(both),
        }
    }

    /// Reads `1..4`, `1..`, `..4`, `2`. Spaces do not matter.
    ///
    /// # Errors
    /// [`Failed`], noted in `cx`.
    pub fn from_text(text: &str, cx: &mut Reader) -> Result<Self, Failed> {
        let compact: String = text.chars().filter(|c| *c != ' ').collect();
        let mut bound = |text: &str| -> Result<Option<T>, Failed> {
            if text.is_empty() {
                return Ok(None);
            }
            T::from_text(text)
                .map(Some)
                .ok_or_else(|| cx.fail(format!("expected {}, got \"{text}\"", T::EXPECTED)))
        };
        match compact.split_once("..") {
            None => match bound(&compact)? {
                Some(value) => Ok(Self::exactly(value)),
                None => Err(cx.fail("a range is empty; write a value, `a..b`, `a..` or `..b`")),
            },
            Some((min, max)) => {
                let range = Self {
                    min: bound(min)?,
                    max: bound(max)?,
                };
                range.checked(cx)
            }
        }
    }

    fn checked(self, cx: &mut Reader) -> Result<Self, Failed> {
        match (self.min, self.max) {
            (None, None) => Err(cx.fail("a range needs at least one bound")),
            (Some(min), Some(max)) if min > max => {
                Err(cx.fail(format!("the range {min}..{max} ends below its start")))
            }
            _ => Ok(self),
        }
    }

    pub(super) fn from_object(mut obj: Obj<'_>, cx: &mut Reader) -> Result<Self, Failed> {
        let (min, max) = (obj.optional("min", cx), obj.optional("max", cx));
        obj.finish(cx)?;
        Self {
            min: min?,
            max: max?,
        }
        .checked(cx)
    }
}

impl<T: Bound> fmt::Display for Range<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) if min == max => write!(f, "{min}"),
            (min, max) => {
                if let Some(min) = min {
                    write!(f, "{min}")?;
                }
                f.write_str("..")?;
                if let Some(max) = max {
                    write!(f, "{max}")?;
                }
                Ok(())
            }
        }
    }
}

impl<T: Bound> FromValue for Range<T> {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match value {
            Value::Number(_) => T::from_value(value, cx).map(Self::exactly),
            Value::String(text) => Self::from_text(text, cx),
            Value::Object(_) => Self::from_object(cx.object(value)?, cx),
            Value::Null | Value::Bool(_) | Value::Array(_) => Err(cx.fail(format!(
                "expected a value or a range, got {}",
                describe(value)
            ))),
        }
    }
}

deserialize_by_value!(Memory);

impl<'de, T: Bound> Deserialize<'de> for Range<T> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(d)?;
        crate::reading::read(&value, crate::reading::Mode::Tolerant)
            .map(|read| read.value)
            .map_err(serde::de::Error::custom)
    }
}
