//! A backend that does wrong what can be done wrong, as its configuration's `mode` says. Ships nowhere.
#![allow(clippy::panic, reason = "that is what it is for")]

mod acts;
mod backend;

pub use backend::{Any, Config, Misbehaving, Mode};
