//! Sentences of events, and the checked status changes that make them.

use std::fmt::Display;
use std::sync::Arc;

use dstack_api::instances::{InstanceStatus, InstanceTerminationReason};
use dstack_api::jobs::{JobStatus, JobTerminationReason};
use dstack_api::runs::{RunStatus, RunTerminationReason};

use crate::changes::{
    Actor, Changes, EventRow, EventTarget, GatewayPatch, GatewayReplicaPatch, InstancePatch,
    JobPatch, Pipeline, RunPatch, TargetKind, VolumePatch,
};
use crate::model::{
    FleetRow, GatewayReplicaRow, GatewayRow, InstanceRow, JobRow, RunRow, VolumeRow,
};

/// Anything an event can be about.
pub trait Target {
    /// How the event names it.
    fn target(&self) -> EventTarget;
}

macro_rules! target {
    ($($row:ident $kind:ident),+) => {$(
        impl Target for $row {
            fn target(&self) -> EventTarget {
                EventTarget {
                    kind: TargetKind::$kind,
                    project_id: self.project_id,
                    id: self.id.0,
                    name: Arc::clone(&self.name),
                }
            }
        }
    )+};
}
target!(RunRow Run, JobRow Job, InstanceRow Instance, FleetRow Fleet, VolumeRow Volume, GatewayRow Gateway,
    GatewayReplicaRow GatewayReplica);

impl Changes {
    /// Adds an event of the system about these rows, the main one first.
    pub fn event(&mut self, message: impl Into<String>, about: &[&dyn Target]) {
        let message: String = message.into();
        let message = message.trim_end_matches('.').replace(['\n', '\r'], " ");
        let targets = about.iter().map(|row| row.target()).collect();
        self.events.push(EventRow {
            message,
            targets,
            actor: Actor::System,
        });
    }

    /// The patch of a job, made on first use.
    pub fn job(&mut self, job: &JobRow) -> &mut JobPatch {
        let at = self
            .jobs
            .iter()
            .position(|p| p.id == job.id)
            .unwrap_or_else(|| {
                self.jobs.push(JobPatch::of(job.id));
                self.jobs.len() - 1
            });
        &mut self.jobs[at]
    }

    /// The patch of an instance, made on first use.
    pub fn instance(&mut self, instance: &InstanceRow) -> &mut InstancePatch {
        let at = self
            .instances
            .iter()
            .position(|p| p.id == instance.id)
            .unwrap_or_else(|| {
                self.instances.push(InstancePatch::of(instance.id));
                self.instances.len() - 1
            });
        &mut self.instances[at]
    }

    /// The patch of a run, made on first use.
    pub fn run(&mut self, run: &RunRow) -> &mut RunPatch {
        let at = self
            .runs
            .iter()
            .position(|p| p.id == run.id)
            .unwrap_or_else(|| {
                self.runs.push(RunPatch::of(run.id));
                self.runs.len() - 1
            });
        &mut self.runs[at]
    }

    /// The patch of a volume, made on first use.
    pub fn volume(&mut self, volume: &VolumeRow) -> &mut VolumePatch {
        let at = self
            .volumes
            .iter()
            .position(|p| p.id == volume.id)
            .unwrap_or_else(|| {
                self.volumes.push(VolumePatch::of(volume.id));
                self.volumes.len() - 1
            });
        &mut self.volumes[at]
    }

    /// The patch of a gateway, made on first use.
    pub fn gateway(&mut self, gateway: &GatewayRow) -> &mut GatewayPatch {
        let at = self
            .gateways
            .iter()
            .position(|p| p.id == gateway.id)
            .unwrap_or_else(|| {
                self.gateways.push(GatewayPatch::of(gateway.id));
                self.gateways.len() - 1
            });
        &mut self.gateways[at]
    }

    /// The patch of a gateway's machine, made on first use.
    pub fn gateway_replica(&mut self, replica: &GatewayReplicaRow) -> &mut GatewayReplicaPatch {
        let at = self
            .gateway_replicas
            .iter()
            .position(|p| p.id == replica.id)
            .unwrap_or_else(|| {
                self.gateway_replicas
                    .push(GatewayReplicaPatch::of(replica.id));
                self.gateway_replicas.len() - 1
            });
        &mut self.gateway_replicas[at]
    }

    /// Moves a job on, with its event, and wakes whoever cares: the job's next pipeline and its run.
    pub fn job_becomes(&mut self, job: &JobRow, next: JobStatus) {
        debug_assert!(job.status.can_become(next), "{} -> {next}", job.status);
        self.job(job).status = Some(next);
        self.event(moved("Job", &job.status, &next), &[job]);
        if let Some(pipeline) = Pipeline::of_job(next) {
            self.hint(pipeline, job.id);
        }
        self.hint(Pipeline::Runs, job.run_id);
    }

    /// Begins the end of a job.
    pub fn job_ends(
        &mut self,
        job: &JobRow,
        reason: JobTerminationReason,
        message: Option<String>,
    ) {
        debug_assert!(
            job.status.can_become(JobStatus::Terminating),
            "{} ends",
            job.status
        );
        let told = message
            .as_deref()
            .map(|m| format!(" ({m})"))
            .unwrap_or_default();
        let patch = self.job(job);
        patch.status = Some(JobStatus::Terminating);
        patch.termination_reason = Some(Some(reason));
        patch.termination_reason_message = Some(message);
        if job.registered {
            // It takes no more requests from now on.
            patch.registered = Some(false);
        }
        if job.status == JobStatus::Running && !job.spec.probes.is_empty() {
            self.end_probes.push(job.id);
        }
        self.event(ended("Job", &job.status, &reason, &told), &[job]);
        self.hint(Pipeline::JobsTerminating, job.id);
        self.hint(Pipeline::Runs, job.run_id);
    }

    /// Moves an instance on, with its event.
    pub fn instance_becomes(&mut self, instance: &InstanceRow, next: InstanceStatus) {
        debug_assert!(
            instance.status.can_become(next),
            "{} -> {next}",
            instance.status
        );
        self.instance(instance).status = Some(next);
        self.event(moved("Instance", &instance.status, &next), &[instance]);
        self.hint(Pipeline::Instances, instance.id);
    }

    /// Begins the end of an instance.
    pub fn instance_ends(
        &mut self,
        instance: &InstanceRow,
        reason: InstanceTerminationReason,
        message: Option<String>,
    ) {
        let told = message
            .as_deref()
            .map(|m| format!(" ({m})"))
            .unwrap_or_default();
        let patch = self.instance(instance);
        patch.status = Some(InstanceStatus::Terminating);
        patch.termination_reason = Some(Some(reason));
        patch.termination_reason_message = Some(message);
        self.event(
            ended("Instance", &instance.status, &reason, &told),
            &[instance],
        );
        self.hint(Pipeline::Instances, instance.id);
    }

    /// Moves a run on, with its event.
    pub fn run_becomes(&mut self, run: &RunRow, next: RunStatus) {
        debug_assert!(run.status.can_become(next), "{} -> {next}", run.status);
        self.run(run).status = Some(next);
        self.event(moved("Run", &run.status, &next), &[run]);
        self.hint(Pipeline::Runs, run.id);
    }

    /// Begins the end of a run.
    pub fn run_ends(&mut self, run: &RunRow, reason: RunTerminationReason) {
        let patch = self.run(run);
        patch.status = Some(RunStatus::Terminating);
        patch.termination_reason = Some(Some(reason));
        self.event(ended("Run", &run.status, &reason, ""), &[run]);
        self.hint(Pipeline::Runs, run.id);
    }
}

/// A word as messages have it: scripts and people look for status and reason in capitals.
pub(crate) fn loud(word: &impl Display) -> String {
    word.to_string().to_uppercase()
}

/// What the event of a changed status says.
pub(crate) fn moved(what: &str, old: &impl Display, new: &impl Display) -> String {
    format!("{what} status changed {} -> {}", loud(old), loud(new))
}

/// The same when the end begins; `told` is empty, or has its own space and brackets.
fn ended(what: &str, old: &impl Display, reason: &impl Display, told: &str) -> String {
    let (old, reason) = (loud(old), loud(reason));
    format!("{what} status changed {old} -> TERMINATING. Termination reason: {reason}{told}")
}
