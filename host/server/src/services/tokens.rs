//! Extra tokens of users.

use std::sync::Arc;

use dstack_api::tokens::{CreateTokenRequest, NewToken, Scope, TokenInfo};
use dstack_backend_types::Secret;
use dstack_store::tokens::{self, TokenRow};
use dstack_store::{DbError, Store, users};
use uuid::Uuid;

use super::events;
use super::names::NameRule;
use super::users::Users;
use crate::app::now;
use crate::error::ApiError;
use crate::extract::Authenticated;

const TOKEN_NAME: NameRule = NameRule {
    kind: "Token name",
    max: 60,
};
/// Most tokens of one user.
const MOST: usize = 100;

fn show(row: &TokenRow) -> TokenInfo {
    TokenInfo {
        id: row.id,
        name: row.name.clone(),
        scopes: row.scopes.clone(),
        created_at: row.created_at,
        expires_at: row.expires_at,
    }
}

/// The caller's extra tokens, oldest first; ended ones too.
pub(crate) async fn list(
    store: &Store,
    caller: &Authenticated,
) -> Result<Vec<TokenInfo>, ApiError> {
    let me = caller.0.id;
    let rows = store.read(move |tx| tokens::of_user(tx, me)).await?;
    Ok(rows.iter().map(show).collect())
}

/// Makes a token; it is told this once.
pub(crate) async fn create(
    store: &Store,
    caller: &Authenticated,
    request: CreateTokenRequest,
) -> Result<NewToken, ApiError> {
    TOKEN_NAME.check(&request.name)?;
    if request.scopes.is_empty() {
        return Err(ApiError::invalid(
            &["scopes"],
            "at least one scope is needed",
        ));
    }
    for scope in &request.scopes {
        let read: Result<Scope, String> = scope.parse();
        read.map_err(|why| ApiError::invalid(&["scopes"], why))?;
    }
    if request.expires_at.is_some_and(|end| end <= now()) {
        return Err(ApiError::invalid(&["expires_at"], "lies in the past"));
    }
    let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let row = TokenRow {
        id: Uuid::new_v4(),
        user_id: caller.0.id,
        name: request.name,
        token_sha256: users::token_hash(&token),
        scopes: request.scopes,
        created_at: now(),
        expires_at: request.expires_at,
    };
    let info = show(&row);
    let user = Arc::clone(&caller.0);
    store
        .write_as(move |tx| {
            if tokens::of_user(tx, user.id)?.len() >= MOST {
                return Err(ApiError::refused(format!(
                    "A user has at most {MOST} extra tokens; delete one first"
                )));
            }
            tokens::insert(tx, &row).map_err(|error| match error {
                DbError::Conflict { .. } => ApiError::exists("Resource exists"),
                other => other.into(),
            })?;
            let message = format!("Token {} created", row.name);
            events::record(
                tx,
                row.created_at,
                Some(user.id),
                message,
                vec![events::user(&user)],
            )?;
            Ok(())
        })
        .await?;
    Ok(NewToken {
        info,
        token: Secret::new(token),
    })
}

/// Ends a token at once.
pub(crate) async fn delete(
    store: &Store,
    known: &Users,
    caller: &Authenticated,
    name: String,
) -> Result<(), ApiError> {
    let user = Arc::clone(&caller.0);
    let id = user.id;
    store
        .write_as(move |tx| {
            if !tokens::delete(tx, user.id, &name)? {
                return Err(ApiError::not_exists(format!("Token {name} does not exist")));
            }
            let message = format!("Token {name} deleted");
            events::record(tx, now(), Some(user.id), message, vec![events::user(&user)])?;
            Ok(())
        })
        .await?;
    known.forget(id);
    Ok(())
}
