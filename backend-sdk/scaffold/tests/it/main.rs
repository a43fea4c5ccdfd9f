//! What is made is whole, builds and conforms; what is refused leaves nothing.

#![allow(clippy::unwrap_used, reason = "tests")]

mod built;
mod files;
