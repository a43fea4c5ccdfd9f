//! Decisions on small worlds, step by step.

mod crash;
mod policies;
mod runs;
mod support;
