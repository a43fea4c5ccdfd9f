//! Extra tokens of users (`/api/x/tokens/…`, ours): with an end and a scope.

use dstack_backend_types::Secret;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An extra token, without the token itself: only its hash is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenInfo {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name, unique for the user.
    pub name: String,
    /// What it may be used for; see [`Scope`](crate::tokens::Scope).
    pub scopes: Vec<String>,
    /// When it was made.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub created_at: Timestamp,
    /// When it ends; none is never.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub expires_at: Option<Timestamp>,
}

/// A new token; it is told this once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewToken {
    /// What is known of it later.
    #[serde(flatten)]
    pub info: TokenInfo,
    /// The token.
    pub token: Secret<String>,
}

/// `POST /api/x/tokens/create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateTokenRequest {
    /// Name, unique for the user.
    pub name: String,
    /// What it may be used for, at least one.
    pub scopes: Vec<String>,
    /// When it ends; none is never.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub expires_at: Option<Timestamp>,
}

/// `POST /api/x/tokens/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteTokenRequest {
    /// Name.
    pub name: String,
}

/// What an extra token may be used for. It never allows more than its user may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// `read`: look at everything the user sees, except credentials and values of secrets.
    Read,
    /// `runs`: also plan, apply, stop and delete runs, with what applying needs (repos, code, files).
    Runs,
    /// `services:<run>`: call this service through the proxy; nothing of the API.
    Service(String),
    /// `project:<name>:<role>`: in this project what the role may do, if the user may too.
    Project(String, crate::projects::ProjectRole),
}

impl std::str::FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            ["read"] => Ok(Self::Read),
            ["runs"] => Ok(Self::Runs),
            ["services", run] if !run.is_empty() => Ok(Self::Service((*run).to_owned())),
            ["project", name, role] if !name.is_empty() => {
                let role = role.parse().map_err(|_| {
                    format!("scope `{text}`: the role must be `admin`, `manager` or `user`")
                })?;
                Ok(Self::Project((*name).to_owned(), role))
            }
            _ => Err(format!(
                "scope `{text}` is not one of `read`, `runs`, `services:<run>`, `project:<name>:<role>`"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scope;
    use crate::projects::ProjectRole;

    #[test]
    fn scopes_are_read_and_others_named() {
        assert_eq!("read".parse(), Ok(Scope::Read));
        assert_eq!("services:llm".parse(), Ok(Scope::Service("llm".to_owned())));
        assert_eq!(
            "project:main:manager".parse(),
            Ok(Scope::Project("main".to_owned(), ProjectRole::Manager))
        );
        for wrong in [
            "",
            "write",
            "services:",
            "project:main",
            "project::user",
            "project:main:king",
        ] {
            assert!(
                wrong.parse::<Scope>().unwrap_err().contains(wrong),
                "{wrong}"
            );
        }
    }
}
