//! The suite itself: it passes what is right and finds each thing that is wrong.
#![allow(
    clippy::unwrap_used,
    reason = "a test may fail by it, in its helpers too"
)]

#[path = "../../../../tests/support/plugins/built.rs"]
mod built;
mod cloud;
mod defects;
mod good;
mod provider;
