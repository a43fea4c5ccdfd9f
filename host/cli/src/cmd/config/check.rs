//! `dstack config check`: whether files are right, and what they mean.

use std::io::Read;
use std::path::{Path, PathBuf};

use dstack_api::config::{
    ClientConfig, Configuration, FromValue, Kind, Mode, Path as Steps, Problem, ProfilesConfig,
    SchemaType, ServerConfig, Step,
};
use dstack_api::plan;
use dstack_api::yaml::{self, Document, Located, YamlErrors};
use serde::Serialize;
use serde_json::Value;

use super::{kind, place, print};
use crate::cx::Cx;
use crate::error::CliError;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The canonical form is the file with every key in its full form; the effective form is what a plan would\nuse of it, with defaults. No server is asked: profiles, secrets and images are not looked up.\nCredentials of the server's and the client's config.yml are shown as ***.\n\nExamples:\n  dstack config check .dstack.yml                    what this file means\n  dstack config check -q *.dstack.yml                only what is wrong\n  dstack config check --json .dstack/profiles.yml    the same for programs\n  generate | dstack config check -                   from standard input"
)]
pub(crate) struct Args {
    /// Files to check; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// What the files are; default: seen from what stands in them
    #[arg(long, value_name = "TYPE", value_parser = super::types())]
    kind: Option<SchemaType>,
    /// Print one JSON array with an entry for each file
    #[arg(long)]
    json: bool,
    /// Print only what is wrong
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

/// What was found about a file.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) file: String,
    pub(super) kind: SchemaType,
    /// The file in full form, if it can be read.
    pub(super) canonical: Option<Value>,
    /// What a plan would use; null where there is no such form.
    pub(super) effective: Option<Value>,
    pub(super) warnings: Vec<Located>,
    pub(super) errors: Option<Wrong>,
}

/// Why a file is not right.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It cannot be read at all.
    Unreadable(String),
    /// What stands in it.
    Content(YamlErrors),
}

pub(crate) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let mut all = Vec::new();
    let mut is_wrong = false;
    for file in &args.files {
        let checked = check(file, args.kind, cx);
        is_wrong |= checked.errors.is_some();
        if args.json {
            all.push(print::entry(&checked));
        } else {
            print::for_people(&checked, args.quiet, cx)?;
        }
    }
    if args.json {
        cx.ui.json(&all)?;
    }
    if is_wrong {
        Err(CliError::Quiet)
    } else {
        Ok(())
    }
}

/// More than the parser takes: an endless file must end there, not in all memory.
const MOST_BYTES: u64 = yaml::MAX_BYTES as u64 + 1;

fn check(file: &Path, kind: Option<SchemaType>, cx: &mut Cx<'_>) -> Checked {
    let is_input = file == Path::new("-");
    let name = match is_input {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    };
    let bytes = if is_input {
        cx.ui.read_input_bytes(MOST_BYTES)
    } else {
        std::fs::File::open(cx.expand(&name, &cx.folder)).and_then(|file| {
            let mut bytes = Vec::new();
            file.take(MOST_BYTES).read_to_end(&mut bytes).map(|_| bytes)
        })
    };
    let failed = |why: Wrong| Checked {
        file: name.clone(),
        kind: kind.unwrap_or_else(|| kind::of(file, "")),
        canonical: None,
        effective: None,
        warnings: Vec::new(),
        errors: Some(why),
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => return failed(Wrong::Unreadable(format!("cannot read {name}: {error}"))),
    };
    match yaml::decode(&name, &bytes) {
        Err(errors) => failed(Wrong::Content(errors)),
        Ok(text) => {
            let kind = kind.unwrap_or_else(|| kind::of(file, text));
            check_text(name, kind, text)
        }
    }
}

fn check_text(file: String, kind: SchemaType, text: &str) -> Checked {
    let (canonical, effective, warnings, errors) = match kind {
        SchemaType::Profiles => read::<ProfilesConfig>(&file, text),
        SchemaType::ServerConfig => read::<ServerConfig>(&file, text),
        SchemaType::ClientConfig => read::<ClientConfig>(&file, text),
        _ => read_configuration(&file, kind, text),
    };
    Checked {
        file,
        kind,
        canonical: canonical.map(|mut value| {
            print::hide_credentials(kind, &mut value);
            value
        }),
        effective,
        warnings,
        errors: errors.map(Wrong::Content),
    }
}

type Outcome = (
    Option<Value>,
    Option<Value>,
    Vec<Located>,
    Option<YamlErrors>,
);

fn canonical(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok()
}

fn read<T: FromValue + Serialize>(file: &str, text: &str) -> Outcome {
    match yaml::parse::<T>(file, text, Mode::Strict) {
        Ok(parsed) => (canonical(&parsed.value), None, parsed.warnings, None),
        Err(errors) => (None, None, warnings_beside(text, &errors), Some(errors)),
    }
}

/// A file with errors may have keys that occur twice, too. What an error names already is not said again.
fn warnings_beside(text: &str, errors: &YamlErrors) -> Vec<Located> {
    let place = |of: &Located| (of.line, of.column);
    let is_told = |warning: &Located| errors.problems.iter().any(|at| place(at) == place(warning));
    let document = Document::parse(text).ok();
    let warnings = document.iter().flat_map(Document::warnings);
    warnings.filter(|at| !is_told(at)).cloned().collect()
}

fn read_configuration(file: &str, kind: SchemaType, text: &str) -> Outcome {
    let parsed = match yaml::parse::<Configuration>(file, text, Mode::Strict) {
        Ok(parsed) => parsed,
        Err(errors) => return (None, None, warnings_beside(text, &errors), Some(errors)),
    };
    let refuse = |path: Steps, message: String| {
        let problem = Problem {
            path,
            kind: Kind::Invalid,
            message,
        };
        Some(yaml::refuse(file, text, problem))
    };
    let form = canonical(&parsed.value);
    let given = form.as_ref().and_then(|form| form["type"].as_str());
    if kind::is_named_by_type(kind) && given.is_some_and(|given| given != kind.as_str()) {
        let message = format!("expected `{kind}`, as --kind says");
        let path = Steps(vec![Step::Key("type".to_owned())]);
        return (form, None, parsed.warnings, refuse(path, message));
    }
    match plan::effective_form(&parsed.value) {
        Ok(effective) => {
            let effective = Some(effective).filter(|form| !form.is_null());
            (form, effective, parsed.warnings, None)
        }
        Err(error) => {
            let path = place::of(&error, form.as_ref().unwrap_or(&Value::Null));
            let errors = refuse(path, error.to_string());
            (form, None, parsed.warnings, errors)
        }
    }
}
