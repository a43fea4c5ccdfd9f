//! Errors as people and clients read them: the one place that knows the bodies of the API's errors.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dstack_api::error::{BadRequestBody, DeniedBody, ErrorCode, ErrorDetail};
use dstack_store::DbError;
use serde_json::{Value, json};

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// 400: the request makes no sense in the present state.
    #[error("{msg}")]
    Refused {
        /// What clients act on; none is only printed.
        code: Option<ErrorCode>,
        /// What happened, for people.
        msg: String,
    },
    /// 400 for the first of several fields to blame.
    #[error("several fields are wrong")]
    Fields(Vec<ErrorDetail>),
    /// 401: no token was sent.
    #[error("not authenticated")]
    NotAuthenticated,
    /// 403: the token, or what it may do.
    #[error("{0}")]
    Denied(String),
    /// 404: the project in the path.
    #[error("not found")]
    NotFound,
    /// 422: the body is not what the operation takes.
    #[error("invalid request")]
    Invalid(Vec<Invalid>),
    /// 422: so is the query.
    #[error("invalid query")]
    InvalidQuery(Vec<Invalid>),
    /// 500: our fault. The text goes to the log, not to the client.
    #[error("{0}")]
    Internal(String),
}

/// One thing that is wrong with a request body.
#[derive(Debug, Clone, PartialEq)]
pub struct Invalid {
    /// Short word for the kind of problem.
    pub kind: &'static str,
    /// Path to the place, without `body`.
    pub path: Vec<Value>,
    /// What is wrong.
    pub msg: String,
}

impl ApiError {
    /// 400 without a special code.
    pub fn refused(msg: impl Into<String>) -> Self {
        Self::Refused {
            code: Some(ErrorCode::Error),
            msg: msg.into(),
        }
    }

    /// 400: no such thing. Never a 404: clients wait for this code to see that something is gone.
    pub fn not_exists(msg: impl Into<String>) -> Self {
        Self::Refused {
            code: Some(ErrorCode::ResourceNotExists),
            msg: msg.into(),
        }
    }

    /// 400: the name is taken.
    pub fn exists(msg: impl Into<String>) -> Self {
        Self::Refused {
            code: Some(ErrorCode::ResourceExists),
            msg: msg.into(),
        }
    }

    /// 400: the project has no such backend.
    #[must_use]
    pub fn backend_not_available() -> Self {
        Self::Refused {
            code: Some(ErrorCode::BackendNotAvailable),
            msg: "Backend not available".to_owned(),
        }
    }

    /// 403 with the usual text.
    #[must_use]
    pub fn access_denied() -> Self {
        Self::Denied("Access denied".to_owned())
    }

    /// 403 for a token that nobody has.
    #[must_use]
    pub fn invalid_token() -> Self {
        Self::Denied("Invalid token".to_owned())
    }

    /// 422 for one place of the body.
    pub fn invalid(path: &[&str], msg: impl Into<String>) -> Self {
        let path = path.iter().map(|key| Value::from(*key)).collect();
        Self::Invalid(vec![Invalid {
            kind: "value_error",
            path,
            msg: msg.into(),
        }])
    }
}

impl From<DbError> for ApiError {
    fn from(error: DbError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self {
            Self::Refused { code, msg } => {
                let code = code.map(|code| code.as_str().to_owned());
                let detail = vec![ErrorDetail {
                    msg,
                    code,
                    fields: None,
                }];
                (StatusCode::BAD_REQUEST, Json(BadRequestBody { detail })).into_response()
            }
            Self::Fields(detail) => {
                (StatusCode::BAD_REQUEST, Json(BadRequestBody { detail })).into_response()
            }
            Self::NotAuthenticated => {
                let bearer = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
                (
                    StatusCode::UNAUTHORIZED,
                    bearer,
                    Json(json!({"detail": "Not authenticated"})),
                )
                    .into_response()
            }
            Self::Denied(msg) => (StatusCode::FORBIDDEN, Json(denied(msg))).into_response(),
            Self::NotFound => {
                (StatusCode::NOT_FOUND, Json(denied("Not found".to_owned()))).into_response()
            }
            Self::Invalid(problems) => unprocessable("body", problems),
            Self::InvalidQuery(problems) => unprocessable("query", problems),
            Self::Internal(reason) => {
                tracing::error!(reason, "a request failed");
                (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error").into_response()
            }
        }
    }
}

fn unprocessable(place: &str, problems: Vec<Invalid>) -> Response {
    let detail: Vec<Value> = problems
        .into_iter()
        .map(|problem| {
            let mut at = vec![Value::from(place)];
            at.extend(problem.path);
            json!({"type": problem.kind, "loc": at, "msg": problem.msg, "input": null})
        })
        .collect();
    let body = Json(json!({"detail": detail}));
    (StatusCode::UNPROCESSABLE_ENTITY, body).into_response()
}

fn denied(msg: String) -> DeniedBody {
    DeniedBody {
        detail: ErrorDetail {
            msg,
            code: None,
            fields: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;

    use super::ApiError;

    async fn shown(error: ApiError) -> (u16, String) {
        let response = error.into_response();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn bodies_have_the_shapes_that_clients_take_apart() {
        for (error, status, body) in [
            (
                ApiError::not_exists("Run not found"),
                400,
                r#"{"detail":[{"msg":"Run not found","code":"resource_not_exists"}]}"#,
            ),
            (
                ApiError::Refused {
                    code: None,
                    msg: "Invalid version: abc".to_owned(),
                },
                400,
                r#"{"detail":[{"msg":"Invalid version: abc","code":null}]}"#,
            ),
            (
                ApiError::NotAuthenticated,
                401,
                r#"{"detail":"Not authenticated"}"#,
            ),
            (
                ApiError::invalid_token(),
                403,
                r#"{"detail":{"msg":"Invalid token","code":null}}"#,
            ),
            (
                ApiError::NotFound,
                404,
                r#"{"detail":{"msg":"Not found","code":null}}"#,
            ),
            (
                ApiError::invalid(&["limit"], "too large"),
                422,
                r#"{"detail":[{"input":null,"loc":["body","limit"],"msg":"too large","type":"value_error"}]}"#,
            ),
            (
                ApiError::Internal("secret path".to_owned()),
                500,
                "Internal Server Error",
            ),
        ] {
            assert_eq!(shown(error).await, (status, body.to_owned()));
        }
    }
}
