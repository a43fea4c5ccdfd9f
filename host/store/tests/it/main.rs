//! The store on real SQLite files.

mod core;
mod leases;
mod lists;
mod rows;
mod support;
