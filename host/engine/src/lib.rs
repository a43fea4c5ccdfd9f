//! Pure decisions: state machines, plans, conclusions, ranking, retries.
//!
//! Every pipeline of the server is a module here with a `View` (what a decision reads), `plan` (which calls to
//! make, or the changes at once), `conclude` (what the answers mean) and [`Changes`](changes::Changes) (what is
//! to be written). The server's shells load the view, make the calls and have the changes written by `store`;
//! the simulator does the same with the in-memory world.
//!
//! Nothing here reads a clock, a file, a setting or chance: time stands in the view, chance is an argument
//! ([`Ids`](ids::Ids)), and only ordered maps are used. The same view gives the same plan.

pub mod admit;
pub mod audit;
pub mod changes;
pub mod combine;
mod events;
pub mod explain;
pub mod fleets;
pub mod gateways;
pub mod idle;
pub mod ids;
pub mod instances;
pub mod job_running;
pub mod job_submitted;
pub mod job_terminating;
pub mod model;
pub mod names;
pub mod new_fleet;
pub mod offers;
pub mod placement;
pub mod plan_diff;
pub mod preview;
pub mod retry;
pub mod runs;
pub mod scaling;
pub mod schedule;
pub mod spec;
pub mod ssh_hosts;
pub mod view;
pub mod volumes;
pub mod world;
