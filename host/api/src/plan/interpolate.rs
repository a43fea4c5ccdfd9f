//! `${{ namespace.name }}` in texts.
//!
//! `$$` stands for `$`. A lone `$` switches the search off until the next `${{`, and everything in between is copied as
//! it is, doubled dollars too. Names that are not known are empty in the result and listed.

use std::collections::BTreeMap;

use super::groups_ip::GroupReference;

/// Names and their values.
pub type Namespace = BTreeMap<String, String>;

/// What references may stand for.
#[derive(Debug, Clone, Default)]
pub struct Namespaces<'a> {
    known: BTreeMap<&'a str, &'a Namespace>,
    later: &'a [&'a str],
}

impl<'a> Namespaces<'a> {
    /// No names; references to the namespaces of `later` are checked and left as they are.
    pub fn leaving(later: &'a [&'a str]) -> Self {
        Self {
            known: BTreeMap::new(),
            later,
        }
    }

    /// Adds a namespace.
    #[must_use]
    pub fn with(mut self, name: &'a str, values: &'a Namespace) -> Self {
        self.known.insert(name, values);
        self
    }
}

/// A text with its references replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpolated {
    /// The text; unknown names are empty in it.
    pub text: String,
    /// The names that are not known, as `namespace.name`.
    pub missing: Vec<String>,
}

/// Why a text cannot be interpolated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReference {
    /// Nothing closes it.
    #[error(
        "a reference starts with `${{{{` but has no `}}}}`; write `$${{{{` for the characters themselves"
    )]
    Unclosed,
    /// It is no `namespace.name`.
    #[error(
        "`{0}` is not a reference; write `namespace.name` with letters, digits and underscores"
    )]
    Malformed(String),
    /// The name is not known.
    #[error("`{0}` is not known here")]
    Unknown(String),
}

/// Replaces the references of `text`.
///
/// # Errors
/// A reference that is not closed or malformed; names that are not known are in the result.
pub fn interpolate(text: &str, names: &Namespaces<'_>) -> Result<Interpolated, BadReference> {
    let mut out = String::with_capacity(text.len());
    let mut missing = Vec::new();
    let mut rest = text;
    while let Some((before, tail)) = split_at(rest, '$') {
        out.push_str(before);
        if let Some(after) = tail.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some(after) = tail.strip_prefix("${{") {
            let (inner, after) = after.split_once("}}").ok_or(BadReference::Unclosed)?;
            match resolve(inner, names)? {
                Reference::Value(value) => out.push_str(value),
                Reference::Later => {
                    out.push_str("${{");
                    out.push_str(inner);
                    out.push_str("}}");
                }
                Reference::Missing(name) => missing.push(name),
            }
            rest = after;
        } else {
            let at = tail.find("${{").unwrap_or(tail.len());
            let (verbatim, after) = tail.split_at(at);
            out.push_str(verbatim);
            rest = after;
        }
    }
    out.push_str(rest);
    Ok(Interpolated { text: out, missing })
}

/// Replaces the references of `text`; all must be known.
///
/// # Errors
/// The first reference that is not closed, malformed or not known.
pub fn interpolate_all(text: &str, names: &Namespaces<'_>) -> Result<String, BadReference> {
    let mut done = interpolate(text, names)?;
    match done.missing.pop() {
        None => Ok(done.text),
        Some(last) => Err(BadReference::Unknown(
            done.missing.into_iter().next().unwrap_or(last),
        )),
    }
}

/// The part before the first `mark`, and the rest with it.
fn split_at(text: &str, mark: char) -> Option<(&str, &str)> {
    text.find(mark).map(|at| text.split_at(at))
}

enum Reference<'v> {
    Value(&'v str),
    Later,
    Missing(String),
}

fn resolve<'v>(inner: &str, names: &Namespaces<'v>) -> Result<Reference<'v>, BadReference> {
    let name = inner.trim();
    if names.later.contains(&"groups") && GroupReference::parse(name).is_some() {
        return Ok(Reference::Later);
    }
    let malformed = || BadReference::Malformed(name.to_owned());
    let (namespace, key) = name.split_once('.').ok_or_else(malformed)?;
    if !is_word(namespace) || !is_word(key) {
        return Err(malformed());
    }
    if names.later.contains(&namespace) {
        return Ok(Reference::Later);
    }
    let value = names
        .known
        .get(namespace)
        .and_then(|values| values.get(key));
    Ok(match value {
        Some(value) => Reference::Value(value),
        None => Reference::Missing(name.to_owned()),
    })
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
