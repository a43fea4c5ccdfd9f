//! Numbers and words fixed by the API.

/// Version that our agents report, so that servers of this generation use every call they have.
pub const COMPATIBLE_VERSION: &str = "0.22.5";
/// Port of the shim's API on the machine's loopback.
pub const SHIM_PORT: u16 = 10998;
/// Port of the runner's API in the container.
pub const RUNNER_PORT: u16 = 10999;
/// Port of the SSH server in the container.
pub const CONTAINER_SSH_PORT: u16 = 10022;
/// Port of the optional GPU metrics exporter that the shim starts.
pub const DCGM_EXPORTER_PORT: u16 = 10997;
/// Service name in the shim's healthcheck.
pub const SHIM_SERVICE: &str = "dstack-shim";
/// Service name in the runner's healthcheck.
pub const RUNNER_SERVICE: &str = "dstack-runner";
/// Largest accepted JSON body, in bytes. Uploads have no limit.
pub const MAX_JSON_BODY_BYTES: usize = 1024 * 1024;

/// Termination reasons that the agents themselves produce. A server breaks on words it does not know.
pub mod reason {
    /// The machine could not prepare or keep the job.
    pub const EXECUTOR_ERROR: &str = "executor_error";
    /// The image could not be pulled or the container not be made.
    pub const CREATING_CONTAINER_ERROR: &str = "creating_container_error";
    /// The container did not start, or ended with another code than 0.
    pub const CONTAINER_EXITED_WITH_ERROR: &str = "container_exited_with_error";
    /// The runner ended by itself with code 0.
    pub const DONE_BY_RUNNER: &str = "done_by_runner";
    /// The job ran longer than it may.
    pub const MAX_DURATION_EXCEEDED: &str = "max_duration_exceeded";
    /// The job wrote more log than it may in an hour.
    pub const LOG_QUOTA_EXCEEDED: &str = "log_quota_exceeded";
}
