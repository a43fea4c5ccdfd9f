//! Clients of providers that the server itself uses: stores of logs and of uploads.
//!
//! Backends have their own, inside their plugins. Everything here has a limit in time and size, tries again where that helps,
//! and names what went wrong without any secret.

pub(crate) mod aws;
pub(crate) mod google;
pub(crate) mod http;

/// Why a provider did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum OutsideError {
    /// No answer, or one that says that there will be none for a while.
    #[error("{at} cannot be reached: {why}")]
    Unreachable {
        /// Host.
        at: String,
        /// What happened.
        why: String,
    },
    /// The provider refused.
    #[error("{at} answered {status} {code}: {message}")]
    Refused {
        /// Host.
        at: String,
        /// Status of HTTP.
        status: u16,
        /// The provider's word for it; may be empty.
        code: String,
        /// The provider's text, cut.
        message: String,
    },
    /// There is no login, or it is none.
    #[error("{0}")]
    NoAccess(String),
    /// The answer was none that is understood.
    #[error("{at} gave an answer that is not understood: {why}")]
    Odd {
        /// Host.
        at: String,
        /// What is wrong with it.
        why: String,
    },
}

impl OutsideError {
    /// The provider's word for a refusal.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            _ => "",
        }
    }

    /// The status of a refusal; 0 for everything else.
    pub(crate) const fn status(&self) -> u16 {
        match self {
            Self::Refused { status, .. } => *status,
            _ => 0,
        }
    }
}
