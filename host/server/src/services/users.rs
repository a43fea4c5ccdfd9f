//! Users, their tokens and key pairs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dstack_api::users::{
    CreateUserRequest, GlobalRole, ListUsersRequest, User, UserPermissions, UserTokenCreds,
    UserWithCreds, UsersInfoList,
};
use dstack_backend_types::Secret;
use dstack_engine::ids::UserId;
use dstack_remote::KeyPair;
use dstack_store::users::{self, UserRow, UsersFilter};
use dstack_store::{Page, Store, Tx, tokens};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::events;
use super::keyring::Keyring;
use super::names::{self, NameRule};
use crate::app::{Permissions, now};
use crate::error::ApiError;
use crate::extract::{Authenticated, Extra};

/// How long a token that was changed by another replica may still work here.
const CACHE_LIFE: Duration = Duration::from_secs(10);
const CACHE_SIZE: usize = 10_000;
const USER_NAME: NameRule = NameRule {
    kind: "Username",
    max: 60,
};

/// Users by the hash of their token.
type Tokens = HashMap<[u8; 32], Known>;

/// A user as found by a token.
struct Known {
    caller: Authenticated,
    since: Instant,
    /// When the token ends.
    ends: Option<Timestamp>,
}

/// The users of the server.
pub(crate) struct Users {
    store: Store,
    keyring: Keyring,
    permissions: Permissions,
    tokens: Mutex<Tokens>,
}

/// A list with or without the total.
pub(crate) enum Listed<T, W> {
    /// The bare rows.
    Bare(Vec<T>),
    /// With the number of rows on all pages.
    Counted(W),
}

impl Users {
    pub(crate) fn new(store: Store, keyring: Keyring, permissions: Permissions) -> Self {
        Self {
            store,
            keyring,
            permissions,
            tokens: Mutex::default(),
        }
    }

    /// The active user with this token, their own or an extra one.
    ///
    /// Found by the token's hash, which also is the key of the cache, so that nothing compares the token byte by byte;
    /// the stored token is compared in constant time when the entry is made.
    pub(crate) async fn caller(&self, token: &str) -> Result<Option<Authenticated>, ApiError> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(caller) = self.cached(&key) {
            return Ok(Some(caller));
        }
        let hash = users::token_hash(token);
        let found = self
            .store
            .read(move |tx| {
                if let Some(user) = users::by_token_hash(tx, &hash)? {
                    return Ok(Some((user, None)));
                }
                let Some(extra) = tokens::by_hash(tx, &hash)? else {
                    return Ok(None);
                };
                Ok(users::get(tx, extra.user_id)?.map(|user| (user, Some(extra))))
            })
            .await?;
        let Some((user, extra)) = found else {
            return Ok(None);
        };
        if !user.active || user.deleted {
            return Ok(None);
        }
        let mut ends = None;
        let extra = match extra {
            None => {
                let stored = self.keyring.open(&user.token).map_err(internal)?;
                if !crate::constant::same(stored.expose(), token) {
                    return Ok(None);
                }
                None
            }
            Some(row) => {
                if row.expires_at.is_some_and(|end| end <= now()) {
                    return Ok(None);
                }
                ends = row.expires_at;
                // A scope of a newer server allows nothing.
                let scopes = row.scopes.iter().filter_map(|scope| scope.parse().ok());
                Some(Arc::new(Extra {
                    scopes: scopes.collect(),
                    token: Secret::new(token.to_owned()),
                }))
            }
        };
        let caller = Authenticated(Arc::new(user), extra);
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= CACHE_SIZE {
            tokens.clear();
        }
        let known = Known {
            caller: caller.clone(),
            since: Instant::now(),
            ends,
        };
        tokens.insert(key, known);
        Ok(Some(caller))
    }

    fn cached(&self, key: &[u8; 32]) -> Option<Authenticated> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tokens.get(key)?;
        let is_good =
            known.since.elapsed() < CACHE_LIFE && known.ends.is_none_or(|end| end > now());
        is_good.then(|| known.caller.clone())
    }

    pub(super) fn forget(&self, id: UserId) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.retain(|_, known| known.caller.0.id != id);
    }

    /// The user as the API shows it.
    pub(crate) fn view(&self, row: &UserRow) -> User {
        let is_admin = row.global_role == GlobalRole::Admin;
        User {
            id: row.id.0,
            username: row.name.clone(),
            created_at: Some(row.created_at),
            global_role: row.global_role,
            email: row.email.clone(),
            active: row.active,
            permissions: UserPermissions {
                can_create_projects: is_admin || self.permissions.non_admins_create_projects,
            },
            ssh_public_key: row.ssh_public_key.clone(),
        }
    }

    fn with_creds(&self, row: &UserRow) -> Result<UserWithCreds, ApiError> {
        let token = self.keyring.open(&row.token).map_err(internal)?;
        let private = row
            .ssh_private_key
            .as_ref()
            .map(|key| self.keyring.open(key))
            .transpose()
            .map_err(internal)?;
        Ok(UserWithCreds {
            user: self.view(row),
            creds: UserTokenCreds { token },
            ssh_private_key: private,
        })
    }

    /// One page of users; those who are no admins see only themselves.
    pub(crate) async fn list(
        &self,
        caller: &Authenticated,
        request: ListUsersRequest,
    ) -> Result<Listed<User, UsersInfoList>, ApiError> {
        names::check_limit(request.limit, 2000)?;
        names::check_pattern(request.name_pattern.as_deref())?;
        let filter = UsersFilter {
            only: (!caller.is_admin()).then_some(caller.0.id),
            name_part: request.name_pattern,
            page: Page {
                prev_at: request.prev_created_at,
                prev_id: request.prev_id,
                limit: request.limit,
                ascending: request.ascending,
            },
        };
        let count = request.return_total_count;
        let (rows, total) = self
            .store
            .read(move |tx| {
                let total = if count {
                    Some(users::count(tx, &filter)?)
                } else {
                    None
                };
                Ok((users::list(tx, &filter)?, total))
            })
            .await?;
        let users: Vec<User> = rows.iter().map(|row| self.view(row)).collect();
        Ok(if count {
            Listed::Counted(UsersInfoList {
                total_count: total,
                users,
            })
        } else {
            Listed::Bare(users)
        })
    }

    /// The caller with token and key pair, which is made if there is none yet.
    pub(crate) async fn me(&self, caller: &Authenticated) -> Result<UserWithCreds, ApiError> {
        let id = caller.0.id;
        let row = self
            .store
            .read(move |tx| users::get(tx, id))
            .await?
            .ok_or_else(ApiError::invalid_token)?;
        let row = if row.ssh_private_key.is_some() {
            row
        } else {
            self.with_new_key(row).await?
        };
        let mut shown = self.with_creds(&row)?;
        // An extra token must not become the user's own one.
        if let Some(extra) = &caller.1 {
            shown.creds.token = extra.token.clone();
        }
        Ok(shown)
    }

    /// The public key of a user, made if there is none yet.
    pub(crate) async fn public_key(&self, id: UserId) -> Result<Option<String>, ApiError> {
        let Some(row) = self.store.read(move |tx| users::get(tx, id)).await? else {
            return Ok(None);
        };
        let row = if row.ssh_public_key.is_some() {
            row
        } else {
            self.with_new_key(row).await?
        };
        Ok(row.ssh_public_key)
    }

    async fn with_new_key(&self, row: UserRow) -> Result<UserRow, ApiError> {
        let pair = KeyPair::generate(&row.name).map_err(internal)?;
        let private = self.keyring.seal(pair.private.expose()).map_err(internal)?;
        let id = row.id;
        let row = self
            .store
            .write(move |tx| {
                users::set_ssh_key(tx, id, &pair.public, &private)?;
                users::get(tx, id)
            })
            .await?;
        self.forget(id);
        row.ok_or_else(|| ApiError::not_exists("User not found"))
    }

    /// A user with credentials: oneself, or anybody for global admins.
    pub(crate) async fn get(
        &self,
        caller: &Authenticated,
        name: String,
    ) -> Result<UserWithCreds, ApiError> {
        if !caller.is_admin() && caller.0.name != name {
            return Err(ApiError::not_exists("Resource not found"));
        }
        let row = self.store.read(move |tx| users::by_name(tx, &name)).await?;
        let row = row
            .filter(|row| !row.deleted)
            .ok_or_else(|| ApiError::not_exists("Resource not found"))?;
        self.with_creds(&row)
    }

    /// Makes a user with a random token.
    pub(crate) async fn create(
        &self,
        caller: &UserRow,
        request: CreateUserRequest,
    ) -> Result<User, ApiError> {
        USER_NAME.check(&request.username)?;
        let row = self.new_row(&request, None)?;
        let actor = caller.id;
        let row = self
            .store
            .write_as(move |tx| {
                if users::by_name_any_case(tx, &row.name)?.is_some() {
                    return Err(ApiError::exists("Resource exists"));
                }
                insert(tx, &row, Some(actor))?;
                Ok(row)
            })
            .await?;
        Ok(self.view(&row))
    }

    fn new_row(
        &self,
        request: &CreateUserRequest,
        token: Option<Secret<String>>,
    ) -> Result<UserRow, ApiError> {
        let token = token.unwrap_or_else(|| Secret::new(Uuid::new_v4().to_string()));
        let pair = KeyPair::generate(&request.username).map_err(internal)?;
        Ok(UserRow {
            id: UserId(Uuid::new_v4()),
            name: request.username.clone(),
            global_role: request.global_role,
            email: request.email.clone(),
            active: request.active,
            token: self.keyring.seal(token.expose()).map_err(internal)?,
            token_sha256: users::token_hash(token.expose()),
            ssh_public_key: Some(pair.public),
            ssh_private_key: Some(self.keyring.seal(pair.private.expose()).map_err(internal)?),
            created_at: now(),
            original_name: None,
            deleted: false,
        })
    }

    /// The user `admin` with its token; made at the first start. An existing admin keeps its token.
    pub(crate) async fn ensure_admin(
        &self,
        token: Option<Secret<String>>,
    ) -> Result<(UserRow, Secret<String>), ApiError> {
        let request = CreateUserRequest {
            username: "admin".to_owned(),
            global_role: GlobalRole::Admin,
            email: None,
            active: true,
        };
        let fresh = self.new_row(&request, token)?;
        let row = self
            .store
            .write(move |tx| match users::by_name(tx, "admin")? {
                Some(row) => Ok(row),
                None => {
                    insert(tx, &fresh, None)?;
                    Ok(fresh)
                }
            })
            .await?;
        let token = self.keyring.open(&row.token).map_err(internal)?;
        Ok((row, token))
    }

    /// Replaces what an administrator may change.
    pub(crate) async fn update(
        &self,
        caller: &UserRow,
        request: CreateUserRequest,
    ) -> Result<User, ApiError> {
        let actor = caller.id;
        let row = self
            .store
            .write_as(move |tx| {
                let row = users::by_name(tx, &request.username)?.filter(|row| !row.deleted);
                let Some(mut row) = row else {
                    return Err(ApiError::not_exists("Resource not found"));
                };
                let mut changed = Vec::new();
                if row.global_role != request.global_role {
                    changed.push("global_role");
                }
                if row.email != request.email {
                    changed.push("email");
                }
                if row.active != request.active {
                    changed.push("active");
                }
                (row.global_role, row.email, row.active) =
                    (request.global_role, request.email, request.active);
                users::update(
                    tx,
                    row.id,
                    row.global_role,
                    row.email.as_deref(),
                    row.active,
                )?;
                if !changed.is_empty() {
                    let message = format!("User updated. Updated fields: {}", changed.join(", "));
                    events::record(tx, now(), Some(actor), message, vec![events::user(&row)])?;
                }
                Ok(row)
            })
            .await?;
        self.forget(row.id);
        Ok(self.view(&row))
    }

    /// Gives a user a new token; the old one ends to work.
    pub(crate) async fn refresh_token(
        &self,
        caller: &Authenticated,
        name: String,
    ) -> Result<UserWithCreds, ApiError> {
        let token = Uuid::new_v4().to_string();
        let (sealed, hash) = (
            self.keyring.seal(&token).map_err(internal)?,
            users::token_hash(&token),
        );
        self.refresh(caller, name, "User token refreshed", move |tx, row| {
            users::set_token(tx, row.id, &sealed, &hash)
        })
        .await
    }

    /// Gives a user a new key pair.
    pub(crate) async fn refresh_ssh_key(
        &self,
        caller: &Authenticated,
        name: String,
    ) -> Result<UserWithCreds, ApiError> {
        let pair = KeyPair::generate(&name).map_err(internal)?;
        let private = self.keyring.seal(pair.private.expose()).map_err(internal)?;
        let change = move |tx: &mut dyn Tx, row: &UserRow| {
            users::set_ssh_key(tx, row.id, &pair.public, &private)
        };
        self.refresh(caller, name, "User SSH key refreshed", change)
            .await
    }

    async fn refresh(
        &self,
        caller: &Authenticated,
        name: String,
        message: &'static str,
        change: impl FnOnce(&mut dyn Tx, &UserRow) -> Result<(), dstack_store::DbError> + Send + 'static,
    ) -> Result<UserWithCreds, ApiError> {
        if !caller.is_admin() && caller.0.name != name {
            return Err(ApiError::access_denied());
        }
        let actor = caller.0.id;
        let row = self
            .store
            .write_as(move |tx| {
                let row = users::by_name(tx, &name)?.filter(|row| !row.deleted);
                let Some(row) = row else {
                    return Err(ApiError::not_exists("Resource not found"));
                };
                change(tx, &row)?;
                events::record(tx, now(), Some(actor), message, vec![events::user(&row)])?;
                users::get(tx, row.id)?.ok_or_else(|| ApiError::not_exists("Resource not found"))
            })
            .await?;
        self.forget(row.id);
        self.with_creds(&row)
    }

    /// Deletes users; their names become free.
    pub(crate) async fn delete(
        &self,
        caller: &UserRow,
        names: Vec<String>,
    ) -> Result<(), ApiError> {
        if names.iter().any(|name| name == "admin") {
            return Err(ApiError::refused("User 'admin' cannot be deleted"));
        }
        let actor = caller.id;
        let gone = self
            .store
            .write_as(move |tx| {
                let mut gone = Vec::new();
                for name in names {
                    let row = users::by_name(tx, &name)?.filter(|row| !row.deleted);
                    let Some(row) = row else {
                        return Err(ApiError::refused("Failed to delete non-existent users"));
                    };
                    events::record(
                        tx,
                        now(),
                        Some(actor),
                        "User deleted",
                        vec![events::user(&row)],
                    )?;
                    tokens::delete_of_user(tx, row.id)?;
                    users::delete(tx, row.id, &names::deleted(now(), row.id.0))?;
                    gone.push(row.id);
                }
                Ok(gone)
            })
            .await?;
        gone.into_iter().for_each(|id| self.forget(id));
        Ok(())
    }
}

fn insert(
    tx: &mut dyn Tx,
    row: &UserRow,
    actor: Option<UserId>,
) -> Result<(), dstack_store::DbError> {
    users::insert(tx, row)?;
    let at: Timestamp = row.created_at;
    events::record(tx, at, actor, "User created", vec![events::user(row)])
}

fn internal(error: impl std::fmt::Display) -> ApiError {
    ApiError::Internal(error.to_string())
}
