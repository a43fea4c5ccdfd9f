//! A small backend against the traits' promises.

#![allow(clippy::unwrap_used, reason = "tests")]

mod acme;
mod configurator;
mod run_job;
