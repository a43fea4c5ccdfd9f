//! The plugin host with real plugins in real folders.

#[path = "../../../../tests/support/plugins/built.rs"]
mod built;
mod calls;
mod fake;
mod folders;
mod local;
mod place;
