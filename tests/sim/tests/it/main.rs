//! Simulations that must hold, and worlds that must not.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stop at the first surprise"
)]

mod broken;
mod days;
