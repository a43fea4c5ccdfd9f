//! `dstack apply --explain`: every candidate for the run's jobs, and why it is turned down.

use dstack_api::explain::{Candidate, CandidateKind, ExplainRunRequest, ExplainedJob};
use dstack_api::runs::RunSpec;

use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::ui::Tone;
use crate::view::values;

/// Asks, and shows a table for each kind of job.
pub(super) fn show(spec: &RunSpec, here: &Here, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let request = ExplainRunRequest {
        run_spec: spec.clone(),
    };
    let path = format!("/api/x/project/{}/runs/explain", here.project.name);
    let jobs: Vec<ExplainedJob> = here.client.post(&path, &request)?;
    for job in &jobs {
        if job.candidates.is_empty() {
            continue;
        }
        if jobs.len() > 1 {
            cx.ui.line(&job.job)?;
        }
        let rows: Vec<Vec<String>> = job.candidates.iter().map(|one| row(one, cx)).collect();
        let table = cx
            .ui
            .table(&["CANDIDATE", "CHEAPEST", "PRICE", "REASON"], &rows);
        cx.ui.line(table)?;
        cx.ui.line("")?;
    }
    Ok(())
}

fn row(one: &Candidate, cx: &Cx<'_>) -> Vec<String> {
    let what = match one.kind {
        CandidateKind::Fleet => format!("fleet {}", one.name),
        CandidateKind::Instance => format!("  instance {}", one.name),
        CandidateKind::Backend => format!("  backend {}", one.name),
        CandidateKind::Offer => format!("  {} of {}", one.count, one.name),
    };
    let place = [one.example.as_deref(), one.region.as_deref()];
    let place: Vec<&str> = place.into_iter().flatten().collect();
    let price = one.price.map(values::price).unwrap_or_default();
    let reason = match &one.reason {
        Some(reason) => cx.ui.paint(Tone::Warn, reason),
        None => cx.ui.paint(Tone::Good, "fits"),
    };
    vec![what, place.join(", "), price, reason]
}
