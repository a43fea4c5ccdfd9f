//! `/api/users/…`

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use dstack_api::users::{
    CreateUserRequest, DeleteUsersRequest, GetUserRequest, ListUsersRequest, User, UserWithCreds,
};
use serde::Serialize;

use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Authenticated, Body, GlobalAdmin, OptionalBody};
use crate::services::users::Listed;

/// A bare list, or one with the total.
pub(super) fn listed<T: Serialize, W: Serialize>(listed: Listed<T, W>) -> Response {
    match listed {
        Listed::Bare(rows) => Json(rows).into_response(),
        Listed::Counted(whole) => Json(whole).into_response(),
    }
}

/// `list`: all users for admins, oneself for others.
pub(super) async fn list(
    State(app): State<App>,
    caller: Authenticated,
    OptionalBody(request): OptionalBody<ListUsersRequest>,
) -> Result<Response, ApiError> {
    Ok(listed(app.users.list(&caller, request).await?))
}

/// `get_my_user`: the caller with token and key pair.
pub(super) async fn get_my_user(
    State(app): State<App>,
    caller: Authenticated,
) -> Result<Json<UserWithCreds>, ApiError> {
    Ok(Json(app.users.me(&caller).await?))
}

/// `get_user`: oneself, or anybody for admins.
pub(super) async fn get_user(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<GetUserRequest>,
) -> Result<Json<UserWithCreds>, ApiError> {
    Ok(Json(app.users.get(&caller, request.username).await?))
}

/// `create`
pub(super) async fn create(
    State(app): State<App>,
    GlobalAdmin(caller): GlobalAdmin,
    Body(request): Body<CreateUserRequest>,
) -> Result<Json<User>, ApiError> {
    Ok(Json(app.users.create(&caller, request).await?))
}

/// `update`: replaces role, address and whether the user is active.
pub(super) async fn update(
    State(app): State<App>,
    GlobalAdmin(caller): GlobalAdmin,
    Body(request): Body<CreateUserRequest>,
) -> Result<Json<User>, ApiError> {
    Ok(Json(app.users.update(&caller, request).await?))
}

/// `refresh_token`
pub(super) async fn refresh_token(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<GetUserRequest>,
) -> Result<Json<UserWithCreds>, ApiError> {
    Ok(Json(
        app.users.refresh_token(&caller, request.username).await?,
    ))
}

/// `refresh_ssh_key`
pub(super) async fn refresh_ssh_key(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<GetUserRequest>,
) -> Result<Json<UserWithCreds>, ApiError> {
    Ok(Json(
        app.users.refresh_ssh_key(&caller, request.username).await?,
    ))
}

/// `delete`
pub(super) async fn delete(
    State(app): State<App>,
    GlobalAdmin(caller): GlobalAdmin,
    Body(request): Body<DeleteUsersRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(app.users.delete(&caller, request.users).await?))
}
