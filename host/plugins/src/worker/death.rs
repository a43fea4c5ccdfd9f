//! How a worker ended.

use dstack_backend_types::{BackendError, ErrorKind};
use nix::sys::signal::Signal;
use std::{fmt, os::unix::process::ExitStatusExt, process::ExitStatus};

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Death {
    /// By itself, with an exit code.
    Exited(i32),
    /// By a signal that did not come from this host.
    Signal(i32),
    /// This host ended it, for that reason.
    Ended(&'static str),
    /// It sent what no worker sends.
    Babble(String),
    /// The system does not say.
    Unknown(String),
}

impl Death {
    pub(super) fn of(
        status: std::io::Result<ExitStatus>,
        babble: Option<String>,
        ended: Option<&'static str>,
    ) -> Self {
        if let Some(reason) = babble {
            return Self::Babble(reason);
        }
        if let Some(reason) = ended {
            return Self::Ended(reason);
        }
        match status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Self::Exited(code),
                (None, Some(signal)) => Self::Signal(signal),
                (None, None) => Self::Unknown(status.to_string()),
            },
            Err(error) => Self::Unknown(error.to_string()),
        }
    }

    /// Whether the plugin is to blame, as far as is known.
    pub(super) fn is_unwanted(&self) -> bool {
        !matches!(self, Self::Ended(_))
    }

    /// For a call that ran when it happened. Whether the call took effect is not known.
    pub(crate) fn error(&self, backend: &str) -> BackendError {
        let error = BackendError::new(
            ErrorKind::Transport,
            format!("the process of the backend {backend} {self} during the call"),
        );
        match self {
            Self::Exited(code) => error.with_detail("exit_code", *code),
            Self::Signal(signal) => error.with_detail("signal", *signal),
            Self::Ended(_) | Self::Babble(_) | Self::Unknown(_) => error,
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => {
                write!(f, "died of signal {signal}")?;
                match Signal::try_from(*signal) {
                    Ok(Signal::SIGKILL) => {
                        f.write_str(" (SIGKILL: maybe the machine has no memory left)")
                    }
                    Ok(known) => write!(f, " ({known})"),
                    Err(_) => Ok(()),
                }
            }
            Self::Ended(reason) => write!(f, "was ended, since {reason},"),
            Self::Babble(reason) => write!(f, "was killed, since it sent {reason},"),
            Self::Unknown(reason) => write!(f, "ended ({reason})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Death;
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

    #[test]
    fn the_way_it_died_is_named() {
        let of = |raw| Death::of(Ok(ExitStatus::from_raw(raw)), None, None);
        assert_eq!(of(3 << 8).to_string(), "exited with code 3");
        assert_eq!(of(11).to_string(), "died of signal 11 (SIGSEGV)");
        let error = of(6).error("acme");
        assert_eq!(
            error.message,
            "the process of the backend acme died of signal 6 (SIGABRT) during the call"
        );
        assert_eq!(error.details["signal"], 6);
        let ours = Death::of(Ok(ExitStatus::from_raw(9)), None, Some("a call hung"));
        assert!(!ours.is_unwanted() && of(9).is_unwanted());
    }
}
