//! Drives the real binary as root in a private mount namespace whose root is a throw-away layer over this machine's, so
//! that `/dstack`, `/etc/profile` and the users are the test's own.

#![expect(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod bed;
mod contract;
mod ends;
mod fuzz;
mod job;
mod logins;
mod logs;
mod repos;
mod secrets;
mod task_dir;
