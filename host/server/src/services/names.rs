//! Rules for names and numbers in requests.

use jiff::Timestamp;
use uuid::Uuid;

use crate::error::ApiError;

/// What the name of a user or project may be: letters, digits, `-` and `_`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameRule {
    /// What has the name, for the error.
    pub(crate) kind: &'static str,
    /// Longest name.
    pub(crate) max: usize,
}

impl NameRule {
    /// Refuses other names, with the rule in the words of the reference.
    pub(crate) fn check(&self, name: &str) -> Result<(), ApiError> {
        if (1..=self.max).contains(&name.len()) && name.bytes().all(is_word) {
            return Ok(());
        }
        Err(ApiError::refused(format!(
            "{} should match regex '^[a-zA-Z0-9-_]{{1,{}}}$'",
            self.kind, self.max
        )))
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// Names of runs, fleets and volumes: `^[a-z][a-z0-9-]{1,40}$`.
pub(crate) fn check_resource(name: &str) -> Result<(), ApiError> {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let rest = bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if first && rest && (2..=41).contains(&name.len()) {
        return Ok(());
    }
    Err(ApiError::refused(
        "Resource name should match regex '^[a-z][a-z0-9-]{1,40}$'",
    ))
}

/// The part of a name that lists may be searched for.
pub(crate) fn check_pattern(pattern: Option<&str>) -> Result<(), ApiError> {
    if pattern.is_none_or(|pattern| pattern.bytes().all(is_word)) {
        return Ok(());
    }
    Err(ApiError::invalid(
        &["name_pattern"],
        "String should match pattern '^[a-zA-Z0-9-_]*$'",
    ))
}

/// Refuses a page that is too large.
pub(crate) fn check_limit(limit: u32, max: u32) -> Result<(), ApiError> {
    if limit <= max {
        return Ok(());
    }
    Err(ApiError::invalid(
        &["limit"],
        format!("Input should be less than or equal to {max}"),
    ))
}

/// The name of a deleted user or project, which nobody can have chosen.
pub(crate) fn deleted(at: Timestamp, id: Uuid) -> String {
    let id = id.simple().to_string();
    format!("_deleted_{}_{}", at.as_second(), id.get(..8).unwrap_or(&id))
}

#[cfg(test)]
mod tests {
    use super::{NameRule, check_pattern, check_resource};

    #[test]
    fn names() {
        let rule = NameRule {
            kind: "Username",
            max: 5,
        };
        assert!(rule.check("a-B_1").is_ok());
        for bad in ["", "abcdef", "a b", "ä", "a.b"] {
            assert!(rule.check(bad).is_err(), "{bad}");
        }
        assert_eq!(
            rule.check("").unwrap_err().to_string(),
            "Username should match regex '^[a-zA-Z0-9-_]{1,5}$'"
        );
        for good in ["ab", "a1-b"] {
            assert!(check_resource(good).is_ok(), "{good}");
        }
        for bad in ["a", "1ab", "aB", "a_b", "", &"a".repeat(42)] {
            assert!(check_resource(bad).is_err(), "{bad}");
        }
        assert!(check_pattern(Some("a%")).is_err());
    }
}
