//! Scalars, words, and the small grammars of durations, prices and names.

use std::collections::BTreeMap;

use dstack_backend_types::backend_type::KNOWN_BACKENDS;
use dstack_backend_types::{BackendType, Secret};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::Described;
use super::parts::{self, about, any_case, any_of, text, text_like, whole};
use crate::config::duration::Limit;
use crate::config::words::{FleetTag, GatewayTag, PresetTag, VastAi, VolumeTag};
use crate::config::{
    AgentEffort, AgentProvider, CreationPolicy, Cron, Https, Ide, Placement, PluginIsolation,
    PythonVersion, Router, ScalingMetric, SpotPolicy, StartupOrder, StopCriteria, VastAiOfferOrder,
};
use crate::jobs::{HttpMethod, ProbeType, RepoExistsAction, RetryEvent};

impl Described for String {
    fn describe(_: &mut SchemaGenerator) -> Schema {
        text()
    }
}

impl Described for Secret<String> {
    fn describe(_: &mut SchemaGenerator) -> Schema {
        text()
    }
}

impl Described for bool {
    fn describe(_: &mut SchemaGenerator) -> Schema {
        parts::switch()
    }
}

impl Described for f64 {
    fn describe(generator: &mut SchemaGenerator) -> Schema {
        parts::number(json!({}))(generator)
    }
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl Described for $type {
            fn describe(_: &mut SchemaGenerator) -> Schema {
                parts::integer_in(i64::from(<$type>::MIN), i64::from(<$type>::MAX))
            }
        }
    )+};
}
integers!(u16, u32, i64);

impl Described for Value {
    fn describe(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

impl<T: Described> Described for BTreeMap<String, T> {
    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let values = super::of::<T>(generator);
        json_schema!({"type": "object", "additionalProperties": values})
    }
}

macro_rules! described_words {
    ($($type:ty),+ $(,)?) => {$(
        impl Described for $type {
            fn describe(_: &mut SchemaGenerator) -> Schema {
                parts::words(Self::ALL.iter().zip(Self::DOCS).map(|(word, doc)| (word.as_str(), *doc)))
            }
        }
    )+};
}
described_words!(
    AgentEffort,
    AgentProvider,
    CreationPolicy,
    FleetTag,
    GatewayTag,
    Ide,
    Placement,
    PluginIsolation,
    PresetTag,
    Router,
    ScalingMetric,
    SpotPolicy,
    StartupOrder,
    StopCriteria,
    VastAi,
    VastAiOfferOrder,
    VolumeTag,
    crate::config::files::TemplateTag,
    crate::config::service::ModelKind,
);

macro_rules! described_words_of_jobs {
    ($($type:ty),+ $(,)?) => {$(
        impl Described for $type {
            fn describe(_: &mut SchemaGenerator) -> Schema {
                parts::words(Self::ALL.iter().map(|word| (word.as_str(), "")))
            }
        }
    )+};
}
described_words_of_jobs!(HttpMethod, ProbeType, RepoExistsAction, RetryEvent);

impl Described for BackendType {
    fn describe(_: &mut SchemaGenerator) -> Schema {
        let known: Vec<_> = KNOWN_BACKENDS
            .iter()
            .filter(|facts| facts.listed || facts.name == "local")
            .map(|facts| facts.name)
            .collect();
        // Any plugin may bring a backend; the list is for completion.
        let other = text_like(
            "[a-z][a-z0-9_-]{0,31}",
            "the name of a backend, such as aws",
        );
        any_of([json_schema!({"enum": known}), other])
    }
}

/// The version of Python: an unquoted 3.10 is the number 3.1 in YAML, and means 3.10.
pub(in crate::config) fn python(_: &mut SchemaGenerator) -> Schema {
    let texts = PythonVersion::ALL
        .iter()
        .map(|version| json!(version.as_str()));
    let numbers = PythonVersion::ALL
        .iter()
        .filter_map(|version| version.as_str().parse::<f64>().ok())
        .map(|version| json!(version));
    let all: Vec<_> = texts.chain(numbers).collect();
    json_schema!({"enum": all})
}

impl Described for PythonVersion {
    fn describe(generator: &mut SchemaGenerator) -> Schema {
        python(generator)
    }
}

impl Described for Https {
    fn describe(_: &mut SchemaGenerator) -> Schema {
        let mut schema = parts::switch();
        let words = [
            "true", "yes", "on", "t", "y", "1", "false", "no", "off", "f", "n", "0",
        ];
        let pattern = whole(&format!("auto|{}", any_case(&words)));
        parts::extend(
            &mut schema,
            json!({"pattern": pattern, "patternErrorMessage": "expected true, false or auto"}),
        );
        schema
    }
}

const SECONDS: &str = "A number of seconds, or a text such as `90s`, `5m`, `2h`, `1d` or `1w`.";
const DURATION: &str = r"[+-]?[0-9]+|[0-9]+ *[smhdw]";
const POSITIVE_DURATION: &str = r"\+?[0-9]+|-0+|[0-9]+ *[smhdw]";

fn duration_like(pattern: &str, types: Value, description: &str) -> Schema {
    let schema = json_schema!({
        "type": types,
        "pattern": whole(pattern),
        "patternErrorMessage": "expected a duration such as 90s, 5m, 2h, 1d or 1w",
    });
    about(schema, description, json!(["90s", "5m", "2h", "1d"]))
}

/// A duration that may be negative.
pub(in crate::config) fn duration(_: &mut SchemaGenerator) -> Schema {
    duration_like(DURATION, json!(["number", "string"]), SECONDS)
}

/// A duration of at least so many seconds; fractions of a second do not count.
pub(in crate::config) fn duration_from(min: i64) -> impl Fn(&mut SchemaGenerator) -> Schema {
    move |_| {
        let mut schema = duration_like(POSITIVE_DURATION, json!(["number", "string"]), SECONDS);
        let limit = match min {
            0 => json!({"exclusiveMinimum": -1}),
            min => json!({"minimum": min}),
        };
        parts::extend(&mut schema, limit);
        schema
    }
}

/// A duration that can be switched off; null and `true` leave it unset.
pub(in crate::config) fn limit(_: &mut SchemaGenerator) -> Schema {
    let mut schema = duration_like(
        &format!("off|{POSITIVE_DURATION}"),
        json!(["number", "string", "boolean", "null"]),
        &format!("{SECONDS} `off` means no limit."),
    );
    parts::extend(&mut schema, json!({"exclusiveMinimum": -1}));
    schema
}

/// How long something idle is kept.
pub(in crate::config) fn idle(_: &mut SchemaGenerator) -> Schema {
    duration_like(
        &format!("off|{DURATION}"),
        json!(["number", "string", "boolean", "null"]),
        &format!("{SECONDS} `off` and -1 mean never."),
    )
}

/// The window of scaling.
pub(in crate::config) fn window(_: &mut SchemaGenerator) -> Schema {
    let known = json!(["30s", "60s", "1m", "300s", "5m", 30, 60, 300]);
    json_schema!({
        "anyOf": [{"enum": known}, {"type": "string", "pattern": whole(r"\+?0*(30|60|300)( *s)?|0*[15] *m")}],
        "description": "30s, 60s or 300s.",
    })
}

impl Described for Limit {
    fn describe(generator: &mut SchemaGenerator) -> Schema {
        limit(generator)
    }
}

/// A price above 0.
pub(in crate::config) fn above_zero(generator: &mut SchemaGenerator) -> Schema {
    parts::number(json!({"exclusiveMinimum": 0}))(generator)
}

impl Described for Cron {
    fn describe(_: &mut SchemaGenerator) -> Schema {
        let field = |value: &str, more: &str| {
            let part = format!(r"(\*|({value})(-({value}))?)(/[0-9]+)?{more}");
            format!("({part})(,({part}))*")
        };
        let months = any_case(&[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ]);
        let days = any_case(&["mon", "tue", "wed", "thu", "fri", "sat", "sun"]);
        let last = format!("|{}", any_case(&["last"]));
        let fields = [
            field("0*[1-5]?[0-9]", ""),
            field("0*(1?[0-9]|2[0-3])", ""),
            field("0*([1-9]|[12][0-9]|3[01])", &last),
            field(&format!("0*([1-9]|1[0-2])|{months}"), ""),
            field(&format!("0*[0-6]|{days}"), ""),
        ];
        let schema = text_like(
            &format!(r"\s*{}\s*", fields.join(r"\s+")),
            "five fields: minute hour day month weekday (0 is Monday)",
        );
        let description = "Five fields in UTC: minute, hour, day, month, weekday. The weekday goes from 0 (Monday) to 6 or from mon to sun; day and weekday must both match; `last` is the last day of a month.";
        about(
            schema,
            description,
            json!(["0 8 * * mon-fri", "*/15 * * * *"]),
        )
    }
}

/// One expression or a list of some.
pub(in crate::config) fn crons(generator: &mut SchemaGenerator) -> Schema {
    let one = super::of::<Cron>(generator);
    let many = json_schema!({"type": "array", "items": one.clone(), "minItems": 1});
    any_of([one, many])
}

/// The shell of commands.
pub(in crate::config) fn shell(_: &mut SchemaGenerator) -> Schema {
    let schema = text_like("sh|bash|/.*", "sh, bash or an absolute path");
    about(
        schema,
        "`sh`, `bash` or an absolute path.",
        json!(["sh", "bash", "/usr/bin/fish"]),
    )
}

/// The name of a group.
pub(in crate::config) fn group_name(_: &mut SchemaGenerator) -> Schema {
    let mut schema = text_like(
        "[a-z0-9][a-z0-9-]{0,39}",
        "1 to 40 lower-case letters, digits and dashes, no dash in front",
    );
    parts::extend(&mut schema, json!({"type": ["string", "number"]}));
    schema
}

/// Tags for what a provider makes: texts only.
pub(in crate::config) fn tags(_: &mut SchemaGenerator) -> Schema {
    let value = text_like(
        r"[a-zA-Z0-9 .:/=_\-+@]{0,256}",
        "up to 256 letters, digits, spaces and any of .:/=_-+@",
    );
    json_schema!({
        "type": "object",
        "propertyNames": {"pattern": whole(r"[_\-a-zA-Z0-9]{1,60}")},
        "additionalProperties": value,
    })
}
