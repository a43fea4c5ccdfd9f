//! The plugin host with real plugins in real folders.
#![allow(
    clippy::unwrap_used,
    reason = "a test may fail by it, in its helpers too"
)]

#[path = "../../../../tests/support/plugins/built.rs"]
mod built;
mod calls;
mod fake;
mod folders;
mod local;
mod machine;
mod place;
mod reload;
mod services;
mod worker;
