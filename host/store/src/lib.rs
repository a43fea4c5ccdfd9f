//! SQL: schema, migrations, queries, leases. The only room that knows the database.
//!
//! Used by the server's services and pipeline shells. It makes no decisions and touches no network. Queries are
//! ordinary functions on one transaction, one file for each table; they run on the store's threads:
//!
//! ```no_run
//! # async fn example() -> Result<(), dstack_store::DbError> {
//! use dstack_store::{Store, StoreConfig, users};
//!
//! let store = Store::open(StoreConfig::file("/var/lib/dstack/sqlite.db"))?;
//! let admin = store.read(|tx| users::by_name(tx, "admin")).await?;
//! # Ok(()) }
//! ```
#![allow(
    clippy::missing_errors_doc,
    reason = "every query fails for the same reasons, and DbError tells them"
)]

pub mod apply;
pub mod archives;
pub mod backends;
pub mod cleanups;
mod codec;
mod config;
mod error;
pub mod events;
#[cfg(test)]
mod explain;
pub mod exports;
pub mod fleets;
pub mod gateways;
mod guards;
pub mod instance_health;
pub mod instances;
pub mod job_metrics;
pub mod jobs;
pub mod lease;
pub mod logs;
pub mod measures;
pub mod meta;
mod migrations;
mod news;
mod page;
mod patch;
mod postgres;
pub mod probes;
pub mod projects;
pub mod repos;
pub mod runs;
mod sealed;
pub mod secrets;
pub mod side_resources;
mod sql;
mod sqlite;
pub mod ssh_hosts;
mod store;
pub mod tokens;
pub mod traffic;
pub mod turns;
mod tx;
pub mod users;
pub mod views;
pub mod volumes;

pub use config::{Database, StoreConfig};
pub use error::DbError;
pub use news::{Heard, News, Topic};
pub use page::Page;
pub use postgres::Address;
pub use sealed::Sealed;
pub use sql::{Dialect, Sql};
pub use store::{GROUP, Store};
pub use tx::{Cell, Columns, FromCell, Json, Query, Row, Tx, Value};
