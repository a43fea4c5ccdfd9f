//! YAML files: text with positions, the implicit types of YAML 1.1, and errors that point at the place.
//!
//! Written for people: a port mapping `22:22` is the number 1342 in YAML 1.1 (base 60), so that is what is read, with a
//! warning that names the line. Untrusted texts are fine: depth, size and the number of nodes are limited.
//!
//! ```
//! use dstack_api::config::{Configuration, Mode};
//! use dstack_api::yaml;
//!
//! let text = "type: task\ncommands: [make]\nnode: 2\n";
//! let errors = yaml::parse::<Configuration>(".dstack.yml", text, Mode::Strict).unwrap_err();
//! assert_eq!(errors.problems[0].line, 3);
//! assert!(errors.render().contains("did you mean `nodes`?"));
//! ```

mod build;
mod explain;
mod keys;
mod report;
mod scalar;
mod tree;
mod write;

use dstack_backend_types::reading::{FromValue, Mode, Problem, Reader};

pub use build::MAX_BYTES;
pub use report::{Located, Part, YamlErrors};
pub use tree::{Data, Document, Entry, Mark, Node};
pub use write::{is_plain, to_yaml};

/// A file read.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed<T> {
    /// What it says.
    pub value: T,
    /// Things that are accepted but probably not meant.
    pub warnings: Vec<Located>,
}

/// The text of a file's bytes.
///
/// # Errors
/// The file is too long, or where it is not UTF-8.
pub fn decode<'b>(file: &str, bytes: &'b [u8]) -> Result<&'b str, YamlErrors> {
    if bytes.len() > MAX_BYTES {
        return Err(YamlErrors::new(file, "", vec![build::too_long()]));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let valid = String::from_utf8_lossy(valid).replace("\r\n", "\n");
        let problem = Located {
            line: valid.matches(['\n', '\r']).count() + 1,
            column: valid
                .chars()
                .rev()
                .take_while(|c| !matches!(c, '\n' | '\r'))
                .count()
                + 1,
            path: dstack_backend_types::reading::Path::default(),
            message: "the file is not UTF-8 from here on; save it as UTF-8".to_owned(),
            help: None,
        };
        YamlErrors::new(file, &valid, vec![problem])
    })
}

/// Reads `text`, the content of `file`, as a `T`.
///
/// # Errors
/// Everything that is wrong with it, with positions.
pub fn parse<T: FromValue>(file: &str, text: &str, mode: Mode) -> Result<Parsed<T>, YamlErrors> {
    let failed = |problems: Vec<Located>| YamlErrors::new(file, text, problems);
    let broken = |problem| failed(vec![explain::broken(text, problem)]);
    let document = Document::parse(text).map_err(broken)?;
    let value = document
        .to_json()
        .map_err(|problem| failed(vec![problem]))?;
    let mut cx = Reader::new(mode);
    let read = T::from_value(&value, &mut cx);
    let (problems, warnings) = cx.into_parts();
    let locate = |problem: Problem| document.locate(problem);
    match read {
        Ok(value) if problems.is_empty() => {
            let read_warnings = warnings.into_iter().map(locate);
            let warnings = document
                .warnings()
                .iter()
                .cloned()
                .chain(read_warnings)
                .collect();
            Ok(Parsed { value, warnings })
        }
        _ => {
            let explained = problems.into_iter().map(|problem| {
                let problem = explain::empty(explain::misplaced(problem, &value), &value);
                explain::misread(locate(problem), document.warnings())
            });
            Err(failed(explained.collect()))
        }
    }
}

/// A problem that was found after reading, shown where it is in `text`, the content of `file`.
pub fn refuse(file: &str, text: &str, problem: Problem) -> YamlErrors {
    let located = match Document::parse(text) {
        Ok(document) => document.locate(problem),
        Err(located) => located,
    };
    YamlErrors::new(file, text, vec![located])
}

#[cfg(test)]
mod tests;
