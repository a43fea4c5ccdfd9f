//! Decisions on small worlds, step by step.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stop at the first surprise"
)]

mod crash;
mod own_hosts;
mod policies;
mod runs;
mod support;
