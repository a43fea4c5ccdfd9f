//! The way into a running job: the user's key, entries for OpenSSH, and a tunnel with the job's ports.
//!
//! OpenSSH itself does the work, so that `ssh NAME`, IDEs and agents go the same way with the person's own settings.

mod config;
mod keys;
mod ports;
mod rewrite;
mod target;
mod tunnel;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use dstack_api::config::PortMapping;
use dstack_api::jobs::{Job, JobStatus, JobSubmission};
use dstack_api::runs::Run;

pub(crate) use config::write_private;
pub(crate) use keys::{public_half, public_line};
pub(crate) use ports::Forward;
pub(crate) use rewrite::Rewriter;
pub(crate) use tunnel::identities_for;

use crate::cx::{Cx, Here};
use crate::error::CliError;

/// What the person asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wishes {
    /// Private key, instead of the user's at the server.
    pub(crate) identity: Option<PathBuf>,
    /// Address of this machine that ports are bound to.
    pub(crate) host: String,
    /// Ports that replace or add to those of the configuration.
    pub(crate) ports: Vec<PortMapping>,
}

/// How a job can be reached.
#[derive(Debug)]
pub(crate) enum Way {
    /// Over SSH; it is being opened.
    Ssh(Opening),
    /// It is a process of the server's machine without a login of its own: its ports are there as they are.
    SameMachine,
}

/// A tunnel that is being opened, while the caller shows what the job prints. Dropping it gives up.
#[derive(Debug)]
pub(crate) struct Opening {
    thread: Option<JoinHandle<Result<tunnel::Tunnel, CliError>>>,
    gives_up: Arc<AtomicBool>,
    name: String,
    forwards: Vec<Forward>,
    host: String,
    hostname: String,
}

impl Opening {
    /// The connection, once it stands or cannot.
    pub(crate) fn poll(&mut self) -> Option<Result<Connection, CliError>> {
        if !self.thread.as_ref()?.is_finished() {
            return None;
        }
        let result = self.thread.take()?.join();
        Some(match result {
            Ok(Ok(tunnel)) => Ok(Connection {
                name: self.name.clone(),
                forwards: self.forwards.clone(),
                host: self.host.clone(),
                hostname: self.hostname.clone(),
                tunnel,
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(CliError::message("the SSH connection failed unexpectedly")),
        })
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.gives_up.store(true, Ordering::Relaxed);
            // Its tunnel, if it got one, is closed on the way out.
            drop(thread.join());
        }
    }
}

/// An open tunnel. Dropping it closes it and takes its names out of the SSH configuration.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Name for `ssh NAME`.
    pub(crate) name: String,
    pub(crate) forwards: Vec<Forward>,
    /// Address that ports are bound to.
    pub(crate) host: String,
    /// Name or address of the machine, as log lines may have it.
    pub(crate) hostname: String,
    tunnel: tunnel::Tunnel,
}

/// The job to attach to: the one asked for, else the first node of the lowest replica that runs.
pub(crate) fn choose_job(run: &Run, replica: Option<u32>, job: u32) -> Option<&Job> {
    let is_asked = |candidate: &&Job| {
        candidate.job_spec.job_num == job
            && replica.is_none_or(|replica| candidate.job_spec.replica_num == replica)
    };
    let runs =
        |candidate: &&Job| last(candidate).is_some_and(|last| last.status == JobStatus::Running);
    run.jobs
        .iter()
        .filter(is_asked)
        .filter(runs)
        .min_by_key(|job| job.job_spec.replica_num)
        .or_else(|| run.jobs.iter().find(is_asked))
}

/// Its newest try.
pub(crate) fn last(job: &Job) -> Option<&JobSubmission> {
    job.job_submissions.last()
}

/// Opens the way to a running job.
pub(crate) fn open(
    run: &Run,
    job: &Job,
    wishes: &Wishes,
    here: &Here,
    cx: &Cx<'_>,
) -> Result<Way, CliError> {
    let run_name = run.run_spec.run_name.clone().unwrap_or_default();
    let Some(last) = last(job) else {
        return Err(CliError::message(format!(
            "the run {run_name} has no such job yet"
        )));
    };
    let Some(machine) = &last.job_provisioning_data else {
        return Err(CliError::message(
            "Failed to attach. The run is not provisioned yet.",
        ));
    };
    if !machine.dockerized && machine.ssh_proxy.is_none() && machine.ssh_port.is_none() {
        return Ok(Way::SameMachine);
    }
    let identity = keys::identity(run, wishes.identity.as_deref(), here, cx)?;
    let target = target::of(&run_name, job, last, &identity, tunnel::identities_for)?;
    let config = config::Config::at(&cx.settings.home);
    config.include()?;
    let control = tunnel::control_path(&cx.settings.home, &target.name);
    let is_shared = tunnel::is_alive(config.path(), &control, &target.name);
    // Who holds the connection carries the ports too.
    let forwards = ports::choose(run, job, wishes, |host, port| {
        is_shared || ports::is_free(host, port)
    })?;
    let gives_up = Arc::new(AtomicBool::new(false));
    let plan = tunnel::Plan {
        log: config.log(&target.name),
        config,
        target: target.clone(),
        forwards: forwards.clone(),
        host: wishes.host.clone(),
        control,
        gives_up: Arc::clone(&gives_up),
    };
    Ok(Way::Ssh(Opening {
        thread: Some(std::thread::spawn(move || tunnel::Tunnel::open(plan))),
        gives_up,
        name: target.name,
        forwards,
        host: wishes.host.clone(),
        hostname: machine.hostname.clone().unwrap_or_default(),
    }))
}

impl Connection {
    /// Opens the tunnel again if it ended, as it does when the network was away. False while that fails.
    pub(crate) fn keep(&mut self) -> bool {
        self.tunnel.keep()
    }
}
