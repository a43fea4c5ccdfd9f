//! What can go wrong between the server and an agent.

use std::time::Duration;

/// Why a call to an agent did not give an answer.
///
/// The variants tell apart what callers act on: a machine that cannot be reached may come back, a
/// port nobody listens at means the agent is not up yet, an error status is the agent's own answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// No connection to the machine: no route, no answer, or the connection broke.
    #[error("cannot reach {at}: {reason}")]
    Unreachable {
        /// Machine or hop, `host:port` or a socket's path.
        at: String,
        /// What the network said.
        reason: String,
    },
    /// The machine answered and refused our key.
    #[error("{at} refuses the key of user {user}; is the public key among its authorized keys?")]
    KeyRefused {
        /// Machine or hop, `host:port`.
        at: String,
        /// Account that was tried.
        user: String,
    },
    /// The machine shows another host key than the one recorded before.
    #[error(
        "{at} shows host key {shown} but {recorded} is recorded; if the machine was rebuilt, forget the recorded key"
    )]
    HostKeyChanged {
        /// Machine or hop, `host:port`.
        at: String,
        /// Fingerprint shown now.
        shown: String,
        /// Fingerprint or key recorded.
        recorded: String,
    },
    /// The machine is reached, but nobody listens at the port or socket: the agent is not up.
    #[error("nobody listens at {at}: {reason}")]
    Refused {
        /// The agent's endpoint.
        at: String,
        /// What the other side said.
        reason: String,
    },
    /// The agent took the call and gave no answer in time.
    #[error("{at} gave no answer within {} s", .limit.as_secs_f32())]
    TimedOut {
        /// The agent's endpoint and path.
        at: String,
        /// The limit that ran out.
        limit: Duration,
    },
    /// The agent answered with an error status.
    #[error("{at} answered {status}: {message}")]
    Status {
        /// The agent's endpoint and path.
        at: String,
        /// HTTP status, 400 or above.
        status: u16,
        /// The agent's own words, cut at 512 bytes.
        message: String,
    },
    /// The answer could not be understood.
    #[error("unreadable answer of {at}: {reason}")]
    BadBody {
        /// The agent's endpoint and path.
        at: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Another program than the agent answers there.
    #[error("unexpected service: {service} version: {version}")]
    UnexpectedService {
        /// The name it gave.
        service: String,
        /// The version it gave.
        version: String,
    },
    /// The address or a key cannot be used at all; a retry will not help.
    #[error("{0}")]
    Invalid(String),
}

impl RemoteError {
    /// Whether the machine itself could not be used, so that the same call may work later.
    pub const fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::TimedOut { .. }
                | Self::KeyRefused { .. }
                | Self::HostKeyChanged { .. }
        )
    }

    /// Whether the machine is there and the agent is not listening (yet).
    pub const fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// The HTTP status the agent answered with, when it did.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}
