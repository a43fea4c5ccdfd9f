//! Dev environments.

use dstack_backend_types::reading::{Failed, Reader};

use super::duration;
use super::object::config;
use super::paths::PortMapping;
use super::profile::ProfileParams;
use super::run::RunBase;
use super::schema::{rules, scalars};
use super::words::Ide;

config! {
    /// A machine to work on, with an editor prepared.
    pub struct DevEnvironmentConfiguration {
        /// The editor to prepare, if any.
        pub ide: Option<Ide> = optional,
        /// Its version; Windsurf's is `VERSION@COMMIT`.
        pub version: Option<String> = optional,
        /// What to run before idling.
        pub init: Vec<String> = default(Vec::new()),
        /// Seconds without a connection after which the run ends; unset means never.
        pub inactivity_duration: Option<i64> = default(None, duration::limit_or_unset, scalars::limit),
        /// Ports to forward to the person's machine.
        pub ports: Vec<PortMapping> = default(Vec::new()),
        /// What all runs have.
        #[serde(flatten)]
        pub base: RunBase = flat,
        /// Where and how to provision.
        #[serde(flatten)]
        pub profile: ProfileParams = flat,
    }
    known("type" = "dev-environment") check(DevEnvironmentConfiguration::check) rules(rules::dev_environment)
}

impl DevEnvironmentConfiguration {
    fn check(&self, cx: &mut Reader) -> Result<(), Failed> {
        self.base.check(cx)?;
        if self.base.entrypoint.is_some() {
            return Err(cx.fail_at(
                "entrypoint",
                "a dev environment has no `entrypoint`; use `init`",
            ));
        }
        if self.base.dstack && self.inactivity_duration.is_some() {
            return Err(cx.fail_at(
                "inactivity_duration",
                "`inactivity_duration` and `dstack: true` exclude each other, since the access counts as activity",
            ));
        }
        match (self.ide, &self.version) {
            (None, Some(_)) => Err(cx.fail_at(
                "version",
                "`version` is the version of an `ide`, which is not set",
            )),
            (Some(Ide::Windsurf), Some(version)) if !is_windsurf_version(version) => Err(cx
                .fail_at(
                    "version",
                    format!("the version of windsurf is written VERSION@COMMIT, got \"{version}\""),
                )),
            _ => Ok(()),
        }
    }
}

fn is_windsurf_version(version: &str) -> bool {
    version.split_once('@').is_some_and(|(version, commit)| {
        !version.is_empty() && !commit.is_empty() && commit.chars().all(|c| c.is_ascii_hexdigit())
    })
}
