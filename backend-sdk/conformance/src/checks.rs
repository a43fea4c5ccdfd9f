//! The checks, in groups. Each is a function of its surroundings and runs on a fresh backend and a fresh provider.

mod border;
mod config;
mod container;
mod faults;
mod gateways;
mod groups;
mod ledger;
mod listing;
mod machines;
mod manifest;
mod offers;
mod placement;
mod secrets;
mod volumes;

use crate::cx::Cx;
use crate::report::Failure;

/// Why a check did not pass.
pub(crate) enum Stop {
    Fail(Box<Failure>),
    Skip(String),
}

pub(crate) type Verdict = Result<(), Stop>;

/// One check.
pub(crate) struct Check {
    /// `group.name`, for ever: people write it into their tests.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) why: &'static str,
    /// Skipped without this capability.
    pub(crate) needs: Option<&'static str>,
    pub(crate) run: fn(&Cx<'_>) -> Verdict,
}

/// All checks in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [
        manifest::CHECKS,
        config::CHECKS,
        border::CHECKS,
        offers::CHECKS,
        machines::CHECKS,
        faults::CHECKS,
        ledger::CHECKS,
        container::CHECKS,
        volumes::CHECKS,
        gateways::CHECKS,
        placement::CHECKS,
        groups::CHECKS,
        listing::CHECKS,
        secrets::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// Skips what makes no sense for a plugin that sends no requests: the faults have nowhere to happen.
pub(crate) fn skip_without_http() -> Stop {
    Stop::Skip("the plugin makes no HTTP requests here".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_documented() {
        let readme = include_str!("../README.md");
        let mut seen = BTreeSet::new();
        for check in super::all() {
            assert!(seen.insert(check.id), "{} twice", check.id);
            assert!(
                readme.contains(&format!("| `{}` |", check.id)),
                "{} is not in the README",
                check.id
            );
            assert!(check.id.contains('.') && !check.why.is_empty());
        }
    }
}
