//! Users and their tokens.

use dstack_backend_types::Secret;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::words::wire_enum;

wire_enum! {
    /// What a user may do on the whole server.
    pub enum GlobalRole {
        /// Everything, in every project.
        Admin = "admin",
        /// What the projects allow.
        User = "user",
    }
}

/// What a user may do beside their roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserPermissions {
    /// Make projects.
    pub can_create_projects: bool,
}

/// A user as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct User {
    /// Id; version 4, since clients insist.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name.
    pub username: String,
    /// When it was made.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub created_at: Option<Timestamp>,
    /// Role on the whole server.
    pub global_role: GlobalRole,
    /// E-mail address.
    #[serde(default)]
    pub email: Option<String>,
    /// Whether the user may log in.
    pub active: bool,
    /// What the user may do beside the roles.
    pub permissions: UserPermissions,
    /// Public half of the user's key pair, which jobs let in.
    #[serde(default)]
    pub ssh_public_key: Option<String>,
}

/// A user's token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserTokenCreds {
    /// The token.
    pub token: Secret<String>,
}

/// A user with token and private key; only for the user and for global admins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserWithCreds {
    /// The user.
    #[serde(flatten)]
    pub user: User,
    /// Token.
    pub creds: UserTokenCreds,
    /// Private half of the user's key pair.
    #[serde(default)]
    pub ssh_private_key: Option<Secret<String>>,
}

/// Answer of `users/list` with `return_total_count`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsersInfoList {
    /// Users that match, over all pages.
    #[serde(default)]
    pub total_count: Option<u64>,
    /// This page.
    pub users: Vec<User>,
}

/// `POST /api/users/list`; the body may be absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListUsersRequest {
    /// Answer with [`UsersInfoList`] instead of a bare list.
    pub return_total_count: bool,
    /// Part of the name, in any case.
    pub name_pattern: Option<String>,
    /// Cursor: time of the last row of the previous page.
    #[serde(with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub prev_created_at: Option<Timestamp>,
    /// Cursor: id of that row.
    #[schemars(with = "Option<crate::schema::Id>")]
    pub prev_id: Option<Uuid>,
    /// Page size, at most 2000.
    pub limit: u32,
    /// Oldest first.
    pub ascending: bool,
}

impl Default for ListUsersRequest {
    fn default() -> Self {
        Self {
            return_total_count: false,
            name_pattern: None,
            prev_created_at: None,
            prev_id: None,
            limit: 2000,
            ascending: false,
        }
    }
}

/// `POST /api/users/get_user`, `refresh_token` and `refresh_ssh_key`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetUserRequest {
    /// Name.
    pub username: String,
}

/// `POST /api/users/create` and `update`; an update replaces the whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateUserRequest {
    /// Name.
    pub username: String,
    /// Role on the whole server.
    pub global_role: GlobalRole,
    /// E-mail address.
    #[serde(default)]
    pub email: Option<String>,
    /// Whether the user may log in.
    #[serde(default = "yes")]
    pub active: bool,
}

const fn yes() -> bool {
    true
}

/// `POST /api/users/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteUsersRequest {
    /// Names.
    pub users: Vec<String>,
}

/// A public key that a user added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PublicKeyInfo {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// When it was added.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub added_at: Timestamp,
    /// What the user calls it.
    pub name: String,
    /// Its algorithm, such as `ssh-ed25519`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `SHA256:…`
    pub fingerprint: String,
}

/// `POST /api/users/public_keys/add`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddPublicKeyRequest {
    /// The line of the key in OpenSSH's form.
    pub key: String,
    /// Name; the comment of the line if it is not given.
    #[serde(default)]
    pub name: Option<String>,
}

/// `POST /api/users/public_keys/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletePublicKeysRequest {
    /// Which; unknown ones are skipped.
    #[schemars(with = "Vec<crate::schema::Id>")]
    pub ids: Vec<Uuid>,
}
