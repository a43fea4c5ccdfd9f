//! Test servers, fake clouds and agents. Ships nowhere.
//!
//! Used by tests of every room, which may depend on it in `dev-dependencies` only.

pub mod corpus;
#[cfg(test)]
mod examples;
pub mod hostile;
pub mod moto;
pub mod postgres;
pub mod server;
