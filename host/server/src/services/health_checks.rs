//! What machines said about their health.

use dstack_api::instances::{GetInstanceHealthChecksRequest, GetInstanceHealthChecksResponse};
use dstack_store::{Store, fleets, instance_health, instances};

use crate::error::ApiError;
use crate::extract::Access;

/// The reports of one instance, newest first.
pub(crate) async fn list(
    store: &Store,
    access: &Access,
    request: GetInstanceHealthChecksRequest,
) -> Result<GetInstanceHealthChecksResponse, ApiError> {
    let project = access.project.id;
    store
        .read_as(move |tx| {
            let missing = || ApiError::not_exists("Resource not found");
            let fleet = fleets::by_name(tx, project, &request.fleet_name)?.ok_or_else(missing)?;
            let instance = instances::of_fleet(tx, fleet.id)?
                .into_iter()
                .find(|instance| instance.instance_num == request.instance_num)
                .ok_or_else(missing)?;
            let health_checks = instance_health::list(
                tx,
                instance.id,
                request.after,
                request.before,
                request.limit,
            )?;
            Ok(GetInstanceHealthChecksResponse { health_checks })
        })
        .await
}
