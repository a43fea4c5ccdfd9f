//! Wire types of the shim and runner APIs: what travels between the server and the two agents on a machine.
//!
//! Used by the agents, which read requests and write replies, and by the host, which does the reverse. Types only:
//! nothing here opens a socket, reads a clock or touches a file.
//!
//! Reading follows the agents' rules: unknown fields are ignored and `null` stands for the zero value of a field.
//! Writing puts every field on the wire, with `null` where nothing is known, unless a field says otherwise.
//!
//! # Our extensions
//!
//! They are additions that a client of the compatible API never sees:
//!
//! | where | what |
//! |---|---|
//! | shim `GET /api/tasks/{id}?wait=<status>&timeout_ms=<n>` | Long poll: answers as soon as the task's status differs from `<status>`, or after `timeout_ms` (at most [`shim::LONG_POLL_MAX_MS`]) with the state it has then. An unknown `<status>` is a 400. |
//! | shim `--socket`, `--runtime` | HTTP on a Unix socket of its owner's alone, with a TCP port beside it only if `--shim-http-port` is given too; jobs without containers (see [`process_runtime`]). |
//! | shim `--idle-shutdown <seconds>` | Switches the machine off after that long without a request and without a task. |
//! | runner `GET /api/pull?timestamp=N&wait_ms=M` | Long poll: answers as soon as there is something later than `N`, or the job is over, or after `M` ms (at most 60 s). Any pull is bounded: with more than 16 MiB of log since `N`, `last_updated` is the last entry's and `has_more` is true. |
//! | runner `start --http-socket`, `--no-sshd` | HTTP on a Unix socket; no SSH server in the container. |
//! | runner `start --task-dir`, `--port-file` | How the shim starts a runner without a container (see [`process_runtime`]). |
//! | `job.end` in the runner's temp dir | How the shim knows that a runner ended in order (see [`job_end`]). |

mod constants;
pub mod job_end;
mod nullable;
pub mod process_runtime;
pub mod runner;
mod secret;
pub mod shim;

pub use constants::{
    COMPATIBLE_VERSION, CONTAINER_SSH_PORT, DCGM_EXPORTER_PORT, MAX_JSON_BODY_BYTES, RUNNER_PORT,
    RUNNER_SERVICE, SHIM_PORT, SHIM_SERVICE, reason,
};
pub use nullable::nullable;
pub use secret::Secret;

use serde::{Deserialize, Serialize};

/// Reply of `GET /api/healthcheck` of both agents: the only call that negotiates versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Healthcheck {
    /// [`SHIM_SERVICE`] or [`RUNNER_SERVICE`]; the server refuses any other word.
    pub service: String,
    /// The agent's version as it prints with `--version`.
    pub version: String,
}
