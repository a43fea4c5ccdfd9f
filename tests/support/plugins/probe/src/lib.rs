//! Asks for host services, step by step as its configuration says, and tells what it got: the message of `health` is a JSON list
//! with one entry for each step, `{"error": {…}}` where it failed.
//!
//! Ships nowhere.

mod backend;
mod steps;

pub use backend::{Probe, ProbeConfig};
pub use steps::Step;
