//! `/api/project/{project_name}/logs/poll`

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use dstack_api::logs::{JobSubmissionLogs, PollLogsRequest};
use dstack_engine::ids::JobId;
use dstack_store::{jobs, runs};

use super::table::Operation;
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Body, InProject};
use crate::logs::{LogError, LogKey, LogQuery, Producer};
use crate::roles::{Class, Needs};
use crate::services::names;

/// The longest wait for a log to grow.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Our addition to the call.
#[derive(Debug, Default, serde::Deserialize)]
pub(super) struct Wait {
    /// How long an empty answer is held back for something to come, in milliseconds, at most 10,000; not at all without.
    #[serde(default)]
    wait_ms: u64,
}

/// A page of a job's log. What is not there, or not the project's, is empty.
///
/// # Errors
/// 400 for a token that is none of ours.
pub(super) async fn poll(
    State(app): State<App>,
    InProject(access): InProject,
    Query(wait): Query<Wait>,
    Body(request): Body<PollLogsRequest>,
) -> Result<Json<JobSubmissionLogs>, ApiError> {
    names::check_limit(request.limit, 1000)?;
    let query = LogQuery {
        after: request.start_time,
        before: request.end_time,
        descending: request.descending,
        token: request.next_token,
        limit: usize::try_from(request.limit).unwrap_or(usize::MAX),
    };
    app.logs.check_token(&query).map_err(refused)?;
    let (project, id, name) = (
        access.project.id,
        JobId(request.job_submission_id),
        request.run_name,
    );
    // The path is made from the database's names, so that a request cannot point elsewhere.
    let run = app
        .store
        .read(move |tx| {
            let job = jobs::get(tx, id)?.filter(|job| job.project_id == project);
            let Some(job) = job else { return Ok(None) };
            Ok(runs::get(tx, job.run_id)?
                .filter(|run| *run.name == *name)
                .map(|run| run.name.to_string()))
        })
        .await?;
    let Some(run) = run else {
        return Ok(Json(JobSubmissionLogs::default()));
    };
    let key = LogKey {
        project: access.project.name.clone(),
        run,
        submission: id.0,
        producer: if request.diagnose {
            Producer::Runner
        } else {
            Producer::Job
        },
    };
    let patience = Duration::from_millis(wait.wait_ms).min(LONGEST_WAIT);
    let page = if patience.is_zero() {
        app.logs.poll(&key, query).await
    } else {
        app.logs.poll_patiently(&key, query, patience).await
    };
    Ok(Json(page.map_err(refused)?))
}

fn refused(error: LogError) -> ApiError {
    match error {
        LogError::BadToken(_) | LogError::ForeignToken(_) | LogError::TooManyReads => {
            ApiError::refused(error.to_string())
        }
        other => {
            let source = std::error::Error::source(&other).map(ToString::to_string);
            tracing::error!(error = %other, source, "cannot read logs");
            ApiError::refused("Failed to poll logs from log storage")
        }
    }
}

/// `/api/project/{project_name}/logs/poll`
pub(super) fn operations() -> Vec<Operation> {
    use Class::Member;
    use Needs::Read;
    vec![
        Operation::post("/api/project/{project_name}/logs/poll", Member, Read, poll)
            .takes::<PollLogsRequest>()
            .gives::<JobSubmissionLogs>(),
    ]
}
