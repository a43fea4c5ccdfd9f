//! A cloud in a folder: the backend that tests and scenarios use.
//!
//! | in the folder | what |
//! |---|---|
//! | `machines/<id>.json` | one machine, with its `provider_ref`; a test deletes the file to interrupt it |
//! | `volumes/<id>.json` | one disk, with the machine it hangs on |
//! | `journal.jsonl` | every call that had an effect, in order |
//! | `knobs.json` | [`Knobs`], read anew by every call; absent means all defaults |
//!
//! Ships nowhere. Unlike a real backend it touches files itself, since they are its provider.

mod backend;
mod cloud;
mod config;
mod volumes;

pub use backend::Fake;
pub use cloud::{Cloud, Machine};
pub use config::{FakeConfig, FakeConfigurator, Knobs};
pub use volumes::Disk;
