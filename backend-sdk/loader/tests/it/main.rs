//! Inspects and opens real files: right ones, and every wrong one that can be made.
#![allow(unsafe_code, reason = "a host for the plugins under test")]

#[path = "../../../../tests/support/plugins/built.rs"]
mod built;
mod compile;
mod files;
mod open;
