//! What things look like in tables and sentences.

pub(crate) mod fleets;
pub(crate) mod gateways;
pub(crate) mod gpus;
pub(crate) mod offers;
pub(crate) mod plan;
pub(crate) mod prices;
mod process_note;
pub(crate) mod runs;
pub(crate) mod values;
pub(crate) mod volumes;

pub(crate) use process_note::process_note;
