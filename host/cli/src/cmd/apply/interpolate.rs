//! `${{ namespace.name }}` in the texts that the client fills in; some namespaces stay for the server.

use crate::error::CliError;

/// A text with its references filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Filled {
    text: String,
    /// References that nobody knows; they are empty in the text.
    missing: Vec<String>,
}

/// Namespaces that the server fills in, when the job starts.
const LATER: [&str; 2] = ["secrets", "groups"];

/// Fills in the references that `lookup` knows by namespace and name; one that nobody knows is an error.
pub(crate) fn interpolate(
    text: &str,
    lookup: impl Fn(&str, &str) -> Option<String>,
) -> Result<String, CliError> {
    let filled = fill(text, &LATER, lookup).map_err(CliError::Message)?;
    match filled.missing.first() {
        None => Ok(filled.text),
        Some(name) => Err(CliError::message(format!(
            "`${{{{ {name} }}}}` is not known here, in \"{text}\"; write `$${{{{` for a plain `${{{{`"
        ))),
    }
}

/// `$$` is a plain `$`, but only where scanning stops at it: behind a single `$` everything up to the next `${{` is
/// copied as it is.
fn fill(
    text: &str,
    later: &[&str],
    lookup: impl Fn(&str, &str) -> Option<String>,
) -> Result<Filled, String> {
    let mut out = String::with_capacity(text.len());
    let mut missing = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix("{{") {
            let Some((inner, behind)) = after.split_once("}}") else {
                return Err(format!("`${{{{` without `}}}}` in \"{text}\""));
            };
            rest = behind;
            let name: String = inner.chars().filter(|c| !matches!(c, ' ' | '\n')).collect();
            let is_later = |namespace: &str| later.contains(&namespace);
            if is_group(&name) && is_later("groups") {
                out.push_str(&format!("${{{{{inner}}}}}"));
                continue;
            }
            let (namespace, key) = name
                .split_once('.')
                .filter(|(namespace, key)| is_word(namespace) && is_word(key))
                .ok_or_else(|| {
                    format!("`${{{{{inner}}}}}` is not a reference such as `${{{{ env.NAME }}}}`")
                })?;
            if is_later(namespace) {
                out.push_str(&format!("${{{{{inner}}}}}"));
            } else if let Some(value) = lookup(namespace, key) {
                out.push_str(&value);
            } else {
                missing.push(name);
            }
        } else if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else {
            let (copied, behind) = after.split_at(after.find("${{").unwrap_or(after.len()));
            out.push('$');
            out.push_str(copied);
            rest = behind;
        }
    }
    out.push_str(rest);
    Ok(Filled { text: out, missing })
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `groups[0].nodes[1].IP_ADDRESS`, `groups[0].replicas[1].IP_ADDRESS`
fn is_group(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    let is_item = |part: &str, word: &str| {
        part.strip_prefix(word)
            .and_then(|part| part.strip_prefix('[')?.strip_suffix(']'))
            .is_some_and(|index| !index.is_empty() && index.chars().all(|c| c.is_ascii_digit()))
    };
    matches!(parts.as_slice(), [group, member, "IP_ADDRESS"]
        if is_item(group, "groups") && (is_item(member, "nodes") || is_item(member, "replicas")))
}

/// Arguments as one text that a shell takes apart again.
pub(crate) fn quote(args: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%_-+=:,./".contains(c);
    let quoted = args.iter().map(|arg| {
        if !arg.is_empty() && arg.chars().all(is_plain) {
            arg.clone()
        } else {
            format!("'{}'", arg.replace('\'', r#"'"'"'"#))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn texts_are_filled_as_the_recorded_ones() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/contract/config-corpus/vectors/interpolator.json");
        let vectors: Vec<Value> =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for vector in vectors {
            let later: Vec<&str> = vector["skip"]
                .as_array()
                .unwrap()
                .iter()
                .map(|word| word.as_str().unwrap())
                .collect();
            let known = |namespace: &str, key: &str| {
                vector["namespaces"][namespace][key]
                    .as_str()
                    .map(str::to_owned)
            };
            let filled = fill(vector["input"].as_str().unwrap(), &later, known);
            if vector["error"] == true {
                assert!(filled.is_err(), "{vector}");
                continue;
            }
            let filled = filled.unwrap();
            assert_eq!(filled.text, vector["output"].as_str().unwrap(), "{vector}");
            assert_eq!(
                serde_json::json!(filled.missing),
                vector["missing"],
                "{vector}"
            );
        }
    }

    #[test]
    fn arguments_come_through_a_shell_unchanged() {
        let given = ["a b", "it's", "", "--x=1", "$HOME"].map(str::to_owned);
        assert_eq!(quote(&given), r#"'a b' 'it'"'"'s' '' --x=1 '$HOME'"#);
    }
}
