//! The agent on the machine: runs containers or processes for the server.
//!
//! The server submits *tasks*, one a job, over HTTP. The shim prepares the machine, pulls the image, starts a container
//! (or a process, on machines without an engine) in which the runner waits for the job, and tells how it ended. Running
//! tasks outlive the shim: it finds them again by container labels and by the state file of each task.
//!
//! It never talks to the job itself; that is the runner's part.

mod api;
mod args;
mod clean_up;
mod components;
mod dcgm;
mod docker;
mod download;
mod gpu;
mod host_info;
mod host_keys;
mod idle_guard;
mod job_end;
mod lifecycle;
mod mounts;
mod process;
mod programs;
mod reconcile;
mod registry;
mod restore;
mod runtime;
mod shim;
mod state_file;
mod task;
mod volumes;

pub use args::{Args, RuntimeKind};
pub use process::{KEEPER_COMMAND, run_keeper};
pub use shim::run;

/// What `--version` prints: the program, the word `version` and the version, which the shim itself checks.
pub const VERSION_LINE: &str = "dstack-shim version 0.22.5";
