//! `/api/users/…`

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use dstack_api::users::{
    CreateUserRequest, DeleteUsersRequest, GetUserRequest, ListUsersRequest, User, UserWithCreds,
    UsersInfoList,
};
use serde::Serialize;

use super::documents::Either;
use super::table::Operation;
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Authenticated, Body, OptionalBody};
use crate::roles::{Class, Needs};
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
    caller: Authenticated,
    Body(request): Body<CreateUserRequest>,
) -> Result<Json<User>, ApiError> {
    Ok(Json(app.users.create(&caller.0, request).await?))
}

/// `update`: replaces role, address and whether the user is active.
pub(super) async fn update(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<CreateUserRequest>,
) -> Result<Json<User>, ApiError> {
    Ok(Json(app.users.update(&caller.0, request).await?))
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
    caller: Authenticated,
    Body(request): Body<DeleteUsersRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(app.users.delete(&caller.0, request.users).await?))
}

/// `/api/users/…`
pub(super) fn operations() -> Vec<Operation> {
    use Class::{Authenticated, GlobalAdmin};
    use Needs::{Own, Read, Whole};
    vec![
        Operation::post("/api/users/list", Authenticated, Read, list)
            .maybe::<ListUsersRequest>()
            .gives::<Either<Vec<User>, UsersInfoList>>(),
        Operation::post("/api/users/get_my_user", Authenticated, Own, get_my_user)
            .gives::<UserWithCreds>(),
        Operation::post("/api/users/get_user", Authenticated, Whole, get_user)
            .takes::<GetUserRequest>()
            .gives::<UserWithCreds>(),
        Operation::post("/api/users/create", GlobalAdmin, Whole, create)
            .takes::<CreateUserRequest>()
            .gives::<User>(),
        Operation::post("/api/users/update", GlobalAdmin, Whole, update)
            .takes::<CreateUserRequest>()
            .gives::<User>(),
        Operation::post(
            "/api/users/refresh_token",
            Authenticated,
            Whole,
            refresh_token,
        )
        .takes::<GetUserRequest>()
        .gives::<UserWithCreds>(),
        Operation::post(
            "/api/users/refresh_ssh_key",
            Authenticated,
            Whole,
            refresh_ssh_key,
        )
        .takes::<GetUserRequest>()
        .gives::<UserWithCreds>(),
        Operation::post("/api/users/delete", GlobalAdmin, Whole, delete)
            .takes::<DeleteUsersRequest>()
            .gives::<()>(),
    ]
}
