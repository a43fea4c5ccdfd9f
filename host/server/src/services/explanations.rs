//! Why a run is placed where it is, or nowhere.

use std::sync::Arc;

use dstack_api::explain::{Candidate, CandidateKind, ExplainRunRequest, ExplainedJob};
use dstack_api::jobs::JobSpec;
use dstack_api::runs::RunSpec;
use dstack_backend_types::{Requirements, ResourcesSpec};
use dstack_engine::explain;
use dstack_engine::preview::Ask;
use dstack_store::projects::ProjectRow;
use dstack_store::views;

use super::plans::Planner;
use crate::error::ApiError;
use crate::extract::Access;
use crate::ports::{BackendOffers, OfferQuery};

impl Planner {
    /// What every job of the run could be placed on, with a reason for each candidate that is turned down.
    ///
    /// # Errors
    /// 400 for a run that cannot be planned.
    pub(crate) async fn explain(
        &self,
        access: &Access,
        request: ExplainRunRequest,
    ) -> Result<Vec<ExplainedJob>, ApiError> {
        let run = self.effective(&access.user, request.run_spec).await?;
        let images = self.images(access.project.id, &run).await?;
        let mut explained: Vec<ExplainedJob> = Vec::new();
        let mut seen: Vec<JobSpec> = Vec::new();
        for job in self.jobs(&run, images.as_deref())? {
            let is_alike = |other: &JobSpec| {
                other.requirements == job.requirements && other.replica_group == job.replica_group
            };
            if seen.iter().any(is_alike) {
                continue;
            }
            explained.push(ExplainedJob {
                job: job.job_name.clone(),
                candidates: self.candidates(&access.project, &run, &job).await?,
            });
            seen.push(job);
        }
        Ok(explained)
    }

    async fn candidates(
        &self,
        project: &ProjectRow,
        run: &RunSpec,
        job: &JobSpec,
    ) -> Result<Vec<Candidate>, ApiError> {
        let id = project.id;
        let backends = self.backends(id).await;
        let volumes = self.volumes(id, job).await?;
        let read = move |tx: &mut dyn dstack_store::Tx| views::fleet_facts(tx, id);
        let facts = self.store.read(read).await?;
        let fleets = explain::fleets(run, job, &facts, (&backends, &volumes), &project.name);
        let wants_offers = fleets.iter().any(|fleet| {
            fleet
                .ask
                .as_ref()
                .is_some_and(|ask| !ask.backends.is_empty())
        });
        // One question without conditions: what fails which condition is then found here.
        let answers = if wants_offers {
            let query = OfferQuery {
                project: id,
                requirements: Arc::new(Requirements {
                    resources: ResourcesSpec::unconstrained(),
                    max_price: None,
                    spot: None,
                    ..job.requirements.clone()
                }),
                backends: None,
                full_offers: true,
                unallocated_resources: false,
                image: Some(job.image_name.clone()),
            };
            self.clouds.offers(query).await
        } else {
            Vec::new()
        };
        let mut candidates = Vec::new();
        for (fleet, facts) in fleets.into_iter().zip(&facts) {
            candidates.extend(fleet.candidates);
            if let Some(ask) = &fleet.ask {
                candidates.extend(told(&facts.fleet.name, ask, &answers));
            }
        }
        Ok(candidates)
    }
}

/// What the backends answered, for one fleet.
fn told(fleet: &str, ask: &Ask, answers: &[BackendOffers]) -> Vec<Candidate> {
    let mut rows = Vec::new();
    for answer in answers {
        if !ask.backends.contains(&answer.backend) {
            continue;
        }
        let backend = answer.backend.as_str();
        match &answer.offers {
            Ok(offers) if !offers.is_empty() => {
                rows.extend(explain::rejected(Some(fleet), backend, ask, offers));
            }
            Ok(_) => rows.push(of_backend(fleet, backend, "it offers nothing".to_owned())),
            Err(error) => rows.push(of_backend(fleet, backend, error.to_string())),
        }
    }
    rows
}

fn of_backend(fleet: &str, backend: &str, reason: String) -> Candidate {
    Candidate {
        fleet: Some(fleet.to_owned()),
        reason: Some(reason),
        ..Candidate::new(CandidateKind::Backend, backend)
    }
}
