//! Status of a run and why it ended.
//!
//! ```text
//! pending ◄──► submitted ◄─► provisioning ◄─► running ──► terminating ──► terminated | failed | done
//!    ▲  └─────────────────────────────────────────────────────►│ │
//!    └─────────────────────────── (schedule: next round) ────────┘
//! ```

use crate::jobs::JobTerminationReason;
use crate::words::wire_enum;

wire_enum! {
    /// Where a run stands.
    pub enum RunStatus {
        /// Waits for its schedule, for a retry, or for the autoscaler; has no active jobs.
        Pending = "pending",
        /// Jobs exist, none has a machine yet.
        Submitted = "submitted",
        /// At least one job is getting its machine or its image.
        Provisioning = "provisioning",
        /// At least one job runs.
        Running = "running",
        /// Its jobs are being ended.
        Terminating = "terminating",
        /// Ended by a person.
        Terminated = "terminated",
        /// Ended by an error.
        Failed = "failed",
        /// Ended well.
        Done = "done",
    }
}

impl RunStatus {
    /// The statuses in which nothing changes any more.
    pub const FINISHED: &'static [Self] = &[Self::Terminated, Self::Failed, Self::Done];

    /// Whether nothing changes any more.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Terminated | Self::Failed | Self::Done)
    }

    /// Whether a run may go from `self` to `next`. Staying put is not a transition.
    #[must_use]
    pub const fn can_become(self, next: Self) -> bool {
        use RunStatus::{
            Done, Failed, Pending, Provisioning, Running, Submitted, Terminated, Terminating,
        };
        match self {
            Pending => matches!(next, Submitted | Terminating),
            Submitted => matches!(next, Pending | Provisioning | Running | Terminating),
            Provisioning => matches!(next, Pending | Submitted | Running | Terminating),
            Running => matches!(next, Pending | Submitted | Provisioning | Terminating),
            Terminating => matches!(next, Pending | Terminated | Failed | Done),
            Terminated | Failed | Done => false,
        }
    }
}

wire_enum! {
    /// Why a run ends.
    pub enum RunTerminationReason {
        /// Every job ended well, or the one that counts did.
        AllJobsDone = "all_jobs_done",
        /// A job failed and is not retried.
        JobFailed = "job_failed",
        /// The time for retries is over.
        RetryLimitExceeded = "retry_limit_exceeded",
        /// `dstack stop`.
        StoppedByUser = "stopped_by_user",
        /// `dstack stop -x`.
        AbortedByUser = "aborted_by_user",
        /// The server could not go on.
        ServerError = "server_error",
        /// The service could not be registered at its gateway.
        GatewayError = "gateway_error",
    }
}

impl RunTerminationReason {
    /// The final status this reason leads to.
    #[must_use]
    pub const fn status(self) -> RunStatus {
        match self {
            Self::AllJobsDone => RunStatus::Done,
            Self::StoppedByUser | Self::AbortedByUser => RunStatus::Terminated,
            Self::JobFailed | Self::RetryLimitExceeded | Self::ServerError | Self::GatewayError => {
                RunStatus::Failed
            }
        }
    }

    /// The text of the run's `error` field.
    #[must_use]
    pub const fn error(self) -> Option<&'static str> {
        match self {
            Self::RetryLimitExceeded => Some("retry limit exceeded"),
            Self::ServerError => Some("server error"),
            Self::GatewayError => Some("gateway error"),
            Self::AllJobsDone | Self::JobFailed | Self::StoppedByUser | Self::AbortedByUser => None,
        }
    }

    /// The reason that the run's still active jobs get.
    #[must_use]
    pub const fn job_reason(self) -> JobTerminationReason {
        match self {
            Self::AllJobsDone => JobTerminationReason::DoneByRunner,
            Self::StoppedByUser => JobTerminationReason::TerminatedByUser,
            Self::AbortedByUser => JobTerminationReason::AbortedByUser,
            Self::JobFailed | Self::RetryLimitExceeded | Self::ServerError | Self::GatewayError => {
                JobTerminationReason::TerminatedByServer
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RunStatus, RunTerminationReason};

    #[test]
    fn finished_is_final_and_reachable_only_from_terminating() {
        for &from in RunStatus::ALL {
            assert!(!from.can_become(from), "{from} to itself");
            for &to in RunStatus::FINISHED {
                assert_eq!(
                    from.can_become(to),
                    from == RunStatus::Terminating,
                    "{from} to {to}"
                );
            }
            if from.is_finished() {
                assert!(
                    RunStatus::ALL.iter().all(|&to| !from.can_become(to)),
                    "{from} is final"
                );
            } else if from != RunStatus::Terminating {
                assert!(
                    from.can_become(RunStatus::Terminating),
                    "{from} can be stopped"
                );
            }
        }
    }

    #[test]
    fn every_reason_ends_the_run_and_words_read_back() {
        for &reason in RunTerminationReason::ALL {
            assert!(reason.status().is_finished());
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert_eq!(
            serde_json::to_string(&RunStatus::Done).unwrap(),
            r#""done""#
        );
        assert!(serde_json::from_str::<RunStatus>(r#""sleeping""#).is_err());
    }
}
