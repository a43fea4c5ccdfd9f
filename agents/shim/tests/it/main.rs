//! The shim as a program: its API, containers on a real engine, processes on the real kernel.

mod api;
mod docker;
mod process;
mod support;
