//! `GET /metrics`: for Prometheus, if the setting allows it.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::error::ApiError;
use crate::metrics::work::Snapshot;

/// `GET /metrics`
///
/// # Errors
/// 404 unless metrics are switched on, 403 without the token, if one is set.
pub(super) async fn show(State(app): State<App>, headers: HeaderMap) -> Result<Response, ApiError> {
    if !app.settings.prometheus_metrics {
        return Err(ApiError::NotFound);
    }
    if let Some(token) = &app.settings.prometheus_token {
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        let is_right = given.is_some_and(|given| crate::constant::same(given, token.expose()));
        if !is_right {
            return Err(ApiError::access_denied());
        }
    }
    app.stats.look(&app.store).await?;
    let now = crate::app::now();
    let snapshot = app.store.read(move |tx| Snapshot::read(tx, now)).await?;
    let own = app.metrics.text();
    let own = own.map_err(|error| ApiError::Internal(error.to_string()))?;
    let text = snapshot.text(&app.happened) + &own;
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((kind, text).into_response())
}
