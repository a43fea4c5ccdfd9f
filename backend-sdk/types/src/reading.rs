//! Typed reading of JSON values the way configurations need it.
//!
//! Configurations come from people (YAML, request bodies) and from peers and rows (JSON). Both go through [`FromValue`]:
//! the same grammar, but a person's misspelt key is a [`Problem`] with its path, while a peer's unknown key is skipped.
//! Text, numbers and booleans are converted into each other where no meaning is lost (`"2"` for 2, `8080` for `"8080"`).
//! Every problem is collected, not only the first one.

mod object;
mod scalar;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

pub use object::{FromObject, Obj, nearest_key};
pub use scalar::{integer_from_text, number_from_text, text_of};

/// Whether unknown keys are an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A person wrote it: an unknown key is a problem.
    Strict,
    /// A peer or an older row wrote it: unknown keys are skipped at every depth.
    Tolerant,
}

/// One step from a value to a value inside it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// The key of a mapping.
    Key(String),
    /// The position in a list, from 0.
    Index(usize),
}

/// Where a value is: the steps from the document's root. Shown with dots, `groups.0.name`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Path(pub Vec<Step>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            match step {
                Step::Key(key) => f.write_str(key)?,
                Step::Index(index) => write!(f, "{index}")?,
            }
        }
        Ok(())
    }
}

/// Why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The key is not known here; the nearest known one, if one is near.
    UnknownKey {
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A required key is absent.
    Missing,
    /// The value does not fit.
    Invalid,
}

/// One thing that is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The failing key or list item; empty for a rule of the whole document.
    pub path: Path,
    /// What sort of problem.
    pub kind: Kind,
    /// What is wrong and what would be right, without the path.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.0.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// Everything wrong with a document, at least one problem. Shown on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

/// Says that reading failed; what failed is in the [`Reader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// A type that can be read from a JSON value, in canonical and in short form.
pub trait FromValue: Sized {
    /// Reads `value`, noting problems in `cx`.
    ///
    /// # Errors
    /// [`Failed`] after at least one problem was noted.
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed>;
}

/// Problems, and warnings, that are noted at most. Nobody reads more, and a bad file may have very many.
const MAX_NOTED: usize = 100;

/// The state of one reading: where we are and what was found wrong.
#[derive(Debug)]
pub struct Reader {
    mode: Mode,
    path: Path,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Reader {
    /// A reader at the root of a document.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            path: Path::default(),
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// The mode of this reading.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Where the reader is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that the value here is wrong.
    pub fn fail(&mut self, message: impl Into<String>) -> Failed {
        self.note(Kind::Invalid, message.into())
    }

    /// Notes that the value under `key` is wrong.
    pub fn fail_at(&mut self, key: &str, message: impl Into<String>) -> Failed {
        let message = message.into();
        self.at_key(key, |cx| cx.fail(message))
    }

    /// Notes something to tell the person although the value is accepted.
    pub fn warn(&mut self, message: impl Into<String>) {
        if self.warnings.len() >= MAX_NOTED {
            return;
        }
        let path = self.path.clone();
        self.warnings.push(Problem {
            path,
            kind: Kind::Invalid,
            message: message.into(),
        });
    }

    /// Whether no further problem would be noted, so that none needs to be described.
    pub(crate) fn is_full(&self) -> bool {
        self.problems.len() >= MAX_NOTED
    }

    /// Whether a further warning would be noted.
    pub(crate) fn takes_warnings(&self) -> bool {
        self.warnings.len() < MAX_NOTED
    }

    fn note(&mut self, kind: Kind, message: String) -> Failed {
        if self.is_full() {
            return Failed;
        }
        self.problems.push(Problem {
            path: self.path.clone(),
            kind,
            message,
        });
        Failed
    }

    /// Runs `f` one key deeper.
    pub fn at_key<T>(&mut self, key: &str, f: impl FnOnce(&mut Self) -> T) -> T {
        self.path.0.push(Step::Key(key.to_owned()));
        let result = f(self);
        self.path.0.pop();
        result
    }

    /// Runs `f` one list item deeper.
    pub fn at_index<T>(&mut self, index: usize, f: impl FnOnce(&mut Self) -> T) -> T {
        self.path.0.push(Step::Index(index));
        let result = f(self);
        self.path.0.pop();
        result
    }

    /// Starts reading a mapping.
    ///
    /// # Errors
    /// [`Failed`] if `value` is not a mapping.
    pub fn object<'v>(&mut self, value: &'v Value) -> Result<Obj<'v>, Failed> {
        match value {
            Value::Object(map) => Ok(Obj::new(map)),
            other => Err(self.fail(format!("expected a mapping, got {}", describe(other)))),
        }
    }

    /// The problems noted so far.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Ends the reading: its problems and its warnings.
    pub fn into_parts(self) -> (Vec<Problem>, Vec<Problem>) {
        (self.problems, self.warnings)
    }
}

/// A value read, with what is worth telling about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Read<T> {
    /// The value.
    pub value: T,
    /// Things that were accepted but deserve a word.
    pub warnings: Vec<Problem>,
}

/// Reads a whole document.
///
/// # Errors
/// Every problem found, at least one.
pub fn read<T: FromValue>(value: &Value, mode: Mode) -> Result<Read<T>, Problems> {
    read_with(value, mode, T::from_value)
}

/// Reads a whole document by a function; see [`read`].
///
/// # Errors
/// Every problem found, at least one.
pub fn read_with<T>(
    value: &Value,
    mode: Mode,
    f: impl FnOnce(&Value, &mut Reader) -> Result<T, Failed>,
) -> Result<Read<T>, Problems> {
    let mut cx = Reader::new(mode);
    let result = f(value, &mut cx);
    let (problems, warnings) = cx.into_parts();
    match result {
        Ok(value) if problems.is_empty() => Ok(Read { value, warnings }),
        Ok(_) | Err(Failed) => Err(Problems(problems)),
    }
}

/// A short text of a value for an error: a scalar itself (cut at 40 characters), else its sort.
pub fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => format!("the boolean {b}"),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) if s.chars().count() <= 40 => format!("\"{s}\""),
        Value::String(_) => "a long text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}

/// Implements `Deserialize` through [`FromValue`] in tolerant mode, for rows and peers.
#[macro_export]
macro_rules! deserialize_by_value {
    ($($type:ty),+ $(,)?) => {$(
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let value = <::serde_json::Value as ::serde::Deserialize>::deserialize(d)?;
                $crate::reading::read(&value, $crate::reading::Mode::Tolerant)
                    .map(|read| read.value)
                    .map_err(::serde::de::Error::custom)
            }
        }
    )+};
}
