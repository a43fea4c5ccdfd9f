//! Why a run is placed where it is, or nowhere: `POST /api/x/project/{project}/runs/explain` (ours).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::runs::RunSpec;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainRunRequest {
    /// The run, as for a plan.
    pub run_spec: RunSpec,
}

/// What a candidate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CandidateKind {
    /// A fleet.
    Fleet,
    /// A machine that a fleet has.
    Instance,
    /// A backend that is not asked, or does not answer.
    Backend,
    /// Offers of a backend that are alike in what speaks against them.
    Offer,
}

/// Something that a job could be placed on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// What it is.
    pub kind: CandidateKind,
    /// Fleet, instance or backend.
    pub name: String,
    /// The fleet that it is or would be of.
    #[serde(default)]
    pub fleet: Option<String>,
    /// How many there are.
    pub count: u64,
    /// The cheapest of several.
    #[serde(default)]
    pub example: Option<String>,
    /// Where the cheapest is.
    #[serde(default)]
    pub region: Option<String>,
    /// US dollars an hour of the cheapest.
    #[serde(default)]
    pub price: Option<f64>,
    /// Why it is turned down; `None`: it may be taken.
    #[serde(default)]
    pub reason: Option<String>,
}

impl Candidate {
    /// One, that may be taken.
    pub fn new(kind: CandidateKind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            fleet: None,
            count: 1,
            example: None,
            region: None,
            price: None,
            reason: None,
        }
    }
}

/// The candidates of one job of the run; jobs that ask for the same stand once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedJob {
    /// Its name.
    pub job: String,
    /// Fleets in order, each followed by its instances, then backends and their offers.
    pub candidates: Vec<Candidate>,
}
