//! How the shim starts a runner without a container; the contract between our two agents.
//!
//! The command line is
//!
//! ```text
//! dstack-runner --log-level <L> start --task-dir <task> --http-address 127.0.0.1 --http-port 0 --port-file <task>/runner.port
//! ```
//!
//! With `--task-dir` the runner
//! - starts no SSH server and writes nothing outside the task directory (no `/dstack`, no `/etc/profile`);
//! - uses [`TMP_DIR`] for its temp dir, [`DSTACK_DIR`] for what is `/dstack` in a container, [`HOME_DIR`] as the home of a
//!   job without a `user`, and [`WORK_DIR`] (its current directory) as the default working directory;
//! - also runs without root; `user` is then not honoured.
//!
//! When the shim is root, the runner already is in a private mount namespace in which `/dstack` *is* `<task>/dstack`
//! and `/workflow` *is* `<task>/work`, and in a PID namespace of its own, whose end ends every process of the job.
//! The port file holds the decimal port and a newline; it is written to a temporary name and renamed once the runner
//! accepts connections.

/// Runner flag: directory of the task; switches on the rules above.
pub const TASK_DIR_FLAG: &str = "--task-dir";
/// Runner flag: file into which the runner writes the port it listens on.
pub const PORT_FILE_FLAG: &str = "--port-file";
/// Working directory of the job, below the task directory.
pub const WORK_DIR: &str = "work";
/// The runner's temp dir, below the task directory.
pub const TMP_DIR: &str = "tmp";
/// What is `/dstack` in a container, below the task directory.
pub const DSTACK_DIR: &str = "dstack";
/// Home of the job's user, below the task directory.
pub const HOME_DIR: &str = "home";
