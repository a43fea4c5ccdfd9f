//! Scalars and containers, with the conversions that lose nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Failed, FromValue, Reader, describe, nearest_key};
use crate::backend_type::{BackendType, KNOWN_BACKENDS};

/// The whole number a text stands for: digits with an optional sign, or an integral decimal such as `2.0`.
pub fn integer_from_text(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let (whole, fraction) = text.split_once('.')?;
    (!fraction.is_empty() && fraction.chars().all(|c| c == '0')).then(|| whole.parse().ok())?
}

/// The decimal number a text stands for; `inf`, `nan` and the like are no numbers.
pub fn number_from_text(text: &str) -> Option<f64> {
    let text = text.trim();
    if !text
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E'))
    {
        return None;
    }
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// The text of a text or a number; a number becomes its shortest decimal form.
pub fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn integer_of(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64()?;
            // Above 2^53 a float no longer says which integer was meant.
            #[expect(
                clippy::cast_possible_truncation,
                reason = "checked to be integral and small"
            )]
            (float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0).then_some(float as i64)
        }),
        Value::String(text) => integer_from_text(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

impl FromValue for Value {
    fn from_value(value: &Value, _: &mut Reader) -> Result<Self, Failed> {
        Ok(value.clone())
    }
}

impl FromValue for String {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        text_of(value).ok_or_else(|| {
            let remedy = match value {
                Value::Bool(_) => "; put it in quotes",
                Value::Object(_) => "; put text with a colon and a blank in quotes",
                _ => "",
            };
            cx.fail(format!("expected text, got {}{remedy}", describe(value)))
        })
    }
}

impl FromValue for i64 {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        integer_of(value)
            .ok_or_else(|| cx.fail(format!("expected a whole number, got {}", describe(value))))
    }
}

macro_rules! narrower_integers {
    ($($type:ty),+) => {$(
        impl FromValue for $type {
            fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
                cx.integer_in(value, i64::from(<$type>::MIN), i64::from(<$type>::MAX))
            }
        }
    )+};
}
narrower_integers!(u8, u16, u32, i32);

impl FromValue for f64 {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => number_from_text(text),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        number.ok_or_else(|| cx.fail(format!("expected a number, got {}", describe(value))))
    }
}

impl FromValue for bool {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let known = match value {
            Value::Bool(b) => Some(*b),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "t" | "y" | "1" => Some(true),
                "false" | "no" | "off" | "f" | "n" | "0" => Some(false),
                _ => None,
            },
            Value::Number(_) => match integer_of(value) {
                Some(1) => Some(true),
                Some(0) => Some(false),
                _ => None,
            },
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        known.ok_or_else(|| cx.fail(format!("expected true or false, got {}", describe(value))))
    }
}

impl FromValue for BackendType {
    /// Any plugin may bring a backend, so that an unknown name is a warning only.
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let name = match value.as_str().map(Self::parse) {
            Some(Ok(name)) => name,
            Some(Err(bad)) => return Err(cx.fail(bad.to_string())),
            None => return Err(cx.fail(format!("expected a backend, got {}", describe(value)))),
        };
        if name.facts().is_none() && cx.takes_warnings() {
            let known = KNOWN_BACKENDS.iter().map(|facts| facts.name);
            let hint = nearest_key(name.as_str(), known)
                .map(|near| format!("; did you mean `{near}`?"))
                .unwrap_or_default();
            cx.warn(format!(
                "`{name}` is not a backend known to this version{hint}"
            ));
        }
        Ok(name)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if value.is_null() {
            Ok(None)
        } else {
            T::from_value(value, cx).map(Some)
        }
    }
}

impl<T: FromValue> FromValue for Box<T> {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        T::from_value(value, cx).map(Self::new)
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        cx.list(value, T::from_value)
    }
}

impl<T: FromValue> FromValue for BTreeMap<String, T> {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let Value::Object(map) = value else {
            return Err(cx.fail(format!("expected a mapping, got {}", describe(value))));
        };
        let mut result = Ok(Self::new());
        for (key, item) in map {
            let item = cx.at_key(key, |cx| T::from_value(item, cx));
            match (&mut result, item) {
                (Ok(read), Ok(item)) => {
                    read.insert(key.clone(), item);
                }
                (_, Err(Failed)) => result = Err(Failed),
                (Err(Failed), Ok(_)) => {}
            }
        }
        result
    }
}

impl Reader {
    /// A list, each item read by `item`; all items are looked at.
    ///
    /// # Errors
    /// [`Failed`] if `value` is no list or an item does not fit.
    pub fn list<T>(
        &mut self,
        value: &Value,
        mut item: impl FnMut(&Value, &mut Self) -> Result<T, Failed>,
    ) -> Result<Vec<T>, Failed> {
        let Value::Array(items) = value else {
            let remedy = match value {
                Value::String(_) | Value::Number(_) => "; write one item a line after `- `",
                _ => "",
            };
            return Err(self.fail(format!("expected a list, got {}{remedy}", describe(value))));
        };
        let read: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(i, v)| self.at_index(i, |cx| item(v, cx)))
            .collect();
        read.into_iter().collect()
    }

    /// A whole number from `min` to `max`.
    ///
    /// # Errors
    /// [`Failed`] if it is none or out of the range.
    pub fn integer_in<T: TryFrom<i64>>(
        &mut self,
        value: &Value,
        min: i64,
        max: i64,
    ) -> Result<T, Failed> {
        let number = i64::from_value(value, self)?;
        let in_range = (min..=max)
            .contains(&number)
            .then(|| T::try_from(number).ok())
            .flatten();
        in_range.ok_or_else(|| match max {
            // What a field can hold is no limit that a person thinks of.
            max if max >= i64::from(u32::MAX) && number < min => {
                self.fail(format!("expected {min} or more, got {number}"))
            }
            max => self.fail(format!(
                "expected a number from {min} to {max}, got {number}"
            )),
        })
    }

    /// A text that is one of `words`, as written.
    ///
    /// # Errors
    /// [`Failed`] if it is another value.
    pub fn word(&mut self, value: &Value, words: &[&'static str]) -> Result<&'static str, Failed> {
        let found = value
            .as_str()
            .and_then(|text| words.iter().find(|word| **word == text));
        found.copied().ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            let known = match words.as_slice() {
                [only] => only.clone(),
                all => format!("one of {}", all.join(", ")),
            };
            self.fail(format!("expected {known}, got {}", describe(value)))
        })
    }
}

/// An enum whose values are words on the wire: `Serialize`, `Deserialize`, [`FromValue`], `Display`, `as_str`.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[doc = $doc:literal])* $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name { $($(#[doc = $doc])* $variant),+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// What each value means, in the same order; for schemas.
            pub const DOCS: &'static [&'static str] = &[$(concat!($($doc),*)),+];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }

        impl $crate::reading::FromValue for $name {
            fn from_value(
                value: &::serde_json::Value,
                cx: &mut $crate::reading::Reader,
            ) -> Result<Self, $crate::reading::Failed> {
                let word = cx.word(value, &[$($word),+])?;
                $(if word == $word { return Ok(Self::$variant); })+
                Err(cx.fail("unknown word"))
            }
        }

        $crate::deserialize_by_value!($name);
    };
}
