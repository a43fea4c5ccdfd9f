//! Commands at the login node.

use std::time::Duration;

use dstack_backend_sdk::host::{self, ssh};
use dstack_backend_sdk::prelude::*;

use crate::config::ClusterConfig;

/// For questions.
pub(crate) const SHORT: Duration = Duration::from_secs(25);
/// For submitting: a busy controller lets it wait.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// Characters of a message that an error repeats.
const SHOWN: usize = 400;

/// What a controller in trouble lets its programs say.
const UNREACHABLE: [&str; 6] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Zero Bytes were transmitted",
    "Communication connection failure",
    "Slurm temporarily unable to accept job",
];

/// One cluster's login node.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    target: ssh::Hop,
    /// For messages.
    at: String,
    /// Path of the key in the configuration.
    key_field: String,
}

/// What a script left behind, without what the login printed before it.
#[derive(Debug, Clone)]
pub(crate) struct Ran {
    at: String,
    /// `None` if a signal ended it.
    pub(crate) status: Option<u32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Login {
    pub(crate) fn new(number: usize, config: &ClusterConfig) -> Self {
        let port = config.port.unwrap_or(22);
        Self {
            target: ssh::Hop::new(&config.hostname, &config.user)
                .port(port)
                .key(config.private_key.content.clone()),
            at: format!("cluster {}", config.name),
            key_field: format!("clusters.{number}.private_key.content"),
        }
    }

    /// Runs lines of `sh` in a login shell, since Slurm's programs are often only in the path that a profile sets.
    ///
    /// # Errors
    /// `auth`, `transport`, `timeout` of the connection. Whatever status the lines end with is a success here.
    pub(crate) fn run(&self, lines: &str, limit: Duration) -> Result<Ran> {
        let mark = mark()?;
        let script = format!(
            "printf '%s\\n' {mark}; printf '%s\\n' {mark} >&2\nexport LC_ALL=C SLURM_TIME_FORMAT=%s\n{lines}\nexit $?\n"
        );
        let output = ssh::Command::shell(self.target.clone(), script)
            .timeout(limit)
            .run()
            .map_err(|error| self.lost(error))?;
        let stdout = after(&output.stdout(), &mark);
        let stderr = after(&output.stderr(), &mark);
        let Some(stdout) = stdout else {
            let said = output.stdout() + &output.stderr();
            return Err(BackendError::internal(format!(
                "{}: the login shell did not run the script; it said: {}",
                self.at,
                short(&said)
            )));
        };
        Ok(Ran {
            at: self.at.clone(),
            status: output.status(),
            stdout,
            stderr: stderr.unwrap_or_default(),
        })
    }

    fn lost(&self, mut error: BackendError) -> BackendError {
        error.message = format!("{}: {}", self.at, error.message);
        if error.kind == ErrorKind::Auth {
            return BackendError::auth(error.message, [self.key_field.clone()]);
        }
        error
    }
}

impl Ran {
    /// Standard output if the status is 0.
    ///
    /// # Errors
    /// `transport` if the controller does not answer, `invalid` if Slurm's programs are not found, else `internal`.
    pub(crate) fn ok(self, what: &str) -> Result<String> {
        if self.status == Some(0) {
            return Ok(self.stdout);
        }
        Err(self.failed(what))
    }

    /// The error of a script that should have worked.
    pub(crate) fn failed(&self, what: &str) -> BackendError {
        let said = short(&self.stderr);
        let message = format!("{}: {what}: {said}", self.at);
        if UNREACHABLE.iter().any(|words| self.stderr.contains(words)) {
            return BackendError::new(ErrorKind::Transport, message);
        }
        if self.status == Some(127) {
            return BackendError::invalid(format!(
                "{message} (Slurm's programs must be in the path of a login shell)"
            ));
        }
        BackendError::internal(message)
    }
}

/// A line that no profile prints.
fn mark() -> Result<String> {
    let random = host::random(8)?;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("__dstack_boundary_{hex}__"))
}

/// What stands behind the line with the mark.
fn after(text: &str, mark: &str) -> Option<String> {
    let (_, rest) = text.split_once(mark)?;
    let rest = rest.strip_prefix('\r').unwrap_or(rest);
    Some(rest.strip_prefix('\n').unwrap_or(rest).to_owned())
}

/// One line, its end if it is long.
pub(crate) fn short(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let skipped = line.chars().count().saturating_sub(SHOWN);
    line.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::{Ran, after};
    use dstack_backend_sdk::ErrorKind;

    #[test]
    fn what_a_login_prints_is_dropped() {
        assert_eq!(
            after("Welcome!\nM\nn1\nn2\n", "M"),
            Some("n1\nn2\n".to_owned())
        );
        assert_eq!(after("M\n", "M"), Some(String::new()));
        assert_eq!(after("This account is closed.\n", "M"), None);
    }

    #[test]
    fn a_controller_in_trouble_is_no_broken_request() {
        let ran = |status, stderr: &str| Ran {
            at: "cluster a".to_owned(),
            status: Some(status),
            stdout: String::new(),
            stderr: stderr.to_owned(),
        };
        let kind = |status, stderr: &str| ran(status, stderr).ok("sinfo").unwrap_err().kind;
        let down = "slurm_load_partitions: Unable to contact slurm controller (connect failure)";
        assert_eq!(kind(1, down), ErrorKind::Transport);
        assert_eq!(kind(127, "sh: 1: sinfo: not found"), ErrorKind::Invalid);
        assert_eq!(kind(1, "sinfo: error: odd"), ErrorKind::Internal);
        assert!(ran(0, "").ok("sinfo").is_ok());
    }
}
