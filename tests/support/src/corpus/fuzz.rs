//! Texts that are nearly configurations: no panic, errors inside of the text, and what is accepted means itself.
//!
//! `PROPTEST_CASES` says how many of them; a few seconds' worth by default.

use std::path::Path;
use std::sync::LazyLock;

use dstack_api::config::{self, Configuration, FromValue, Mode, ProfilesConfig, ServerConfig};
use dstack_api::yaml::{self, Document};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestCaseError;
use serde::Serialize;
use serde_json::Value;

use super::{check_places, difference, plan_form};

/// The inputs of the corpus.
static FILES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contract/config-corpus");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "yml"))
        .collect();
    paths.sort();
    let texts = paths
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap());
    texts.collect()
});

/// What is put into a text.
const PIECES: &[&str] = &[
    "é",
    "日本",
    "🦀",
    ": ",
    "- ",
    "\n",
    "\n  ",
    "\t",
    "\r",
    "\r\n",
    "[",
    "]",
    "{",
    "}",
    ",",
    "&a ",
    "*a",
    "<<: *a",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "#",
    "..",
    "1..",
    "${{ ",
    "}}",
    "$$",
    "null",
    "~",
    "true",
    "off",
    "1e3",
    "1.0e+300",
    "22:22",
    "-1",
    "0x1F",
    "%",
    "!!str ",
    "? ",
    "---\n",
    "...\n",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "99999999999999999999",
    ".inf",
    ".nan",
    "2024-01-01",
    "=",
    "\\",
    "\0",
    "key: ",
    "name",
    "type: service\n",
    "commands: [x]\n",
    "image: i\n",
    "GB",
    "*:80",
    "/",
];

/// One change of a text.
#[derive(Debug, Clone)]
enum Change {
    Insert(Index, &'static str),
    Remove(Index, usize),
    /// Characters of another file replace some.
    Graft(Index, usize, Index, Index),
    /// A line is repeated elsewhere.
    Copy(Index, Index),
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        4 => (index(), select(PIECES)).prop_map(|(at, piece)| Change::Insert(at, piece)),
        3 => (index(), 1..12_usize).prop_map(|(at, count)| Change::Remove(at, count)),
        2 => (index(), 0..30_usize, index(), index())
            .prop_map(|(at, count, file, from)| Change::Graft(at, count, file, from)),
        2 => (index(), index()).prop_map(|(from, to)| Change::Copy(from, to)),
        1 => index().prop_map(Change::Cut),
    ]
}

fn changed(text: &str, change: &Change) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let length = chars.len();
    match change {
        Change::Insert(at, piece) => {
            let at = at.index(length + 1);
            chars.splice(at..at, piece.chars());
        }
        Change::Remove(at, count) => {
            let at = at.index(length + 1);
            chars.drain(at..(at + count).min(length));
        }
        Change::Graft(at, count, file, from) => {
            let at = at.index(length + 1);
            let other: Vec<char> = file.get(&FILES).chars().collect();
            let from = from.index(other.len() + 1);
            let piece: Vec<_> = other.into_iter().skip(from).take(30).collect();
            chars.splice(at..(at + count).min(length), piece);
        }
        Change::Copy(from, to) => {
            let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
            if !lines.is_empty() {
                let line = *from.get(&lines);
                lines.insert(to.index(lines.len() + 1), line);
            }
            return lines.concat();
        }
        Change::Cut(at) => chars.truncate(at.index(length + 1)),
    }
    chars.into_iter().collect()
}

fn bad(why: String) -> TestCaseError {
    TestCaseError::fail(why)
}

/// Reads a text as a file of one sort and checks whatever comes out.
fn check<T: FromValue + Serialize>(text: &str) -> Result<Option<T>, TestCaseError> {
    let parsed = match yaml::parse::<T>("file", text, Mode::Strict) {
        Ok(parsed) => parsed,
        Err(errors) => {
            prop_assert!(!errors.problems.is_empty());
            check_places(&errors, text).map_err(bad)?;
            let rendered = errors.render();
            for problem in &errors.problems {
                prop_assert!(!problem.message.is_empty());
                let place = format!("file:{}:{}: ", problem.line, problem.column);
                prop_assert!(rendered.contains(&place), "{}", rendered);
            }
            return Ok(None);
        }
    };
    let canonical = serde_json::to_value(&parsed.value).unwrap();
    let written = yaml::to_yaml(&canonical);
    let again = yaml::parse::<T>("again", &written, Mode::Strict)
        .map_err(|errors| bad(format!("{}\n{written}", errors.render())))?;
    same(&serde_json::to_value(&again.value).unwrap(), &canonical)?;
    let tolerant = config::read::<T>(&canonical, Mode::Tolerant)
        .map_err(|problems| bad(format!("peers refuse it: {problems}")))?;
    same(&serde_json::to_value(&tolerant.value).unwrap(), &canonical)?;
    Ok(Some(parsed.value))
}

fn same(got: &Value, expected: &Value) -> Result<(), TestCaseError> {
    difference(got, expected, "").map_or(Ok(()), |difference| Err(bad(difference)))
}

/// The effective form is a configuration as well: it is what the server keeps.
fn check_plan(configuration: &Configuration) -> Result<(), TestCaseError> {
    let is_run = matches!(configuration, Configuration::Run(_));
    if let (Ok(form), true) = (plan_form(configuration), is_run) {
        let kept = &form["configuration"];
        let read = config::read::<Configuration>(kept, Mode::Strict)
            .map_err(|problems| bad(format!("the effective form is refused: {problems}")))?;
        same(&serde_json::to_value(read.value).unwrap(), kept)?;
    }
    Ok(())
}

/// A document is written in a way that reads as the same.
fn check_document(text: &str) -> Result<(), TestCaseError> {
    let Ok(document) = Document::parse(text) else {
        return Ok(());
    };
    let Ok(value) = document.to_json() else {
        return Ok(());
    };
    let written = yaml::to_yaml(&value);
    let again = Document::parse(&written).and_then(|document| document.to_json());
    let again = again.map_err(|error| bad(format!("{error}\n{written}")))?;
    same(&again, &value)
}

proptest! {
    #[test]
    fn changed_files_are_read_or_refused_well(
        file in any::<Index>(), changes in prop::collection::vec(change(), 1..5)
    ) {
        let text = changes.iter().fold(file.get(&FILES).clone(), |text, one| changed(&text, one));
        if let Some(configuration) = check::<Configuration>(&text)? {
            check_plan(&configuration)?;
        }
        check_document(&text)?;
        check::<ProfilesConfig>(&text)?;
        check::<ServerConfig>(&text)?;
    }

    #[test]
    fn any_text_is_read_or_refused_well(
        pieces in prop::collection::vec(prop_oneof![select(PIECES).prop_map(str::to_owned), "[a-z]{1,6}", "\\PC{0,6}"], 0..24)
    ) {
        let text = pieces.concat();
        check::<Configuration>(&text)?;
        check_document(&text)?;
    }
}

/// Texts that once were read wrongly.
#[test]
fn found_texts_stay_right() {
    for text in FOUND {
        let checked = check::<Configuration>(text).and_then(|read| match read {
            Some(configuration) => check_plan(&configuration),
            None => Ok(()),
        });
        checked
            .and_then(|()| check_document(text))
            .unwrap_or_else(|error| panic!("{text:?}: {error}"));
    }
}

const FOUND: &[&str] = &[
    "a: 1.0e+300\n",
    "type: task\rcommands: [x]\rname: \u{1}\r",
    "type: task\ncommands: [x]\nresources: {memory: 1.0e+308TB}\n",
];
