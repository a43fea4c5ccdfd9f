//! Status of a job submission and why it ended.
//!
//! ```text
//! submitted ─► provisioning ─► pulling ─► running ─► terminating ─► done | failed | terminated | aborted
//! ```

use crate::words::wire_enum;

wire_enum! {
    /// Where a job submission stands.
    pub enum JobStatus {
        /// Waits for a machine.
        Submitted = "submitted",
        /// Has a machine that is not ready yet.
        Provisioning = "provisioning",
        /// The machine fetches the image and makes the container.
        Pulling = "pulling",
        /// The commands run.
        Running = "running",
        /// Is being ended.
        Terminating = "terminating",
        /// Ended by a person or by a limit.
        Terminated = "terminated",
        /// Ended by a person without grace period.
        Aborted = "aborted",
        /// Ended by an error.
        Failed = "failed",
        /// Ended well.
        Done = "done",
    }
}

impl JobStatus {
    /// The statuses in which nothing changes any more.
    pub const FINISHED: &'static [Self] =
        &[Self::Terminated, Self::Aborted, Self::Failed, Self::Done];

    /// Whether nothing changes any more.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        matches!(
            self,
            Self::Terminated | Self::Aborted | Self::Failed | Self::Done
        )
    }

    /// Whether a job may go from `self` to `next`. Staying put is not a transition.
    #[must_use]
    pub const fn can_become(self, next: Self) -> bool {
        use JobStatus::{
            Aborted, Done, Failed, Provisioning, Pulling, Running, Submitted, Terminated,
            Terminating,
        };
        match self {
            Submitted => matches!(next, Provisioning | Terminating),
            Provisioning => matches!(next, Pulling | Running | Terminating),
            Pulling => matches!(next, Running | Terminating),
            Running => matches!(next, Terminating),
            Terminating => next.is_finished(),
            Terminated | Aborted | Failed | Done => false,
        }
    }
}

wire_enum! {
    /// Why a job submission ends.
    pub enum JobTerminationReason {
        /// No offer could be had.
        FailedToStartDueToNoCapacity = "failed_to_start_due_to_no_capacity",
        /// The provider took the machine back.
        InterruptedByNoCapacity = "interrupted_by_no_capacity",
        /// The machine stopped answering.
        InstanceUnreachable = "instance_unreachable",
        /// The fleet is no longer shared with the project.
        InstanceAccessRevoked = "instance_access_revoked",
        /// The machine ended before it had an address.
        WaitingInstanceLimitExceeded = "waiting_instance_limit_exceeded",
        /// Shim or runner did not come up in time.
        WaitingRunnerLimitExceeded = "waiting_runner_limit_exceeded",
        /// `dstack stop`.
        TerminatedByUser = "terminated_by_user",
        /// A volume could not be used.
        VolumeError = "volume_error",
        /// The replica could not be registered at its gateway.
        GatewayError = "gateway_error",
        /// The service needs fewer replicas.
        ScaledDown = "scaled_down",
        /// The commands ended well.
        DoneByRunner = "done_by_runner",
        /// `dstack stop -x`.
        AbortedByUser = "aborted_by_user",
        /// The server ended it, for the sake of the run or of itself.
        TerminatedByServer = "terminated_by_server",
        /// Nobody was connected for `inactivity_duration`.
        InactivityDurationExceeded = "inactivity_duration_exceeded",
        /// The GPUs were used too little.
        TerminatedDueToUtilizationPolicy = "terminated_due_to_utilization_policy",
        /// The commands ended with an exit code other than 0.
        ContainerExitedWithError = "container_exited_with_error",
        /// A port was taken.
        PortsBindingFailed = "ports_binding_failed",
        /// The container could not be made.
        CreatingContainerError = "creating_container_error",
        /// The runner could not start the commands.
        ExecutorError = "executor_error",
        /// Ran longer than `max_duration`.
        MaxDurationExceeded = "max_duration_exceeded",
        /// Wrote more logs than allowed.
        LogQuotaExceeded = "log_quota_exceeded",
    }
}

impl JobTerminationReason {
    /// The final status this reason leads to.
    #[must_use]
    pub const fn status(self) -> JobStatus {
        match self {
            Self::DoneByRunner => JobStatus::Done,
            Self::AbortedByUser => JobStatus::Aborted,
            Self::TerminatedByUser
            | Self::ScaledDown
            | Self::TerminatedByServer
            | Self::InactivityDurationExceeded
            | Self::TerminatedDueToUtilizationPolicy
            | Self::MaxDurationExceeded => JobStatus::Terminated,
            Self::FailedToStartDueToNoCapacity
            | Self::InterruptedByNoCapacity
            | Self::InstanceUnreachable
            | Self::InstanceAccessRevoked
            | Self::WaitingInstanceLimitExceeded
            | Self::WaitingRunnerLimitExceeded
            | Self::VolumeError
            | Self::GatewayError
            | Self::ContainerExitedWithError
            | Self::PortsBindingFailed
            | Self::CreatingContainerError
            | Self::ExecutorError
            | Self::LogQuotaExceeded => JobStatus::Failed,
        }
    }

    /// The text of the submission's `error` field.
    #[must_use]
    pub const fn error(self) -> Option<&'static str> {
        match self {
            Self::InstanceUnreachable => Some("instance unreachable"),
            Self::InstanceAccessRevoked => Some("instance access revoked"),
            Self::WaitingInstanceLimitExceeded => Some("waiting instance limit exceeded"),
            Self::WaitingRunnerLimitExceeded => Some("waiting runner limit exceeded"),
            Self::VolumeError => Some("volume error"),
            Self::GatewayError => Some("gateway error"),
            Self::ScaledDown => Some("scaled down"),
            Self::InactivityDurationExceeded => Some("inactivity duration exceeded"),
            Self::TerminatedDueToUtilizationPolicy => Some("utilization policy"),
            Self::PortsBindingFailed => Some("ports binding failed"),
            Self::CreatingContainerError => Some("runner error"),
            Self::ExecutorError => Some("executor error"),
            Self::MaxDurationExceeded => Some("max duration exceeded"),
            Self::LogQuotaExceeded => Some("log quota exceeded"),
            Self::FailedToStartDueToNoCapacity
            | Self::InterruptedByNoCapacity
            | Self::TerminatedByUser
            | Self::DoneByRunner
            | Self::AbortedByUser
            | Self::TerminatedByServer
            | Self::ContainerExitedWithError => None,
        }
    }

    /// The retry event this reason counts as. `None` is never retried.
    ///
    /// Whether a no-capacity end is retried also depends on whether the job ever had a machine; the engine knows.
    #[must_use]
    pub const fn retry_event(self) -> Option<RetryEvent> {
        match self {
            Self::FailedToStartDueToNoCapacity => Some(RetryEvent::NoCapacity),
            Self::InterruptedByNoCapacity => Some(RetryEvent::Interruption),
            other => match other.status() {
                JobStatus::Failed => Some(RetryEvent::Error),
                _ => None,
            },
        }
    }
}

wire_enum! {
    /// What a retry policy may answer to.
    pub enum RetryEvent {
        /// No offer could be had.
        NoCapacity = "no-capacity",
        /// The provider took the machine back.
        Interruption = "interruption",
        /// Any other failure.
        Error = "error",
    }
}

/// The text of the STATUS column for a submission.
///
/// `message` is the termination reason's message; one that says that no fleet fits shows as `no fleets`.
#[must_use]
pub fn status_message(
    status: JobStatus,
    reason: Option<JobTerminationReason>,
    message: Option<&str>,
    exit_status: Option<i64>,
) -> String {
    use JobTerminationReason as Reason;
    match (status, reason) {
        (JobStatus::Done, _) => "exited (0)".to_owned(),
        (JobStatus::Failed, Some(Reason::ContainerExitedWithError)) => {
            exit_status.map_or_else(|| "error".to_owned(), |code| format!("exited ({code})"))
        }
        (JobStatus::Failed, Some(Reason::FailedToStartDueToNoCapacity)) => {
            let no_fleet =
                message.is_some_and(|message| message.contains("No matching fleet found"));
            if no_fleet { "no fleets" } else { "no capacity" }.to_owned()
        }
        (JobStatus::Failed, Some(Reason::InterruptedByNoCapacity)) => "interrupted".to_owned(),
        (JobStatus::Failed, _) => "error".to_owned(),
        (JobStatus::Terminated, Some(Reason::TerminatedByUser)) => "stopped".to_owned(),
        (JobStatus::Terminated | JobStatus::Aborted, Some(Reason::AbortedByUser)) => {
            "aborted".to_owned()
        }
        (other, _) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{JobStatus, JobTerminationReason, RetryEvent, status_message};

    #[test]
    fn jobs_only_move_forward() {
        for (at, &from) in JobStatus::ALL.iter().enumerate() {
            for &to in JobStatus::ALL.get(..=at).unwrap() {
                assert!(!from.can_become(to), "{from} to {to}");
            }
            assert_eq!(
                from.can_become(JobStatus::Done),
                from == JobStatus::Terminating,
                "{from} to done"
            );
            assert_eq!(
                from.can_become(JobStatus::Terminating),
                at < 4,
                "{from} to terminating"
            );
        }
    }

    #[test]
    fn reasons_map_to_status_error_and_retry() {
        for &reason in JobTerminationReason::ALL {
            assert!(reason.status().is_finished(), "{reason}");
            assert_eq!(reason.as_str().parse(), Ok(reason));
            assert_eq!(
                reason.retry_event().is_some(),
                reason.status() == JobStatus::Failed,
                "{reason}"
            );
        }
        assert_eq!(
            JobTerminationReason::ExecutorError.retry_event(),
            Some(RetryEvent::Error)
        );
        assert_eq!(
            JobTerminationReason::CreatingContainerError.error(),
            Some("runner error")
        );
    }

    #[test]
    fn status_column() {
        use JobTerminationReason as R;
        let text = |status, reason, message, exit| status_message(status, reason, message, exit);
        assert_eq!(
            text(JobStatus::Done, Some(R::DoneByRunner), None, Some(0)),
            "exited (0)"
        );
        assert_eq!(
            text(
                JobStatus::Failed,
                Some(R::ContainerExitedWithError),
                None,
                Some(3)
            ),
            "exited (3)"
        );
        assert_eq!(
            text(
                JobStatus::Failed,
                Some(R::FailedToStartDueToNoCapacity),
                None,
                None
            ),
            "no capacity"
        );
        assert_eq!(
            text(
                JobStatus::Failed,
                Some(R::FailedToStartDueToNoCapacity),
                Some("No matching fleet found."),
                None
            ),
            "no fleets"
        );
        assert_eq!(
            text(JobStatus::Failed, Some(R::VolumeError), None, None),
            "error"
        );
        assert_eq!(
            text(JobStatus::Terminated, Some(R::TerminatedByUser), None, None),
            "stopped"
        );
        assert_eq!(
            text(JobStatus::Terminated, Some(R::ScaledDown), None, None),
            "terminated"
        );
        assert_eq!(
            text(JobStatus::Aborted, Some(R::AbortedByUser), None, None),
            "aborted"
        );
        assert_eq!(text(JobStatus::Running, None, None, None), "running");
    }
}
