//! End to end: the built `dstack`, the local backend's `.so`, shim and runner.

mod api_document;
mod chaos;
mod crash;
mod dev_environments;
mod hangup;
mod jobs;
mod official;
mod plugins;
mod replicas;
mod repos;
mod slurm;
mod ssh_fleets;
