//! The rows that decisions read and change.
//!
//! A row is a typed table row: `store` loads it from columns, the simulator keeps it in a map. Big
//! parts that seldom change stand behind an `Arc`, so that a view is cheap to build. Times are
//! [`jiff::Timestamp`] cut to microseconds; durations in fields are whole seconds unless said otherwise.
//!
//! Fields that only the driver needs (lock token and end, owner, the time a row is due) are not here:
//! no decision may depend on them.

mod fleet;
mod gateway;
mod instance;
mod job;
mod run;
mod volume;

pub use fleet::FleetRow;
pub use gateway::{GatewayReplicaRow, GatewayRow};
pub use instance::{CloudAttempt, InstanceRow};
pub use job::{JobRow, Stop};
pub use run::RunRow;
pub use volume::{AttachmentRow, Held, VolumeRow};
