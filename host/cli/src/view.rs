//! What things look like in tables and sentences.

pub(crate) mod fleets;
pub(crate) mod gpus;
pub(crate) mod offers;
pub(crate) mod plan;
pub(crate) mod runs;
pub(crate) mod values;
