//! Plugins in a child process: the same `.so`, the same method numbers and bytes, over a socket.
//!
//! ```text
//! host                                  worker (`dstack plugin-worker`)
//! spawn, socket as stdin        ──►     
//! descriptor of the .so, HELLO  ──►     limits, load, init
//!                               ◄──     READY | FAILED
//! OPEN, CALL, CANCEL, CLOSE     ──►     a thread for each call
//!                               ◄──     ASK (a host service), LOG, REPLY | ERROR
//! SERVED | REFUSED              ──►
//! STOP, or the end of the socket ─►     closes backends, ends
//! ```
//! Frames are in [`frame`]. One worker serves all configurations of its plugin. See decision 0011.

pub(crate) mod child;
mod death;
pub(crate) mod frame;
pub(crate) mod gate;
pub(crate) mod link;
mod manager;
mod output;
mod spawn;

pub(crate) use death::Death;
pub(crate) use manager::{Remote, Workers};

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

/// The argument by which the `dstack` binary becomes a worker.
pub const WORKER_ARGUMENT: &str = "plugin-worker";

/// The program that loads a plugin in a child process; it must call [`run_worker`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerProgram {
    /// The file; absolute.
    pub program: PathBuf,
    /// Its arguments. Nothing secret, and nothing about the plugin: that comes over the socket.
    pub args: Vec<OsString>,
}

impl Default for WorkerProgram {
    /// This very program with [`WORKER_ARGUMENT`], also after its file was replaced.
    fn default() -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            args: vec![WORKER_ARGUMENT.into()],
        }
    }
}

/// Bounds of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Address space; what needs more ends the worker. 2 GiB.
    pub memory_bytes: u64,
    /// Open files. 1024.
    pub open_files: u64,
    /// How long loading may take. 10 s.
    pub start: Duration,
    /// How long closing its backends may take before it is killed. 5 s.
    pub close: Duration,
    /// So many starts within a minute, then a pause. 20.
    pub starts_per_minute: usize,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 2 << 30,
            open_files: 1024,
            start: Duration::from_secs(10),
            close: Duration::from_secs(5),
            starts_per_minute: 20,
        }
    }
}

/// The whole life of a worker process: what `dstack plugin-worker` does. Its standard input must be the socket of a host.
///
/// Ends the process itself, without running what plugins have registered for the exit, unless it cannot even start.
pub fn run_worker() -> ExitCode {
    child::run()
}
