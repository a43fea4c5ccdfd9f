//! Timestamps as the wire writes them: RFC 3339 in UTC with `Z`, six fraction digits or none.
//!
//! `#[serde(with = "dstack_api::time")]` and `#[serde(with = "dstack_api::time::option")]` on fields of
//! [`jiff::Timestamp`]. Reading also takes other offsets, and no offset at all, which means UTC.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

/// Writes `at` in the wire's form, cut to microseconds.
#[must_use]
pub fn format(at: Timestamp) -> String {
    let micros = at.as_microsecond();
    if micros.rem_euclid(1_000_000) == 0 {
        at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }
}

/// Reads a timestamp; one without an offset is UTC. Cut to microseconds, which is what the databases keep.
///
/// # Errors
/// The text is no timestamp.
pub fn parse(text: &str) -> Result<Timestamp, jiff::Error> {
    let at = text.parse::<Timestamp>().or_else(|error| {
        let civil: jiff::civil::DateTime = text.parse().map_err(|_| error)?;
        jiff::tz::TimeZone::UTC.to_timestamp(civil)
    })?;
    Timestamp::from_microsecond(at.as_microsecond())
}

/// For `#[serde(with = …)]`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*at))
}

/// For `#[serde(with = …)]`.
///
/// # Errors
/// Not a string, or not a timestamp.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    parse(&text).map_err(D::Error::custom)
}

/// The same for optional timestamps; `None` is `null`. Add `default` where the key may be missing.
pub mod option {
    use super::{Deserialize, Deserializer, Serializer, Timestamp};

    #[derive(serde::Serialize, Deserialize)]
    struct Wire(#[serde(with = "super")] Timestamp);

    /// For `#[serde(with = …)]`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&at.map(Wire), serializer)
    }

    /// For `#[serde(with = …)]`.
    ///
    /// # Errors
    /// Neither null nor a timestamp.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<Wire>::deserialize(deserializer)?.map(|wire| wire.0))
    }
}

/// The same for lists.
pub mod list {
    use super::{Deserializer, Serializer, Timestamp, format};
    use serde::{Deserialize as _, de::Error as _};

    /// For `#[serde(with = …)]`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(at: &[Timestamp], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(at.iter().map(|at| format(*at)))
    }

    /// For `#[serde(with = …)]`.
    ///
    /// # Errors
    /// Not a list of timestamps.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Timestamp>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let read = |text: String| super::parse(&text).map_err(D::Error::custom);
        texts.into_iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{format, parse};

    #[test]
    fn fraction_is_six_digits_or_absent() {
        for (read, written) in [
            ("2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678901Z"),
            ("2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.500000Z"),
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.000000900Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05Z"),
        ] {
            assert_eq!(format(parse(read).unwrap()), written, "{read}");
        }
        assert!(parse("yesterday").is_err());
    }
}
