//! What an unquoted word means in YAML 1.1.

use std::sync::LazyLock;

use regex::Regex;

use super::tree::Data;

/// A word that no value can be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused(pub(super) String);

fn pattern(text: &str) -> Regex {
    Regex::new(&format!("^(?:{text})$")).expect("the patterns below are valid")
}

static FLOAT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    )
});
static INT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+",
    )
});
static DATE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?",
    )
});

/// The value of an unquoted, untagged word.
pub(super) fn plain(text: &str) -> Result<Data, Refused> {
    if let Some(value) = boolean(text) {
        return Ok(Data::Bool(value));
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Data::Null),
        "=" | "<<" => {
            return Err(Refused(format!(
                "`{text}` has a meaning in YAML; put it in quotes"
            )));
        }
        _ => {}
    }
    // Only these characters can start a number or a date.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        return Ok(Data::Text(text.to_owned()));
    }
    if FLOAT.is_match(text) {
        return float(text);
    }
    if INT.is_match(text) {
        return integer(text);
    }
    if DATE.is_match(text) {
        return Ok(Data::Date(text.to_owned()));
    }
    Ok(Data::Text(text.to_owned()))
}

/// The value of a word with one of YAML's own tags.
pub(super) fn tagged(tag: &str, text: &str) -> Result<Data, Refused> {
    let refused = || Refused(format!("`{text}` does not fit its tag !!{tag}"));
    match tag {
        "str" => Ok(Data::Text(text.to_owned())),
        "null" => Ok(Data::Null),
        "bool" => boolean(&text.to_lowercase())
            .map(Data::Bool)
            .ok_or_else(refused),
        "int" => integer(text),
        "float" => float(text),
        _ => Err(Refused(format!("the tag !!{tag} is not supported"))),
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn sign_of(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn integer(text: &str) -> Result<Data, Refused> {
    let refused = || {
        Refused(format!(
            "`{text}` is not a whole number this program can hold"
        ))
    };
    let clean = text.replace('_', "");
    let (negative, digits) = sign_of(&clean);
    let parse = |digits: &str, radix| i128::from_str_radix(digits, radix).map_err(|_| refused());
    let value = if let Some(binary) = digits.strip_prefix("0b") {
        parse(binary, 2)?
    } else if let Some(hex) = digits.strip_prefix("0x") {
        parse(hex, 16)?
    } else if digits.starts_with('0') && digits.len() > 1 {
        parse(digits, 8)?
    } else if digits.contains(':') {
        digits.split(':').try_fold(0i128, |sum, part| {
            sum.checked_mul(60)
                .and_then(|sum| sum.checked_add(parse(part, 10).ok()?))
                .ok_or_else(refused)
        })?
    } else {
        parse(digits, 10)?
    };
    Ok(Data::Int(if negative { -value } else { value }))
}

fn float(text: &str) -> Result<Data, Refused> {
    let clean = text.replace('_', "").to_ascii_lowercase();
    let (negative, digits) = sign_of(&clean);
    let value = match digits {
        ".inf" => f64::INFINITY,
        ".nan" => f64::NAN,
        _ => {
            let parts: Result<Vec<f64>, _> = digits.split(':').map(str::parse).collect();
            let parts = parts.map_err(|_| Refused(format!("`{text}` is not a number")))?;
            parts.iter().fold(0.0, |sum, part| sum * 60.0 + part)
        }
    };
    Ok(Data::Float(if negative { -value } else { value }))
}

/// What to tell a person about a word that YAML 1.1 reads as another number than it looks like.
pub(super) fn surprise(text: &str, data: &Data) -> Option<String> {
    let quotes = "put it in quotes if the text is meant";
    match data {
        Data::Int(value) if text.contains(':') => Some(format!(
            "`{text}` is the number {value} in YAML (base 60); {quotes}"
        )),
        Data::Float(value) if text.contains(':') => Some(format!(
            "`{text}` is the number {value} in YAML (base 60); {quotes}"
        )),
        Data::Int(value) => {
            let digits = sign_of(text).1;
            let octal = digits.len() > 1
                && digits.starts_with('0')
                && *value != 0
                && digits.chars().all(|c| c.is_ascii_digit() || c == '_');
            octal.then(|| format!("`{text}` is the number {value} in YAML (octal); {quotes}"))
        }
        _ => None,
    }
}
