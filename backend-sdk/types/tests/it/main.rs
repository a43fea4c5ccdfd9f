//! The shapes against recorded exchanges, and the registry against itself.

mod registry;
mod wire;
