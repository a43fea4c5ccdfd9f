//! The simulator: the pure engine at thousands of machines, with faults, on one thread.
//!
//! Time, chance and order come from a seed, so a failure is repeated by its seed. Used by the binary
//! `dstack-sim` and by this crate's tests; it touches no clock but for the measurement of the engine's own cost.

mod cloud;
mod flight;
mod options;
mod sim;
mod users;

pub use cloud::Cloud;
pub use flight::Meter;
pub use options::{Faults, Options};
pub use sim::{Failure, Report, Sim};
pub use users::{PROJECT, USER, configuration, create_fleet, fleets, submit};
