//! Durations, and those that can be switched off. All in seconds.

use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::reading::{Failed, FromValue, Reader, describe};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Reads `5m`, `2 h`, `90`, 90: seconds.
pub fn parse(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let (unit_at, unit) = text.char_indices().next_back()?;
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    let digits = text.get(..unit_at)?.trim_end_matches(' ');
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    digits.parse::<i64>().ok()?.checked_mul(factor)
}

/// A plain duration; may be negative.
///
/// # Errors
/// [`Failed`] if it is none.
pub fn any(value: &Value, cx: &mut Reader) -> Result<i64, Failed> {
    let seconds = match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64().filter(|f| f.abs() < 1e15)?;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "fractions of seconds are dropped"
            )]
            Some(float as i64)
        }),
        Value::String(text) => parse(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    seconds.ok_or_else(|| {
        cx.fail(format!(
            "expected a duration such as 90s, 5m, 2h, 1d or 1w, got {}",
            describe(value)
        ))
    })
}

/// A duration that is not negative.
///
/// # Errors
/// [`Failed`] if it is none or negative.
pub fn positive(value: &Value, cx: &mut Reader) -> Result<i64, Failed> {
    match any(value, cx)? {
        seconds if seconds < 0 => {
            Err(cx.fail(format!("a duration cannot be negative, got {seconds}")))
        }
        seconds => Ok(seconds),
    }
}

/// A duration of at least `min` seconds.
pub(crate) fn at_least(min: i64) -> impl Fn(&Value, &mut Reader) -> Result<i64, Failed> {
    move |value, cx| match any(value, cx)? {
        seconds if seconds < min => {
            Err(cx.fail(format!("expected at least {min} seconds, got {seconds}")))
        }
        seconds => Ok(seconds),
    }
}

/// A limit in time, or the wish to have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `off`: no limit.
    Off,
    /// Seconds.
    Seconds(i64),
}

impl Limit {
    /// The seconds, if there is a limit.
    pub const fn seconds(self) -> Option<i64> {
        match self {
            Self::Off => None,
            Self::Seconds(seconds) => Some(seconds),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => s.serialize_str("off"),
            Self::Seconds(seconds) => s.serialize_i64(*seconds),
        }
    }
}

impl FromValue for Limit {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match value {
            Value::Bool(false) => Ok(Self::Off),
            Value::String(text) if text == "off" => Ok(Self::Off),
            other => positive(other, cx).map(Self::Seconds),
        }
    }
}

deserialize_by_value!(Limit);

/// [`Limit`], where null and `true` mean unset.
pub(crate) fn limit(value: &Value, cx: &mut Reader) -> Result<Option<Limit>, Failed> {
    match value {
        Value::Null | Value::Bool(true) => Ok(None),
        other => Limit::from_value(other, cx).map(Some),
    }
}

/// Like [`limit`], where `off` means unset as well.
pub(crate) fn limit_or_unset(value: &Value, cx: &mut Reader) -> Result<Option<i64>, Failed> {
    Ok(limit(value, cx)?.and_then(Limit::seconds))
}

/// How long something idle is kept: `off` and false are -1 (for good), null and `true` mean unset.
///
/// # Errors
/// [`Failed`] if it is no duration.
pub fn idle(value: &Value, cx: &mut Reader) -> Result<Option<i64>, Failed> {
    match value {
        Value::Null | Value::Bool(true) => Ok(None),
        Value::Bool(false) => Ok(Some(-1)),
        Value::String(text) if text == "off" => Ok(Some(-1)),
        other => any(other, cx).map(Some),
    }
}
