//! The tree of a document, with the place of every node.

use dstack_backend_types::reading::{Kind, Path, Problem, Step};
use granit_parser::Span;
use serde_json::{Map, Number, Value};

use super::report::Located;

/// A place in a text; both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl Mark {
    pub(super) fn of(span: &Span) -> Self {
        Self {
            line: span.start.line().max(1),
            column: span.start.col() + 1,
        }
    }
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// Any other number, also infinite or none.
    Float(f64),
    /// A date or a time, as written. No configuration has one.
    Date(String),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, merge keys resolved, each key once.
    Map(Vec<Entry>),
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub data: Data,
    /// Where it starts.
    pub mark: Mark,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key as text: `true` for `yes`, `10` for `012`.
    pub key: String,
    /// Where the key starts.
    pub mark: Mark,
    /// The value.
    pub value: Node,
    /// The key as a value, by which double keys are found.
    pub(super) id: String,
}

/// How much there is below a node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    /// Nodes, keys included.
    pub(super) nodes: usize,
    /// Bytes of words.
    pub(super) text: usize,
}

impl Size {
    /// One node with this text.
    pub(super) fn of_text(text: &str) -> Self {
        Self {
            nodes: 1,
            text: text.len(),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes + other.nodes,
            text: self.text + other.text,
        }
    }
}

/// A document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    root: Node,
    warnings: Vec<Located>,
}

impl Document {
    /// Reads the only document of a text. An empty text is null.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, Located> {
        let (root, warnings) = super::build::build(text)?;
        Ok(Self { root, warnings })
    }

    /// The root.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Keys that occur twice and numbers that look like something else.
    pub fn warnings(&self) -> &[Located] {
        &self.warnings
    }

    /// The document as JSON.
    ///
    /// # Errors
    /// Dates and numbers without a finite value are not possible in JSON.
    pub fn to_json(&self) -> Result<Value, Located> {
        self.root.to_json()
    }

    /// Finds the place of a problem: the key for unknown keys, the mapping for missing ones, else the value.
    pub fn locate(&self, problem: Problem) -> Located {
        let mark = self.mark_of(&problem.path, &problem.kind);
        Located {
            line: mark.line,
            column: mark.column,
            path: problem.path,
            help: help(&problem.kind),
            message: problem.message,
        }
    }

    fn mark_of(&self, path: &Path, kind: &Kind) -> Mark {
        let mut node = &self.root;
        let mut mark = node.mark;
        for step in &path.0 {
            let next = match (step, &node.data) {
                (Step::Key(key), Data::Map(entries)) => {
                    let entry = entries.iter().find(|entry| entry.key == *key);
                    entry.map(|entry| (entry.mark, &entry.value))
                }
                (Step::Index(index), Data::List(items)) => {
                    items.get(*index).map(|item| (item.mark, item))
                }
                _ => None,
            };
            let Some((at, value)) = next else { break };
            mark = match (kind, &value.data) {
                // A block that spans lines is better shown by its key.
                (Kind::UnknownKey { .. } | Kind::Missing, _)
                | (_, Data::Map(_) | Data::List(_)) => at,
                _ => value.mark,
            };
            node = value;
        }
        mark
    }
}

fn help(kind: &Kind) -> Option<String> {
    match kind {
        Kind::UnknownKey { nearest } => nearest.as_ref().map(|near| format!("write `{near}`")),
        Kind::Missing => Some("add the key".to_owned()),
        Kind::Invalid => None,
    }
}

impl Node {
    fn to_json(&self) -> Result<Value, Located> {
        Ok(match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(value), _) => Value::from(value),
                (_, Ok(value)) => Value::from(value),
                _ => {
                    let message = "the number is too large; put it in quotes".to_owned();
                    return Err(Located::at(self.mark, message));
                }
            },
            Data::Float(value) => Number::from_f64(*value).map(Value::Number).ok_or_else(|| {
                Located::at(
                    self.mark,
                    "infinite numbers are not possible here".to_owned(),
                )
            })?,
            Data::Date(text) => {
                let message = format!("`{text}` is a date in YAML; put it in quotes");
                return Err(Located::at(self.mark, message));
            }
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => {
                Value::Array(items.iter().map(Self::to_json).collect::<Result<_, _>>()?)
            }
            Data::Map(entries) => {
                let pairs = entries
                    .iter()
                    .map(|entry| Ok((entry.key.clone(), entry.value.to_json()?)));
                Value::Object(pairs.collect::<Result<Map<_, _>, Located>>()?)
            }
        })
    }

    pub(super) fn size(&self) -> Size {
        let own = Size::of_text("");
        match &self.data {
            Data::List(items) => items.iter().fold(own, |sum, item| sum.plus(item.size())),
            Data::Map(entries) => entries.iter().fold(own, |sum, entry| {
                sum.plus(Size::of_text(&entry.key)).plus(entry.value.size())
            }),
            Data::Text(text) | Data::Date(text) => Size::of_text(text),
            Data::Null | Data::Bool(_) | Data::Int(_) | Data::Float(_) => own,
        }
    }

    /// The key this node is, as text and as an identity: 1, 1.0 and true are the same key.
    pub(super) fn as_key(&self) -> Option<(String, String)> {
        let (text, id) = match &self.data {
            Data::Null => ("null".to_owned(), "null".to_owned()),
            Data::Bool(value) => (value.to_string(), format!("n{}", i32::from(*value))),
            Data::Int(value) => (value.to_string(), format!("n{value}")),
            Data::Float(value) if value.is_finite() => {
                let text = Number::from_f64(*value).map_or_else(String::new, |n| n.to_string());
                (text, format!("n{value}"))
            }
            Data::Float(value) => (value.to_string(), format!("n{value}")),
            Data::Date(text) => (text.clone(), format!("d{text}")),
            Data::Text(text) => (text.clone(), format!("t{text}")),
            Data::List(_) | Data::Map(_) => return None,
        };
        Some((text, id))
    }
}
