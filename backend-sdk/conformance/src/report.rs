//! What came out, for people and for programs.

mod table;

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a check failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What should have been.
    pub expected: String,
    /// What was.
    pub seen: String,
    /// What to do about it.
    pub remedy: String,
    /// The last requests to the provider, and the log, oldest first.
    #[serde(default)]
    pub exchange: Vec<String>,
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Outcome {
    /// As it should be.
    Passed,
    /// Not as it should be.
    Failed(Failure),
    /// Not looked at.
    Skipped {
        /// Why not: mostly a capability that the plugin does not claim.
        reason: String,
    },
}

/// One check with its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// `group.name`, for `--only`.
    pub id: String,
    /// What is checked.
    pub title: String,
    /// Why it matters.
    pub why: String,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How long it took.
    pub took_ms: u64,
}

/// All checks of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The plugin's name.
    pub plugin: String,
    /// The plugin's version.
    pub version: String,
    /// `process` or `in_process`.
    pub isolation: String,
    /// In the order in which they ran.
    pub results: Vec<CheckResult>,
    /// What a reader should know beside the results.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Report {
    /// Whether no check failed.
    pub fn is_passed(&self) -> bool {
        self.failures().next().is_none()
    }

    /// The checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = (&CheckResult, &Failure)> {
        self.results
            .iter()
            .filter_map(|result| match &result.outcome {
                Outcome::Failed(failure) => Some((result, failure)),
                Outcome::Passed | Outcome::Skipped { .. } => None,
            })
    }

    /// How many passed, failed and were skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |fits: fn(&Outcome) -> bool| {
            self.results
                .iter()
                .filter(|result| fits(&result.outcome))
                .count()
        };
        (
            count(|outcome| matches!(outcome, Outcome::Passed)),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
            count(|outcome| matches!(outcome, Outcome::Skipped { .. })),
        )
    }

    /// The result of one check.
    pub fn result(&self, id: &str) -> Option<&CheckResult> {
        self.results.iter().find(|result| result.id == id)
    }

    /// The table for a terminal of `width` columns, with colours or without.
    pub fn table(&self, width: usize, is_coloured: bool) -> String {
        table::render(self, width, is_coloured)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table(100, false))
    }
}
