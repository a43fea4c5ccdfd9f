//! Offers grouped by GPU.

use dstack_api::gpus::{GpuGroupBy, ListGpusRequest, ListGpusResponse, groups};

use super::plans::{OfferOptions, Planner};
use crate::error::ApiError;
use crate::extract::Access;

/// The groups of a project's offers for a run.
pub(crate) async fn list(
    planner: &Planner,
    access: &Access,
    request: ListGpusRequest,
) -> Result<ListGpusResponse, ApiError> {
    let by = request.group_by.unwrap_or_default();
    if by.contains(&GpuGroupBy::Region) && !by.contains(&GpuGroupBy::Backend) {
        return Err(ApiError::refused(
            "Cannot group by 'region' without also grouping by 'backend'",
        ));
    }
    let options = OfferOptions {
        full_offers: request.full_offers,
        unallocated: request.unallocated_resources,
        offers_only: true,
        ..OfferOptions::default()
    };
    let spec = planner.effective(&access.user, request.run_spec).await?;
    let images = planner.images(access.project.id, &spec).await?;
    let jobs = planner.jobs(&spec, images.as_deref())?;
    let Some(job) = jobs.first() else {
        return Ok(ListGpusResponse::default());
    };
    let offers = planner.offers(&access.project, &spec, job, options).await?;
    let no_gpu = job
        .requirements
        .resources
        .gpu
        .as_ref()
        .is_some_and(|gpu| gpu.count.max.as_ref() == Some(&0));
    let mut groups = groups::of_gpus(&offers, &by);
    if request.reverse {
        groups.reverse();
    }
    Ok(ListGpusResponse {
        gpus: groups,
        cpus: no_gpu.then(|| groups::of_cpus(&offers, &by)),
    })
}
