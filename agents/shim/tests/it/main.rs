//! The shim as a program: its API, containers on a real engine, processes on the real kernel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, helpers too")]

mod api;
mod auto;
mod docker;
mod ends;
mod fuzz;
mod gpus;
mod guard;
mod official;
mod process;
mod pull;
mod support;
mod volumes;
