//! Pieces of schemas: texts by pattern, numbers in ranges, null.
//!
//! Numbers and texts convert into each other where nothing is lost, so most scalars are of several types. `pattern` looks
//! at texts only and `minimum` at numbers only; one flat schema says both, and editors report it well.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A whole number, with sign or decimals that are zero.
pub(super) const WHOLE: &str = r"\s*[+-]?[0-9]+(\.0+)?\s*";
/// A whole number that is not negative.
const NATURAL: &str = r"\s*(\+?[0-9]+(\.0+)?|-0+)\s*";
/// A decimal number.
pub(super) const NUMBER: &str = r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*";

/// What a text must look like as a whole.
pub(super) fn whole(pattern: &str) -> String {
    format!("^({pattern})$")
}

/// A pattern for words in any case.
pub(super) fn any_case(words: &[&str]) -> String {
    let word = |word: &&str| -> String {
        word.chars()
            .map(|c| match c.is_ascii_alphabetic() {
                true => format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase()),
                false => c.to_string(),
            })
            .collect()
    };
    words.iter().map(word).collect::<Vec<_>>().join("|")
}

/// Any text; a number is read as its text.
pub(super) fn text() -> Schema {
    json_schema!({"type": ["string", "number"]})
}

/// A text by pattern, with what an editor says when it does not fit.
pub(super) fn text_like(pattern: &str, expected: &str) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": whole(pattern),
        "patternErrorMessage": format!("expected {expected}"),
    })
}

/// A text of some length; a number is read as its text.
pub(in crate::config) fn text_of_length(
    min: u32,
    max: u32,
) -> impl Fn(&mut SchemaGenerator) -> Schema {
    move |_| json_schema!({"type": ["string", "number"], "minLength": min, "maxLength": max})
}

/// A whole number in a range; a text of digits is read as the number.
pub(in crate::config) fn integer(min: i64, max: i64) -> impl Fn(&mut SchemaGenerator) -> Schema {
    move |_| integer_in(min, max)
}

/// See [`integer`].
pub(super) fn integer_in(min: i64, max: i64) -> Schema {
    let pattern = if min >= 0 { NATURAL } else { WHOLE };
    let expected = "a whole number";
    let mut schema = json_schema!({
        "type": ["integer", "string"],
        "pattern": whole(pattern),
        "patternErrorMessage": format!("expected {expected}"),
    });
    if min > i64::MIN {
        schema.insert("minimum".to_owned(), json!(min));
    }
    if max < i64::MAX {
        schema.insert("maximum".to_owned(), json!(max));
    }
    schema
}

/// A number with limits such as `{"minimum": 0}`; a text of digits is read as the number.
pub(in crate::config) fn number(limits: Value) -> impl Fn(&mut SchemaGenerator) -> Schema {
    move |_| {
        let mut schema = json_schema!({
            "type": ["number", "string"],
            "pattern": whole(NUMBER),
            "patternErrorMessage": "expected a number",
        });
        extend(&mut schema, limits.clone());
        schema
    }
}

/// True or false, also by the words that mean them.
pub(super) fn switch() -> Schema {
    let words = [
        "true", "yes", "on", "t", "y", "1", "false", "no", "off", "f", "n", "0",
    ];
    json_schema!({
        "type": ["boolean", "string", "integer"],
        "pattern": whole(&any_case(&words)),
        "patternErrorMessage": "expected true or false",
        "minimum": 0,
        "maximum": 1,
    })
}

/// One of some words, each with its meaning.
pub(super) fn words<'w>(words: impl Iterator<Item = (&'w str, &'w str)>) -> Schema {
    let (words, docs): (Vec<_>, Vec<_>) = words
        .map(|(word, doc)| (word, super::object::text_of(doc)))
        .unzip();
    let mut schema = json_schema!({"type": "string", "enum": words});
    if docs.iter().all(|doc| !doc.is_empty()) {
        // A keyword of editors; validators do not know it.
        schema.insert("markdownEnumDescriptions".to_owned(), json!(docs));
    }
    schema
}

/// Null as well.
pub(in crate::config) fn nullable(mut schema: Schema) -> Schema {
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.push(Value::Null);
    }
    let is_enum = schema.get("enum").is_some();
    match schema.get_mut("type") {
        Some(Value::Array(types)) => {
            types.push(json!("null"));
            schema
        }
        Some(single @ Value::String(_)) => {
            *single = json!([single.clone(), "null"]);
            schema
        }
        _ if is_enum => schema,
        _ => {
            let about = schema.remove("description");
            let mut either = json_schema!({"anyOf": [schema, {"type": "null"}]});
            if let Some(about) = about {
                either.insert("description".to_owned(), about);
            }
            either
        }
    }
}

/// Any of some schemas.
pub(super) fn any_of(schemas: impl IntoIterator<Item = Schema>) -> Schema {
    let schemas: Vec<_> = schemas.into_iter().collect();
    json_schema!({"anyOf": schemas})
}

/// Adds what it is and what it may look like.
pub(super) fn about(mut schema: Schema, about: &str, examples: Value) -> Schema {
    schema.insert("description".to_owned(), json!(about));
    schema.insert("examples".to_owned(), examples);
    schema
}

/// Adds keywords to a schema.
pub(in crate::config) fn extend(schema: &mut Schema, more: Value) {
    if let Value::Object(more) = more {
        for (key, value) in more {
            schema.insert(key, value);
        }
    }
}
