//! Decisions on small worlds, step by step.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stop at the first surprise"
)]
#![allow(
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "a table of a lifecycle is one test"
)]

mod apply_twice;
mod crash;
mod explain;
mod gateways;
mod own_hosts;
mod policies;
mod runs;
mod s2_runs;
mod s3_jobs;
mod s4_placement;
mod s5_instances;
mod s6_fleets;
mod s9_services;
mod support;
mod transitions;
mod volumes;
