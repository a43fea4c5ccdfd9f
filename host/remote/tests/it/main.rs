//! The clients against a real SSH server and real sockets.

#![expect(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod bed;
mod exec;
mod local;
mod ssh;
