//! The agent in the container: runs one job and serves its log.
//!
//! The binary `dstack-runner` is started by the shim (or is a container's entry point), takes a job over HTTP, runs it
//! in a pseudo terminal and keeps its states and output until the server has pulled them. It knows one job and nothing
//! about machines, images or other jobs; its wire types live in `dstack-agent-protocol`.
//!
//! It is linked statically and runs in any image, so it reads `/etc/passwd` and `/etc/group` itself and needs of the
//! image only the programs it starts: `sshd` and `ssh-keygen` for logins, `git` for remote repositories.

mod answer;
mod api;
mod archives;
mod args;
mod children;
mod cluster;
mod connections;
mod credentials;
mod end_mark;
mod environment;
mod expand;
mod files;
mod history;
mod job;
mod metrics;
mod multipart;
mod output;
mod paths;
mod process;
mod raw_log;
mod repo;
mod runner;
mod serve;
mod session;
mod spool;
mod sshd;
mod stripper;
mod users;

pub use args::{Args, Command, StartArgs};
pub use serve::{StartError, start};
