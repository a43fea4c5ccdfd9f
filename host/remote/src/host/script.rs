//! The scripts, and what they tell.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::HostError;

const COMMON: &str = include_str!("common.sh");
pub(super) const PROBE: &str = include_str!("probe.sh");
pub(super) const ADD_KEY: &str = include_str!("add_key.sh");
pub(super) const REMOVE_KEY: &str = include_str!("remove_key.sh");
pub(super) const CLAIM: &str = include_str!("claim.sh");
pub(super) const CHECK: &str = include_str!("check.sh");
pub(super) const INSTALL: &str = include_str!("install.sh");
pub(super) const WAKE: &str = include_str!("wake.sh");
pub(super) const INFO: &str = include_str!("info.sh");
pub(super) const CLEAR: &str = include_str!("clear.sh");

/// A whole script: variables, common functions, the step.
pub(super) fn with(vars: &str, step: &str) -> Bytes {
    Bytes::from(format!("{vars}{COMMON}{step}"))
}

/// A text as one word of `sh`.
pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What a script told by lines `dstack:<name>=<value>`; greetings of login shells are other lines.
#[derive(Debug, Default)]
pub(super) struct Facts(BTreeMap<String, String>);

impl Facts {
    pub(super) fn read(text: &str) -> Self {
        let line = |line: &str| {
            let (name, value) = line.trim().strip_prefix("dstack:")?.split_once('=')?;
            Some((name.to_owned(), value.trim().to_owned()))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// A value; empty if it was not told.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The word for the processor in the names of agents.
    pub(super) fn arch(&self) -> Result<&'static str, HostError> {
        match (self.get("os"), self.get("arch")) {
            ("Linux", "x86_64" | "amd64") => Ok("amd64"),
            ("Linux", "aarch64" | "arm64") => Ok("arm64"),
            ("Linux", arch) => Err(HostError::needs_help(format!(
                "its processor is {arch}; 64-bit x86 and ARM are supported"
            ))),
            (os, _) => Err(HostError::needs_help(format!(
                "it runs {os}; hosts must run Linux"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_among_greetings() {
        let facts = Facts::read("Welcome!\ndstack:os=Linux\ndstack:arch=aarch64\r\nbye=1\n");
        assert_eq!((facts.get("arch"), facts.get("bye")), ("aarch64", ""));
        assert_eq!(facts.arch(), Ok("arm64"));
        let old = Facts::read("dstack:os=Linux\ndstack:arch=i686\n");
        assert!(old.arch().unwrap_err().reason.contains("i686"));
        assert!(
            Facts::read("dstack:os=Darwin\ndstack:arch=arm64")
                .arch()
                .is_err()
        );
    }

    #[test]
    fn scripts_are_valid_for_sh() {
        for step in [
            PROBE, CLAIM, ADD_KEY, REMOVE_KEY, CHECK, INSTALL, WAKE, INFO, CLEAR,
        ] {
            let mut sh = std::process::Command::new("sh");
            let script = with("", step);
            let checked = sh
                .arg("-n")
                .arg("-c")
                .arg(std::str::from_utf8(&script).unwrap());
            assert!(checked.status().unwrap().success(), "{step}");
        }
    }
}
