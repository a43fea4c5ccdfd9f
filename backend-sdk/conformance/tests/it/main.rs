//! The suite itself: it passes what is right and finds each thing that is wrong.

#[path = "../../../../tests/support/plugins/built.rs"]
mod built;
mod cloud;
mod defects;
mod good;
mod provider;
