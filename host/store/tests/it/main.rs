//! The store on real SQLite files.

mod core;
mod differential;
mod leases;
mod lists;
mod random_changes;
mod rows;
mod support;
