//! Writing YAML that every reader understands the same way.

use serde_json::{Number, Value};

use super::scalar;
use super::tree::Data;

/// Whether a text may be written without quotes: it stays one line and reads back as the same text, in YAML 1.1 and 1.2.
pub fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return false;
    };
    let safe_inside = |c: char| c.is_alphanumeric() || " -_./+@%=,~:".contains(c);
    let starts = first.is_alphanumeric() || matches!(first, '/' | '_' | '.');
    // `1e3` and the like are numbers in YAML 1.2 only; words with a digit in front are quoted unless clearly text.
    let number_like = text.parse::<f64>().is_ok() || matches!(text, "y" | "Y" | "n" | "N");
    starts
        && text.chars().all(safe_inside)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !number_like
        && !text.starts_with("0o")
        && scalar::plain(text) == Ok(Data::Text(text.to_owned()))
}

/// The YAML text of a JSON value, in block style; keys in the order of the value.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => block(value, 0, &mut out),
        other => {
            inline(other, &mut out);
            out.push('\n');
        }
    }
    out
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn inline(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => text_into(text, out),
        Value::Number(number) => out.push_str(&plain_number(number)),
        other => out.push_str(&other.to_string()),
    }
}

/// A number as YAML 1.1 reads it: an exponent needs a dot before it and a sign.
fn plain_number(number: &Number) -> String {
    let text = number.to_string();
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return text;
    };
    let dot = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with(['-', '+']) {
        ""
    } else {
        "+"
    };
    format!("{mantissa}{dot}e{sign}{exponent}")
}

fn text_into(text: &str, out: &mut String) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        // JSON's quoted form is a double-quoted scalar of YAML.
        out.push_str(&Value::from(text).to_string());
    }
}

fn block(value: &Value, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) => {
            for (key, item) in map {
                out.push_str(&pad);
                text_into(key, out);
                out.push(':');
                if is_block(item) {
                    out.push('\n');
                    let deeper = if item.is_array() { indent } else { indent + 2 };
                    block(item, deeper, out);
                } else {
                    out.push(' ');
                    inline(item, out);
                    out.push('\n');
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                out.push_str(&pad);
                out.push('-');
                if is_block(item) {
                    // The first line of the item stands behind the dash.
                    let mut inner = String::new();
                    block(item, indent + 2, &mut inner);
                    out.push(' ');
                    out.push_str(inner.trim_start_matches(' '));
                } else {
                    out.push(' ');
                    inline(item, out);
                    out.push('\n');
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
