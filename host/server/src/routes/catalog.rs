//! The catalog of prices (`/api/x/catalog/…`, ours).

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use dstack_backend_catalog::{Catalog, CatalogError, Found, ProviderStatus, Refreshed, Search};
use jiff::Timestamp;

use super::documents as seen;
use super::table::Operation;
use crate::app::{App, now};
use crate::error::ApiError;
use crate::extract::{Authenticated, Body};
use crate::roles::{Class, Needs};

/// Works with the catalog where waiting for files and networks harms nobody.
async fn with<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(Arc<Catalog>, Timestamp) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let (catalog, now) = (app.plugins.catalog(), now());
    tokio::task::spawn_blocking(move || work(catalog, now))
        .await
        .map_err(|error| ApiError::Internal(error.to_string()))
}

/// `POST /api/x/catalog/status`: what is known of each provider.
///
/// # Errors
/// 401 without a token.
pub(super) async fn status(
    State(app): State<App>,
    _user: Authenticated,
) -> Result<Json<Vec<ProviderStatus>>, ApiError> {
    Ok(Json(with(&app, |catalog, _| catalog.status()).await?))
}

/// `POST /api/x/catalog/refresh`: asks all published sources at once.
///
/// # Errors
/// 403 unless the caller is a global admin.
pub(super) async fn refresh(
    State(app): State<App>,
    _admin: Authenticated,
) -> Result<Json<Refreshed>, ApiError> {
    let refreshed = with(&app, |catalog, now| catalog.refresh(now, false)).await?;
    Ok(Json(refreshed))
}

/// `POST /api/x/catalog/search`: rows that fit, by price.
///
/// # Errors
/// 400 for a provider that nobody knows or that no source has.
pub(super) async fn search(
    State(app): State<App>,
    _user: Authenticated,
    Body(search): Body<Search>,
) -> Result<Json<Found>, ApiError> {
    let found = with(&app, move |catalog, now| catalog.search(&search, now)).await?;
    found
        .map(Json)
        .map_err(|error: CatalogError| ApiError::refused(error.to_string()))
}

/// The catalog of prices.
pub(super) fn operations() -> Vec<Operation> {
    use Class::{Authenticated, GlobalAdmin};
    use Needs::{Read, Whole};
    vec![
        Operation::post("/api/x/catalog/status", Authenticated, Read, status)
            .gives::<Vec<seen::ProviderStatus>>(),
        Operation::post("/api/x/catalog/refresh", GlobalAdmin, Whole, refresh)
            .gives::<seen::Refreshed>(),
        Operation::post("/api/x/catalog/search", Authenticated, Read, search)
            .takes::<seen::Search>()
            .gives::<seen::Found>(),
    ]
}
