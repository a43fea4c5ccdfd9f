//! Finds and reads the file with the configuration.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use dstack_api::config::{Configuration, Mode};

use crate::cx::Cx;
use crate::error::CliError;

/// A configuration with where it came from.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) configuration: Configuration,
    /// What the server is told: relative to the folder of the command where possible, `-` for standard input.
    pub(crate) path: String,
    /// Where relative paths of the file start.
    pub(crate) folder: PathBuf,
}

/// The names that are looked for without `-f`.
const DEFAULTS: [&str; 2] = [".dstack.yml", ".dstack.yaml"];

/// More than the parser takes: an endless file must end there, not in all memory.
const MOST_BYTES: u64 = dstack_api::yaml::MAX_BYTES as u64 + 1;

impl Document {
    pub(crate) fn read(file: Option<&str>, cx: &mut Cx<'_>) -> Result<Self, CliError> {
        let (shown, path, text) = match file {
            Some("-") => {
                let text = cx
                    .ui
                    .read_input(MOST_BYTES)
                    .map_err(|source| CliError::File {
                        verb: "read",
                        path: "standard input".into(),
                        source,
                    })?;
                ("-".to_owned(), None, text)
            }
            Some(file) => {
                let path = cx.expand(file, &cx.folder);
                (shown(&path, &cx.folder), Some(path.clone()), read(&path)?)
            }
            None => {
                let found = DEFAULTS
                    .iter()
                    .map(|name| cx.folder.join(name))
                    .find(|path| path.is_file());
                let path = found.ok_or_else(|| {
                    CliError::message(format!(
                        "there is no {} in {}; name the file with -f FILE",
                        DEFAULTS[0],
                        cx.folder.display()
                    ))
                })?;
                (shown(&path, &cx.folder), Some(path.clone()), read(&path)?)
            }
        };
        let name = if shown == "-" {
            "standard input"
        } else {
            shown.as_str()
        };
        let parsed = dstack_api::yaml::parse::<Configuration>(name, &text, Mode::Strict)
            .map_err(|errors| CliError::message(errors.render().trim_end()))?;
        for warning in &parsed.warnings {
            cx.ui.warn(&format!("{name}:{warning}"))?;
        }
        let folder = path
            .as_deref()
            .and_then(Path::parent)
            .unwrap_or(&cx.folder)
            .to_owned();
        Ok(Self {
            configuration: parsed.value,
            path: shown,
            folder,
        })
    }
}

fn read(path: &Path) -> Result<String, CliError> {
    let text = std::fs::File::open(path).and_then(|file| {
        let mut text = String::new();
        file.take(MOST_BYTES).read_to_string(&mut text)?;
        Ok(text)
    });
    text.map_err(|source| CliError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    })
}

fn shown(path: &Path, folder: &Path) -> String {
    let short = path.strip_prefix(folder).unwrap_or(path);
    let short = short.strip_prefix(".").unwrap_or(short);
    short.display().to_string()
}
