#![doc = include_str!("../README.md")]

mod calls;
mod checks;
mod child;
mod cx;
mod host;
mod http;
pub mod provider;
pub mod report;
mod run;
mod samples;
mod schema;
mod suite;

pub use http::ASKED_HOST;
pub use provider::{FakeProvider, Provider, Reply, Request, Resource, Scenario};
pub use report::{CheckResult, Failure, Outcome, Report};
pub use suite::{Isolation, ProviderAt, Suite, SuiteError};

/// Every check: its id, its title and why it is made, in the order in which they run.
pub fn checks() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    checks::all().map(|check| (check.id, check.title, check.why))
}
