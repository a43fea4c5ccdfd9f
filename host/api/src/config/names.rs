//! What names may look like.

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} name `{name}` is not valid: {rule}")]
pub struct BadName {
    /// What it names: `run`, `fleet`.
    pub what: &'static str,
    /// The name.
    pub name: String,
    /// What would be right.
    pub rule: &'static str,
}

fn all(name: &str, allowed: impl Fn(char) -> bool) -> bool {
    name.chars().all(allowed)
}

fn lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Whether it fits runs, fleets, volumes, gateways and exports: `^[a-z][a-z0-9-]{1,40}$`.
pub fn is_resource_name(name: &str) -> bool {
    (2..=41).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && all(name, lower)
}

/// Checks [`is_resource_name`].
///
/// # Errors
/// [`BadName`] if it does not fit.
pub fn check_resource_name(what: &'static str, name: &str) -> Result<(), BadName> {
    let rule = "2 to 41 lower-case letters, digits and dashes, starting with a letter";
    match is_resource_name(name) {
        true => Ok(()),
        false => Err(BadName {
            what,
            name: name.to_owned(),
            rule,
        }),
    }
}

/// Whether it fits a group of a task or a service: `^[a-z0-9][a-z0-9-]{0,39}$`.
pub fn is_group_name(name: &str) -> bool {
    (1..=40).contains(&name.len()) && !name.starts_with('-') && all(name, lower)
}

/// Whether it fits a project: `^[a-zA-Z0-9-_]{1,50}$`.
pub fn is_project_name(name: &str) -> bool {
    (1..=50).contains(&name.len()) && all(name, word)
}

/// Whether it fits a user: `^[a-zA-Z0-9-_]{1,60}$`.
pub fn is_user_name(name: &str) -> bool {
    (1..=60).contains(&name.len()) && all(name, word)
}

/// Whether it fits a secret: `^[A-Za-z0-9-_]{1,200}$`.
pub fn is_secret_name(name: &str) -> bool {
    (1..=200).contains(&name.len()) && all(name, word)
}

/// Whether it fits the key of a tag: `^[_\-a-zA-Z0-9]{1,60}$`.
pub fn is_tag_key(key: &str) -> bool {
    is_user_name(key)
}

/// Whether it fits the value of a tag: `^[a-zA-Z0-9 .:/=_\-+@]{0,256}$`.
pub fn is_tag_value(value: &str) -> bool {
    value.len() <= 256
        && all(value, |c| {
            c.is_ascii_alphanumeric() || " .:/=_-+@".contains(c)
        })
}
