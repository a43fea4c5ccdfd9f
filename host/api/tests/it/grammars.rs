//! The small grammars: whatever is accepted has a canonical form that means itself, and is shown as it can be written.
//!
//! `PROPTEST_CASES` says how many inputs each gets.

use std::collections::BTreeSet;

use dstack_api::config::{
    self, Blocks, ClientConfig, Cron, EntityReference, Env, FileMapping, FleetNodes, FromValue,
    InstanceSelector, Limit, Mode, MountPoint, PortMapping, ProfileParams, ProfileRetry,
    PythonVersion, RepoSpec, parse_env_item,
};
use dstack_api::plan::groups_ip::{self, Member};
use dstack_api::plan::interpolate::{Namespace, Namespaces, interpolate};
use dstack_api::plan::{ImageName, shell};
use dstack_backend_types::resources as r;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseError;
use serde::Serialize;
use serde_json::{Value, json};

/// Texts of these words, and any others.
fn words(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::collection::vec(select(words), 0..7).prop_map(|parts| parts.concat()),
        1 => "\\PC{0,20}",
    ]
}

/// Reads a value strictly. What is accepted reads as itself in canonical form, by people and by peers; what is refused
/// says why.
fn settles<T: FromValue + Serialize>(value: &Value) -> Result<Option<T>, TestCaseError> {
    let read = match config::read::<T>(value, Mode::Strict) {
        Ok(read) => read.value,
        Err(problems) => {
            prop_assert!(!problems.0.is_empty());
            prop_assert!(problems.0.iter().all(|problem| !problem.message.is_empty()));
            return Ok(None);
        }
    };
    let canonical = serde_json::to_value(&read).unwrap();
    for mode in [Mode::Strict, Mode::Tolerant] {
        let again = config::read::<T>(&canonical, mode).map_err(|problems| {
            TestCaseError::fail(format!("{canonical} is refused: {problems}"))
        })?;
        prop_assert_eq!(&serde_json::to_value(&again.value).unwrap(), &canonical);
    }
    Ok(Some(read))
}

/// As [`settles`], and `show` gives a text that reads as the same.
fn shows<T: FromValue + Serialize>(
    value: &Value,
    show: impl Fn(&T) -> Option<String>,
) -> Result<(), TestCaseError> {
    let Some(read) = settles::<T>(value)? else {
        return Ok(());
    };
    let Some(text) = show(&read) else {
        return Ok(());
    };
    let again = config::read::<T>(&json!(text), Mode::Strict)
        .map_err(|problems| TestCaseError::fail(format!("{text} is refused: {problems}")))?;
    prop_assert_eq!(
        serde_json::to_value(again.value).unwrap(),
        serde_json::to_value(read).unwrap(),
        "shown as {}",
        text
    );
    Ok(())
}

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "4",
    "16",
    "..",
    ".5",
    "0.25",
    "-",
    "+",
    " ",
    "e",
    "99999999999",
    "9223372036854775807",
    "é",
    "٣",
    "_",
];
const SIZES: &[&str] = &[
    "1", "8", "0.5", "..", "GB", "gb", "MB", "TB", "tb", " ", "-", "1e3", "1e308", "1e-320", "B",
    "0",
];
const GPUS: &[&str] = &[
    "H100",
    "h100",
    "A100,H100",
    "nvidia",
    "amd",
    "tpu",
    "tpu-v5",
    "tpu-",
    "tt",
    "v5litepod-4",
    ":",
    ":",
    ":",
    "80GB",
    "..24GB",
    "2",
    "1..8",
    "8..",
    ",",
    " ",
    "é",
    "Ω",
];
const CPUS: &[&str] = &[
    "arm", "x86", "X86", ":", "4", "2..8", "..", "..4", " ", "-1", "4.0",
];
const DURATIONS: &[&str] = &[
    "1",
    "90",
    "s",
    "m",
    "h",
    "d",
    "w",
    " ",
    "-",
    "off",
    "99999999999999",
    "٣",
    "1.5",
    "M",
];
const PORTS: &[&str] = &[
    "80", "8080", ":", "*", "0", "65535", "65536", " ", "-1", "08", "٣",
];
const PATHS: &[&str] = &[
    "a", "data", ":", "/", "/data", "..", ".", "~", " ", "//", "C:", "\\", "é", "\0", "${{ x }}",
];
const NAMES: &[&str] = &[
    "main", "a", "/", "-", "_", "A", ".", " ", "é", "0", ":", "2",
];
const URLS: &[&str] = &[
    "https://",
    "git@",
    "github.com",
    "/",
    "a/b",
    ".git",
    ":",
    "~/x",
    "/srv",
    "#",
    "@",
    "file://",
    " ",
];
const VARIABLES: &[&str] = &["A", "_", "b1", "=", "1", " ", "é", "$", "\n", "==", "-"];

proptest! {
    #[test]
    fn ranges_of_numbers(text in words(NUMBERS)) {
        shows::<r::Range<i64>>(&json!(text), |range| Some(range.to_string()))?;
        shows::<r::Range<u32>>(&json!(text), |range| Some(range.to_string()))?;
        if let Some(range) = settles::<r::Range<i64>>(&json!(text))? {
            for bound in [range.min, range.max].into_iter().flatten() {
                prop_assert!(range.contains(bound));
                prop_assert_eq!(range.intersect(&r::Range::exactly(bound)), Some(r::Range::exactly(bound)));
            }
            prop_assert_eq!(range.intersect(&range), Some(range));
        }
    }

    #[test]
    fn sizes(text in words(SIZES), number in any::<f64>()) {
        shows::<r::Memory>(&json!(text), |size| Some(size.to_string()))?;
        shows::<r::Memory>(&json!(number), |size| Some(size.to_string()))?;
        shows::<r::Range<r::Memory>>(&json!(text), |range| Some(range.to_string()))?;
        settles::<r::DiskSpec>(&json!(text))?;
        settles::<r::DiskSpec>(&json!({"size": text}))?;
    }

    #[test]
    fn gpus(text in words(GPUS)) {
        // Each reading takes one `tpu-` off a name.
        let joined: String = text.to_lowercase().split_whitespace().collect();
        prop_assume!(!joined.contains("tpu-tpu-"));
        shows::<r::GpuSpec>(&json!(text), |gpu| {
            // A name may be the rest of `tpu-8`, which no short form can say.
            let plain = gpu.name.iter().flatten().all(|name| name.starts_with(char::is_alphabetic));
            let vendor = gpu.name.as_ref().is_some_and(|names| {
                config::read::<dstack_backend_types::AcceleratorVendor>(&json!(names.join(",")), Mode::Strict).is_ok()
            });
            let prefixed = gpu.name.iter().flatten().any(|name| name.starts_with("tpu-"));
            (plain && !vendor && !prefixed).then(|| gpu.to_string())
        })?;
        settles::<r::GpuSpec>(&json!({"name": text, "count": text}))?;
        settles::<r::ComputeCapability>(&json!(text))?;
    }

    #[test]
    fn processors(text in words(CPUS)) {
        shows::<r::CpuSpec>(&json!(text), |cpu| Some(cpu.to_string()))?;
        settles::<r::CpuSpec>(&json!({"arch": text, "count": text}))?;
        settles::<r::ResourcesSpec>(&json!({"cpu": text, "memory": text, "disk": text, "shm_size": text}))?;
    }

    #[test]
    fn capabilities(major in 0..20_u32, minor in 0..12_u32) {
        shows::<r::ComputeCapability>(&json!([major, minor]), |version| Some(version.to_string()))?;
    }

    #[test]
    fn durations(text in words(DURATIONS), number in any::<i64>()) {
        for value in [json!(text), json!(number)] {
            settles::<Limit>(&value)?;
            for key in ["max_duration", "stop_duration", "idle_duration"] {
                settles::<ProfileParams>(&json!({key: value}))?;
            }
        }
        if let Some(seconds) = config::duration::parse(&text) {
            prop_assert_eq!(config::duration::parse(&seconds.to_string()), Some(seconds));
        }
    }

    #[test]
    fn ports(text in words(PORTS)) {
        shows::<PortMapping>(&json!(text), |port| Some(match port.local_port {
            Some(local) => format!("{local}:{}", port.container_port),
            None => format!("*:{}", port.container_port),
        }))?;
    }

    #[test]
    fn mounts_and_files(text in words(PATHS)) {
        if let Some(mount) = settles::<MountPoint>(&json!(text))? {
            prop_assert!(mount.path().starts_with('/'), "{}", mount.path());
        }
        settles::<MountPoint>(&json!({"name": text, "path": text}))?;
        settles::<MountPoint>(&json!({"instance_path": text, "path": text}))?;
        settles::<FileMapping>(&json!(text))?;
    }

    #[test]
    fn repositories(text in words(URLS)) {
        settles::<RepoSpec>(&json!(text))?;
        settles::<RepoSpec>(&json!({"url": text}))?;
    }

    #[test]
    fn variables(items in prop::collection::vec(words(VARIABLES), 0..4)) {
        let env = settles::<Env>(&json!(items))?;
        let each: Vec<_> = items.iter().map(|item| parse_env_item(item)).collect();
        let names: BTreeSet<_> = each.iter().flatten().map(|(name, _)| name.clone()).collect();
        let fine = each.iter().all(Result::is_ok) && names.len() == items.len();
        prop_assert_eq!(env.is_some(), fine, "{:?}", items);
        prop_assert_eq!(env.map(|env| env.0.into_keys().collect::<BTreeSet<_>>()), fine.then_some(names));
    }

    #[test]
    fn references(text in words(NAMES)) {
        shows::<EntityReference>(&json!(text), |reference| Some(reference.to_string()))?;
        settles::<InstanceSelector>(&json!(text))?;
        settles::<PythonVersion>(&json!(text))?;
        settles::<FleetNodes>(&json!(text))?;
        settles::<Blocks>(&json!(text))?;
        let image = ImageName::parse(&text);
        // Names without a folder are in the registry's own.
        let repo = image.repo.strip_prefix("library/").unwrap_or(&image.repo);
        prop_assert!(text.contains(repo), "{}", repo);
    }

    #[test]
    fn tags(tags in prop::collection::btree_map(words(NAMES), words(NAMES), 0..4)) {
        settles::<ProfileParams>(&json!({"tags": tags}))?;
    }

    #[test]
    fn retries(
        events in prop::collection::vec(select(&["no-capacity", "interruption", "error", "x"][..]), 0..3),
        duration in words(DURATIONS), switch in words(&["true", "off", "yes", "0", "2", " "])
    ) {
        for value in [json!({"on_events": events, "duration": duration}), json!(switch)] {
            if let Some(retry) = settles::<ProfileRetry>(&value)? && let Some(rule) = retry.effective() {
                prop_assert!(!rule.on_events.is_empty());
            }
        }
    }

    #[test]
    fn shell_words(list in prop::collection::vec("\\PC{0,8}", 0..5)) {
        let split = shell::split(&shell::join(&list));
        prop_assert_eq!(split.ok(), Some(list));
    }

    #[test]
    fn client_files(name in words(NAMES), token in "\\PC{0,8}") {
        settles::<ClientConfig>(&json!({"projects": [{"name": name, "url": "u", "token": token}]}))?;
    }
}

/// A field of a cron expression and the values it stands for.
fn field(min: u32, max: u32) -> impl Strategy<Value = (String, BTreeSet<u32>)> {
    let single = (min..=max).prop_map(|n| (n.to_string(), BTreeSet::from([n])));
    let range = (min..=max, min..=max).prop_map(|(a, b)| {
        let (a, b) = (a.min(b), a.max(b));
        (format!("{a}-{b}"), (a..=b).collect())
    });
    let all = Just(("*".to_owned(), (min..=max).collect::<BTreeSet<_>>()));
    let step = (1..=(max - min)).prop_map(move |step| {
        (
            format!("*/{step}"),
            (min..=max)
                .filter(|n| (n - min).is_multiple_of(step))
                .collect(),
        )
    });
    let part = prop_oneof![3 => all, 2 => single, 1 => range, 1 => step];
    prop::collection::vec(part, 1..3).prop_map(|parts| {
        let text: Vec<_> = parts.iter().map(|(text, _)| text.as_str()).collect();
        let values = parts.iter().flat_map(|(_, values)| values.iter().copied());
        (text.join(","), values.collect())
    })
}

proptest! {
    #[test]
    fn crons_come_when_all_fields_match(
        (minute, minutes) in field(0, 59), (hour, hours) in field(0, 23), (day, days) in field(1, 31),
        (month, months) in field(1, 12), (weekday, weekdays) in field(0, 6),
        now in 0..4_000_000_000_i64, samples in prop::collection::vec(0.0..1.0_f64, 100)
    ) {
        let text = format!("{minute} {hour} {day} {month} {weekday}");
        let cron: Cron = text.parse().unwrap();
        prop_assert_eq!(cron.as_str().parse::<Cron>().unwrap(), cron.clone());
        let matches = |at: Timestamp| {
            let at = TimeZone::UTC.to_datetime(at);
            let has = |values: &BTreeSet<u32>, n: i8| u32::try_from(n).is_ok_and(|n| values.contains(&n));
            has(&minutes, at.minute()) && has(&hours, at.hour()) && has(&days, at.day()) && has(&months, at.month())
                && has(&weekdays, at.weekday().to_monday_zero_offset())
        };
        let now = Timestamp::from_second(now).unwrap();
        let Some(next) = cron.next(now) else {
            let most = |month: &u32| match month { 2 => 29, 4 | 6 | 9 | 11 => 30, _ => 31 };
            let possible = months.iter().any(|month| days.iter().any(|day| *day <= most(month)));
            prop_assert!(!possible, "{} never comes", text);
            return Ok(());
        };
        prop_assert!(next >= now && next.as_second() % 60 == 0 && matches(next), "{} at {}", text, next);
        prop_assert_eq!(cron.next(next), Some(next));
        // None was missed.
        let minutes_between = (next.as_second() - now.as_second()) / 60;
        for sample in samples {
            #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "any minute will do")]
            let minute = (sample * minutes_between as f64) as i64;
            let first = now.as_second() + (60 - now.as_second() % 60) % 60;
            let at = Timestamp::from_second(first).unwrap().checked_add((minute * 60).seconds()).unwrap();
            prop_assert!(at >= next || !matches(at), "{} missed {}", text, at);
        }
    }
}

/// A piece of a text with references, and what becomes of it.
#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Known(&'static str, &'static str),
    Missing(String),
    Dollar,
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        3 => "[a-z {}.é🦀]{0,6}".prop_map(Piece::Text),
        2 => select(&[("one", "1"), ("two", "${{ x.one }}"), ("empty", "")][..]).prop_map(|(name, value)| Piece::Known(name, value)),
        1 => "[a-z_][a-z0-9_]{5}".prop_map(Piece::Missing),
        1 => Just(Piece::Dollar),
    ]
}

proptest! {
    #[test]
    fn references_are_replaced_once(pieces in prop::collection::vec(piece(), 0..8), blank in " {0,2}") {
        let (mut text, mut expected, mut missing) = (String::new(), String::new(), Vec::new());
        for piece in &pieces {
            match piece {
                Piece::Text(plain) => {
                    text.push_str(plain);
                    expected.push_str(plain);
                }
                Piece::Known(name, value) => {
                    text.push_str(&format!("${{{{{blank}x.{name}{blank}}}}}"));
                    expected.push_str(value);
                }
                Piece::Missing(name) => {
                    text.push_str(&format!("${{{{{blank}x.{name}{blank}}}}}"));
                    missing.push(format!("x.{name}"));
                }
                Piece::Dollar => {
                    text.push_str("$$");
                    expected.push('$');
                }
            }
        }
        let known = [("one", "1"), ("two", "${{ x.one }}"), ("empty", "")];
        let known: Namespace = known.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let done = interpolate(&text, &Namespaces::leaving(&[]).with("x", &known)).unwrap();
        prop_assert_eq!(done.text, expected, "{}", text);
        prop_assert_eq!(done.missing, missing);
    }

    #[test]
    fn texts_without_references_stay(text in words(&["$", "$$", "{{", "}}", "${{", "groups[0].nodes[0].IP_ADDRESS", "x.one", "secrets.a", " ", "é"])) {
        let none = Namespace::new();
        let names = Namespaces::leaving(&["secrets", "groups"]);
        if let Ok(done) = interpolate(&text, &names.clone().with("x", &none)) && !text.contains('$') {
            prop_assert_eq!(&done.text, &text);
        }
        let addresses = [vec!["10.0.0.1".to_owned()]];
        match groups_ip::substitute(&text, Member::Nodes, &addresses) {
            Ok(done) if !groups_ip::has_references(&text) => prop_assert_eq!(done, text),
            Ok(done) => prop_assert!(done.contains("10.0.0.1")),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
