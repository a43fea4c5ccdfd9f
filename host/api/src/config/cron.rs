//! Cron expressions: five fields, in UTC.
//!
//! | field | values |
//! |---|---|
//! | minute | 0-59 |
//! | hour | 0-23 |
//! | day | 1-31, `last` |
//! | month | 1-12, jan-dec |
//! | weekday | 0-6, mon-sun; 0 is Monday |
//!
//! Unlike in POSIX cron, day *and* weekday must both match.

use std::fmt;
use std::str::FromStr;

use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::reading::{Failed, FromValue, Reader, describe};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// How far ahead a time is looked for: after 400 years the calendar repeats, weekdays of leap days included.
const HORIZON_MONTHS: usize = 12 * 401;
/// The most days of each month.
const MOST_DAYS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A valid expression. It may still never match, such as 30 February.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    last_day: bool,
    months: u64,
    weekdays: u64,
}

/// Why a text is no cron expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCron {
    /// Not five fields.
    #[error("a cron expression has five fields (minute hour day month weekday), got {0}")]
    Fields(usize),
    /// A field that does not fit.
    #[error(
        "`{text}` is not valid for the {field} of a cron expression; it goes from {min} to {max}{hint}"
    )]
    Field {
        /// Which.
        field: &'static str,
        /// What it says.
        text: String,
        /// Its least value.
        min: u32,
        /// Its greatest value.
        max: u32,
        /// More about its values.
        hint: &'static str,
    },
}

struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    words: &'static [&'static str],
    hint: &'static str,
}

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: &[&str] = &["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

const MINUTE: Field = Field {
    name: "minute",
    min: 0,
    max: 59,
    words: &[],
    hint: "",
};
const HOUR: Field = Field {
    name: "hour",
    min: 0,
    max: 23,
    words: &[],
    hint: "",
};
const DAY: Field = Field {
    name: "day",
    min: 1,
    max: 31,
    words: &[],
    hint: ", or `last`",
};
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    words: MONTHS,
    hint: ", or jan to dec",
};
const WEEKDAY: Field = Field {
    name: "weekday",
    min: 0,
    max: 6,
    words: WEEKDAYS,
    hint: " (0 is Monday), or mon to sun",
};

impl Field {
    fn value(&self, text: &str) -> Option<u32> {
        let lower = text.to_ascii_lowercase();
        if let Some(at) = self.words.iter().position(|word| *word == lower) {
            return u32::try_from(at).ok().map(|at| at + self.min);
        }
        let digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits)?;
        (self.min..=self.max).contains(&number).then_some(number)
    }

    /// The values of one part of a comma list as bits.
    fn part(&self, text: &str) -> Option<u64> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => {
                let digits = !step.is_empty() && step.chars().all(|c| c.is_ascii_digit());
                let step = step.parse().ok().filter(|_| digits)?;
                (1..=self.max - self.min)
                    .contains(&step)
                    .then_some((range, Some(step)))?
            }
            None => (text, None),
        };
        let (first, last) = match (range, range.split_once('-')) {
            ("*", _) => (self.min, self.max),
            (_, Some((first, last))) => (self.value(first)?, self.value(last)?),
            (single, None) => {
                let first = self.value(single)?;
                (first, if step.is_some() { self.max } else { first })
            }
        };
        if first > last {
            return None;
        }
        let mut bits = 0;
        let mut value = first;
        while value <= last {
            bits |= 1 << value;
            value += step.unwrap_or(1);
        }
        Some(bits)
    }

    fn bad(&self, text: &str) -> BadCron {
        let Self {
            name: field,
            min,
            max,
            hint,
            ..
        } = *self;
        BadCron::Field {
            field,
            text: text.to_owned(),
            min,
            max,
            hint,
        }
    }

    fn bits(&self, text: &str) -> Result<u64, BadCron> {
        text.split(',').try_fold(0, |bits, part| {
            Ok(bits | self.part(part).ok_or_else(|| self.bad(text))?)
        })
    }
}

impl FromStr for Cron {
    type Err = BadCron;

    fn from_str(text: &str) -> Result<Self, BadCron> {
        let fields: Vec<_> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(BadCron::Fields(fields.len()));
        };
        let (mut days, mut last_day) = (0, false);
        for part in day.split(',') {
            if part.eq_ignore_ascii_case("last") {
                last_day = true;
            } else {
                days |= DAY.part(part).ok_or_else(|| DAY.bad(day))?;
            }
        }
        Ok(Self {
            text: text.to_owned(),
            minutes: MINUTE.bits(minute)?,
            hours: HOUR.bits(hour)?,
            days,
            last_day,
            months: MONTH.bits(month)?,
            weekdays: WEEKDAY.bits(weekday)?,
        })
    }
}

/// Whether bit `n` is set; negative numbers never are.
fn has(bits: u64, n: i8) -> bool {
    u32::try_from(n).is_ok_and(|n| bits >> n & 1 == 1)
}

impl Cron {
    /// The expression as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether there is any date in a month and on a day that are wanted.
    fn is_possible(&self) -> bool {
        (1..).zip(MOST_DAYS).any(|(month, most)| {
            let days = self.days & ((1 << (most + 1)) - 1);
            self.months >> month & 1 == 1 && (days != 0 || self.last_day)
        })
    }

    fn matches_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day()) || self.last_day && date.day() == date.days_in_month();
        day && has(self.weekdays, date.weekday().to_monday_zero_offset())
    }

    /// The first full minute at or after `now` that matches; none if there never is one.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.is_possible() {
            return None;
        }
        let start = Self::full_minute(TimeZone::UTC.to_datetime(now))?;
        let mut first = start.date();
        for _ in 0..HORIZON_MONTHS {
            if has(self.months, first.month()) {
                for day in first.day()..=first.days_in_month() {
                    let date = Date::new(first.year(), first.month(), day).ok()?;
                    let from = if date == start.date() {
                        (start.hour(), start.minute())
                    } else {
                        (0, 0)
                    };
                    if self.matches_day(date)
                        && let Some((hour, minute)) = self.time_from(from)
                    {
                        return TimeZone::UTC.to_timestamp(date.at(hour, minute, 0, 0)).ok();
                    }
                }
            }
            first = first.last_of_month().tomorrow().ok()?;
        }
        None
    }

    fn full_minute(at: DateTime) -> Option<DateTime> {
        let floor = at.date().at(at.hour(), at.minute(), 0, 0);
        if floor == at {
            Some(at)
        } else {
            floor.checked_add(jiff::Span::new().minutes(1)).ok()
        }
    }

    fn time_from(&self, (hour, minute): (i8, i8)) -> Option<(i8, i8)> {
        (hour..24).filter(|h| has(self.hours, *h)).find_map(|h| {
            let first = if h == hour { minute } else { 0 };
            (first..60).find(|m| has(self.minutes, *m)).map(|m| (h, m))
        })
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Serialize for Cron {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.text)
    }
}

impl FromValue for Cron {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match value {
            Value::String(text) => text
                .parse()
                .map_err(|bad: BadCron| cx.fail(bad.to_string())),
            other => Err(cx.fail(format!(
                "expected a cron expression, got {}",
                describe(other)
            ))),
        }
    }
}

/// One expression or a list of some.
pub(crate) fn some(value: &Value, cx: &mut Reader) -> Result<Vec<Cron>, Failed> {
    match value {
        Value::Array(items) if items.is_empty() => {
            Err(cx.fail("at least one cron expression is needed"))
        }
        Value::Array(_) => Vec::from_value(value, cx),
        single => Cron::from_value(single, cx).map(|cron| vec![cron]),
    }
}

deserialize_by_value!(Cron);
