//! Placed jobs: from the machine's address to the end of the commands.
//!
//! ```text
//!               shim took the task          container up, runner took the job
//! provisioning ───────────────────► pulling ─────────────────────────────────► running ─► terminating
//!      └────────────────── no shim: runner took the job ─────────────────────────┘
//! ```
//!
//! Every step asks one agent one question. The next look is soon while something happens and rare while nothing
//! does; a row that waits for another row is woken by it.

mod service;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dstack_api::jobs::{JobStatus, JobTerminationReason as Reason};
use dstack_backend_types::{JobRuntimeData, VolumeAttachmentData};
use jiff::Timestamp;

use crate::changes::{Changes, Guard, Pipeline};
use crate::model::{AttachmentRow, Held, InstanceRow, JobRow, RunRow, VolumeRow};
use crate::spec::{self, StartupOrder};
use crate::view::Limits;

pub use service::is_ready;

/// What the decision reads.
#[derive(Debug, Clone)]
pub struct View {
    /// Now.
    pub now: Timestamp,
    /// The job.
    pub job: JobRow,
    /// Its run.
    pub run: RunRow,
    /// The newest submissions of the other jobs of the replica, by job number.
    pub siblings: Vec<JobRow>,
    /// Its instance.
    pub instance: Option<InstanceRow>,
    /// Successes in a row of each of the job's probes, by number; as many as have begun.
    pub probes: Vec<u32>,
    /// How busy its GPUs were, newest first; read only for jobs with a utilization policy.
    pub gpu_load: Vec<GpuSample>,
    /// The volumes it has, by name.
    pub volumes: Vec<Held>,
    /// The instance's fleet is no longer shared with the project.
    pub access_revoked: bool,
    /// How long the machine may take until the runner has the job, from submission; by backend and offer.
    pub provisioning_timeout: Duration,
    /// Limits.
    pub limits: Arc<Limits>,
}

/// How busy the GPUs of a job were at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuSample {
    /// When.
    pub at: Timestamp,
    /// Per cent, for each GPU.
    pub percent: Vec<u64>,
}

/// What to do.
#[derive(Debug, Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives for one step and is moved twice"
)]
pub enum Plan {
    /// Write this.
    Change(Changes),
    /// Ask an agent, then conclude.
    Ask(Ask),
}

/// A question to an agent of the job's machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Backend: attach this one of [`View::volumes`] to the job's machine.
    Attach(Arc<VolumeRow>),
    /// Is the shim up, and does it take the task? `JobRow::runtime_data` says which share. A task that it already
    /// has counts as taken.
    SubmitTask,
    /// How is the task?
    TaskInfo,
    /// Is the runner up, and does it take the job: submit, archives, code, run?
    StartRunner(Cluster),
    /// What happened since this position? Logs are stored before the answer is given to `conclude`.
    Pull {
        /// The position, in the runner's milliseconds.
        since: i64,
    },
}

/// What a job is told about its replica.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cluster {
    /// Address of every job of the replica, by job number.
    pub job_ips: Vec<String>,
    /// GPUs of every job of the replica, by job number.
    pub gpus_per_node: Vec<u32>,
}

/// What an agent answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// No way to the machine, or nonsense came back.
    Unreachable(String),
    /// The machine is there, the agent is not up yet.
    NotUp,
    /// The volume hangs on the machine.
    Attached(VolumeAttachmentData),
    /// It does not, and never will (`is_final`), or not yet.
    NotAttached {
        /// Why.
        why: String,
        /// Asking again is of no use.
        is_final: bool,
    },
    /// The shim has the task.
    TaskTaken,
    /// How the task is.
    Task(TaskState),
    /// The runner has the job and started it.
    Started {
        /// Where the commands run, if the runner said so.
        working_dir: Option<String>,
        /// Who runs them, if the runner said so.
        username: Option<String>,
    },
    /// The job cannot be given to the agent, now or later (a secret that does not exist).
    Impossible(String),
    /// What happened.
    Pulled(Pulled),
}

/// How a task is at the shim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskState {
    /// The container is up.
    pub running: bool,
    /// It ended, with this reason (a word of the wire) and message.
    pub ended: Option<(String, String)>,
    /// Container port to host port; `None` until known.
    pub ports: Option<BTreeMap<u16, u16>>,
}

/// What a runner reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The logs were stored. Else nothing advances and the same logs are read again.
    pub stored: bool,
    /// Something came: logs or states.
    pub news: bool,
    /// Position for the next pull.
    pub last_updated: i64,
    /// Seconds without a connection; `None` from a runner that cannot tell.
    pub no_connections_secs: Option<i64>,
    /// The final state, if it is there.
    pub ended: Option<Ended>,
}

/// How the commands ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// They ended well.
    pub done: bool,
    /// The runner's reason, a word of the wire; may be empty.
    pub reason: String,
    /// Its message; may be empty.
    pub message: String,
    /// Exit status.
    pub exit_status: Option<i64>,
}

const PLACED: [JobStatus; 3] = [
    JobStatus::Provisioning,
    JobStatus::Pulling,
    JobStatus::Running,
];

/// Decides the next question to the job's machine.
pub fn plan(view: &View) -> Plan {
    let job = &view.job;
    if !PLACED.contains(&job.status) {
        return Plan::Change(Changes::nothing());
    }
    if view.access_revoked {
        return end(view, Reason::InstanceAccessRevoked, None);
    }
    let Some(data) = &job.provisioning_data else {
        return end(
            view,
            Reason::TerminatedByServer,
            Some("the job has no machine".into()),
        );
    };
    match job.status {
        JobStatus::Provisioning => {
            if let Some(instance) = &view.instance
                && !instance.is_living()
            {
                let why = instance.termination_reason_message.clone();
                return end(view, Reason::WaitingInstanceLimitExceeded, why);
            }
            if secs(view.now, job.submitted_at) > signed(view.provisioning_timeout) {
                let what = if data.hostname.is_some() {
                    "agents"
                } else {
                    "address"
                };
                let after = view.provisioning_timeout.as_secs();
                let why = format!("the machine's {what} did not come up within {after} s");
                return end(view, Reason::WaitingRunnerLimitExceeded, Some(why));
            }
            if let Some(wait) = must_wait(view) {
                return Plan::Change(Changes::later(wait));
            }
            if let Some(held) = view.volumes.iter().find(|it| it.attachment.data.is_none()) {
                Plan::Ask(Ask::Attach(Arc::clone(&held.volume)))
            } else if view.instance.as_ref().is_none_or(InstanceRow::has_shim) {
                Plan::Ask(Ask::SubmitTask)
            } else {
                Plan::Ask(Ask::StartRunner(cluster(view)))
            }
        }
        JobStatus::Pulling => {
            let known = job
                .runtime_data
                .as_ref()
                .is_some_and(|data| data.ports.is_some());
            Plan::Ask(if known {
                Ask::StartRunner(cluster(view))
            } else {
                Ask::TaskInfo
            })
        }
        _ => {
            let limit = job.spec.max_duration.filter(|limit| *limit > 0);
            if let (Some(limit), Some(started)) = (limit, job.started_at)
                && secs(view.now, started) > limit + signed(view.limits.max_duration_grace)
            {
                return end(view, Reason::MaxDurationExceeded, None);
            }
            if let Some(why) = service::wasted(view) {
                return end(view, Reason::TerminatedDueToUtilizationPolicy, Some(why));
            }
            Plan::Ask(Ask::Pull {
                since: job.runner_timestamp,
            })
        }
    }
}

/// Why a provisioning job does not go on yet, as the time of the next look. Whoever it waits for wakes it.
fn must_wait(view: &View) -> Option<Duration> {
    let job = &view.job;
    let addressed = |j: &JobRow| {
        j.provisioning_data
            .as_ref()
            .is_some_and(|d| d.hostname.is_some())
    };
    if !addressed(job) || !view.siblings.iter().all(addressed) {
        return Some(Duration::from_secs(10));
    }
    // One that has ended meanwhile did run.
    let runs = |j: &JobRow| j.status == JobStatus::Running || j.started_at.is_some();
    let held = match spec::startup_order(&view.run.spec) {
        StartupOrder::Any => false,
        StartupOrder::MasterFirst => {
            job.job_num != 0 && view.siblings.iter().any(|j| j.job_num == 0 && !runs(j))
        }
        StartupOrder::WorkersFirst => job.job_num == 0 && !view.siblings.iter().all(runs),
    };
    held.then_some(Duration::from_secs(10))
}

fn cluster(view: &View) -> Cluster {
    let mut jobs: Vec<&JobRow> = view.siblings.iter().chain([&view.job]).collect();
    jobs.sort_by_key(|job| job.job_num);
    let ip = |job: &JobRow| {
        let data = job.provisioning_data.as_deref();
        data.and_then(|d| d.internal_ip.clone().or_else(|| d.hostname.clone()))
            .unwrap_or_default()
    };
    let gpus = |job: &JobRow| {
        let share = job
            .runtime_data
            .as_ref()
            .and_then(|r| r.offer.as_ref())
            .map(|o| &o.instance.resources);
        let all = job
            .provisioning_data
            .as_ref()
            .map(|d| &d.instance_type.resources);
        share
            .or(all)
            .map_or(0, |r| u32::try_from(r.gpus.len()).unwrap_or(0))
    };
    Cluster {
        job_ips: jobs.iter().map(|j| ip(j)).collect(),
        gpus_per_node: jobs.iter().map(|j| gpus(j)).collect(),
    }
}

/// Turns an agent's answer into changes.
pub fn conclude(view: &View, ask: &Ask, answer: &Answer) -> Changes {
    let job = &view.job;
    match answer {
        Answer::Unreachable(why) if job.status != JobStatus::Provisioning => silent(view, why),
        Answer::NotUp if job.status != JobStatus::Provisioning => {
            silent(view, "the agent is not up")
        }
        // A machine that boots refuses connections; the provisioning time limit ends that.
        Answer::Unreachable(_) | Answer::NotUp => Changes::later(pace(view)),
        Answer::Impossible(why) => ended(view, Reason::TerminatedByServer, Some(why.clone())),
        Answer::Attached(data) => attached(view, ask, data),
        Answer::NotAttached {
            why,
            is_final: true,
        } => ended(view, Reason::VolumeError, Some(why.clone())),
        Answer::NotAttached { .. } => Changes::later(pace(view)),
        Answer::TaskTaken if job.status == JobStatus::Provisioning => heard(view, |changes| {
            changes.job_becomes(job, JobStatus::Pulling);
            changes.look_again = Some(Duration::ZERO);
        }),
        Answer::Task(task) => task_state(view, task),
        Answer::Started {
            working_dir,
            username,
        } if job.status != JobStatus::Running => heard(view, |changes| {
            changes.job_becomes(job, JobStatus::Running);
            let patch = changes.job(job);
            patch.started_at = Some(Some(view.now));
            service::begin(job, changes);
            let patch = changes.job(job);
            if let Some(runtime) = &job.runtime_data {
                let mut runtime = JobRuntimeData::clone(runtime);
                runtime.working_dir.clone_from(working_dir);
                runtime.username.clone_from(username);
                patch.runtime_data = Some(Some(Arc::new(runtime)));
            }
            for sibling in &view.siblings {
                if sibling.status == JobStatus::Provisioning {
                    changes.hint(Pipeline::JobsRunning, sibling.id);
                }
            }
            changes.look_again = Some(Duration::ZERO);
        }),
        Answer::Pulled(pulled) if matches!(ask, Ask::Pull { .. }) => pulled_changes(view, pulled),
        // Answers to other questions: whoever mixed them up asks again.
        Answer::TaskTaken | Answer::Started { .. } | Answer::Pulled(_) => {
            Changes::later(pace(view))
        }
    }
}

fn attached(view: &View, ask: &Ask, data: &VolumeAttachmentData) -> Changes {
    let mut changes = Changes::later(Duration::ZERO);
    changes.guards.push(own_guard(view));
    let Ask::Attach(volume) = ask else {
        return changes;
    };
    let held = view.volumes.iter().find(|it| it.volume.id == volume.id);
    if let Some(held) = held {
        changes.attachments.push(AttachmentRow {
            data: Some(data.clone()),
            ..held.attachment.clone()
        });
        changes.event("Volume attached for the job", &[&**volume, &view.job]);
    }
    changes
}

fn task_state(view: &View, task: &TaskState) -> Changes {
    let job = &view.job;
    if let Some((reason, message)) = &task.ended {
        let reason = reason.parse().unwrap_or(Reason::ExecutorError);
        let message = (!message.is_empty()).then(|| message.clone());
        return ended(view, reason, message);
    }
    heard(view, |changes| match &task.ports {
        Some(ports) if task.running => {
            if let Some(runtime) = &job.runtime_data {
                let mut runtime = JobRuntimeData::clone(runtime);
                runtime.ports = Some(ports.clone());
                changes.job(job).runtime_data = Some(Some(Arc::new(runtime)));
            }
            changes.look_again = Some(Duration::ZERO);
        }
        _ => changes.look_again = Some(pace(view)),
    })
}

fn pulled_changes(view: &View, pulled: &Pulled) -> Changes {
    let job = &view.job;
    if !pulled.stored {
        return heard(view, |changes| {
            changes.look_again = Some(Duration::from_secs(2))
        });
    }
    if let Some(end) = &pulled.ended {
        let reason = if end.done {
            Reason::DoneByRunner
        } else {
            end.reason
                .parse()
                .unwrap_or(Reason::ContainerExitedWithError)
        };
        let message = (!end.message.is_empty()).then(|| end.message.clone());
        let mut changes = ended(view, reason, message);
        let patch = changes.job(job);
        patch.runner_timestamp = Some(pulled.last_updated);
        patch.exit_status = Some(end.exit_status);
        return changes;
    }
    if let Some(limit) = spec::inactivity_limit(&view.run.spec) {
        match pulled.no_connections_secs {
            None => {
                let why = "the runner cannot tell whether anybody is connected".to_owned();
                return ended(view, Reason::InterruptedByNoCapacity, Some(why));
            }
            Some(quiet) if quiet >= limit => {
                let why = format!("nobody was connected for {quiet} s, the limit is {limit}");
                return ended(view, Reason::InactivityDurationExceeded, Some(why));
            }
            Some(_) => {}
        }
    }
    heard(view, |changes| {
        if pulled.last_updated > job.runner_timestamp {
            changes.job(job).runner_timestamp = Some(pulled.last_updated);
        }
        if spec::inactivity_limit(&view.run.spec).is_some()
            && job.inactivity_secs != pulled.no_connections_secs
        {
            changes.job(job).inactivity_secs = Some(pulled.no_connections_secs);
        }
        service::register(view, changes);
        changes.look_again = Some(pull_pace(view, pulled));
    })
}

/// Often while output comes, up to every 10 s while none does.
fn pull_pace(view: &View, pulled: &Pulled) -> Duration {
    if pulled.news {
        return Duration::from_secs(1);
    }
    let last = Timestamp::from_millisecond(view.job.runner_timestamp).unwrap_or(view.now);
    let start = view
        .job
        .started_at
        .map_or(last, |started| started.max(last));
    let quiet = u64::try_from(secs(view.now, start)).unwrap_or(0);
    Duration::from_secs((quiet / 4).clamp(1, 10))
}

/// Often at first, when a local machine answers within a second; rarely for one that needs minutes to boot.
fn pace(view: &View) -> Duration {
    match secs(view.now, view.job.submitted_at) {
        ..10 => Duration::from_millis(500),
        10..60 => Duration::from_secs(2),
        _ => Duration::from_secs(5),
    }
}

fn own_guard(view: &View) -> Guard {
    Guard::JobIs(view.job.id, vec![view.job.status])
}

/// Changes of a machine that answered.
fn heard(view: &View, fill: impl FnOnce(&mut Changes)) -> Changes {
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    if view.job.disconnected_at.is_some() {
        changes.job(&view.job).disconnected_at = Some(None);
        changes.event("Job became reachable", &[&view.job]);
    }
    fill(&mut changes);
    changes
}

fn silent(view: &View, why: &str) -> Changes {
    let job = &view.job;
    match job.disconnected_at {
        Some(since) if secs(view.now, since) > signed(view.limits.job_silence) => {
            let spot = job
                .provisioning_data
                .as_ref()
                .is_some_and(|d| d.instance_type.resources.spot);
            let reason = if spot {
                Reason::InterruptedByNoCapacity
            } else {
                Reason::InstanceUnreachable
            };
            ended(view, reason, Some(why.to_owned()))
        }
        Some(_) => Changes::later(Duration::from_secs(5)),
        None => {
            let mut changes = Changes::later(Duration::from_secs(2));
            changes.guards.push(own_guard(view));
            changes.job(job).disconnected_at = Some(Some(view.now));
            changes.event(format!("Job became unreachable: {why}"), &[job]);
            changes
        }
    }
}

fn ended(view: &View, reason: Reason, message: Option<String>) -> Changes {
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    changes.job_ends(&view.job, reason, message);
    if asks_runner(reason) && view.job.status == JobStatus::Running {
        changes.job(&view.job).stop = Some(crate::model::Stop::Requested);
    } else if view.job.status == JobStatus::Running {
        // The runner may hold logs that came after the last pull.
        changes.job(&view.job).stop = Some(crate::model::Stop::Sent);
        let until = view
            .now
            .saturating_add(view.limits.last_logs)
            .unwrap_or(view.now);
        changes.job(&view.job).remove_at = Some(Some(until));
    }
    changes
}

/// Whether the commands are still running when a job ends for this reason.
fn asks_runner(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::MaxDurationExceeded
            | Reason::InactivityDurationExceeded
            | Reason::TerminatedDueToUtilizationPolicy
            | Reason::InstanceAccessRevoked
    )
}

fn end(view: &View, reason: Reason, message: Option<String>) -> Plan {
    Plan::Change(ended(view, reason, message))
}

pub(crate) fn secs(now: Timestamp, then: Timestamp) -> i64 {
    now.duration_since(then).as_secs()
}

pub(crate) fn signed(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
