//! Model clouds and the agents on their machines.

use std::collections::BTreeMap;

use dstack_backend_types::matching::matches_without_disk;
use dstack_backend_types::{
    InstanceOfferWithAvailability as Offer, JobProvisioningData, Requirements,
};
use dstack_engine::audit::Machine as Known;
use dstack_engine::ids::{Ids, JobId};
use dstack_engine::job_running::{Answer as JobAnswer, Ended, Pulled, TaskState};
use dstack_engine::job_submitted::Attempt;
use dstack_engine::{instances, job_terminating};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::Faults;

/// A machine at a provider, whoever knows of it.
#[derive(Debug)]
struct Machine {
    /// What `audit` needs to know.
    known: Known,
    offer: Offer,
    address_at: Timestamp,
    agents_at: Timestamp,
    reclaimed_at: Option<Timestamp>,
    refusals_to_end: u64,
    tasks: BTreeMap<JobId, Task>,
}

/// A container, or the place for one.
#[derive(Debug)]
struct Task {
    blocks: u32,
    up_at: Timestamp,
    broken: bool,
    runner: Option<Runner>,
}

#[derive(Debug)]
struct Runner {
    started: Timestamp,
    ends: Option<Timestamp>,
    exit: i64,
    asked: bool,
}

/// All providers.
#[derive(Debug)]
pub struct Cloud {
    offers: Vec<Offer>,
    machines: BTreeMap<u64, Machine>,
    made: u64,
    ids: Ids,
    /// What may go wrong.
    pub faults: Faults,
}

/// `now` and some seconds.
pub(crate) fn after(now: Timestamp, seconds: f64) -> Timestamp {
    now.saturating_add(SignedDuration::from_secs_f64(seconds))
        .unwrap_or(now)
}

fn number(id: &str) -> Option<u64> {
    id.strip_prefix("m-")?.parse().ok()
}

fn offer(
    name: &str,
    backend: &str,
    region: &str,
    cpus: u32,
    gpus: u32,
    price: f64,
    spot: bool,
) -> Offer {
    let gpu = json!({"name": "H100", "memory_mib": 81_920, "vendor": "nvidia"});
    let gpus: Vec<_> = (0..gpus).map(|_| gpu.clone()).collect();
    let value = json!({
        "backend": backend, "region": region, "price": price, "availability": "available",
        "instance_runtime": if backend == "pods" { "runner" } else { "shim" },
        "instance": {"name": name, "resources": {
            "cpus": cpus, "memory_mib": u64::from(cpus) * 8192, "gpus": gpus, "spot": spot,
            "disk": {"size_mib": 204_800}, "description": ""}},
    });
    serde_json::from_value(value).expect("an offer of this file reads")
}

impl Cloud {
    /// Providers with a small catalogue.
    pub fn new(ids: Ids, faults: Faults) -> Self {
        let mut offers = Vec::new();
        for region in ["north", "south"] {
            for (spot, factor) in [(false, 1.0), (true, 0.4)] {
                let name = |size: &str| format!("{size}{}", if spot { "-spot" } else { "" });
                offers.push(offer(
                    &name("small"),
                    "vms",
                    region,
                    4,
                    0,
                    0.2 * factor,
                    spot,
                ));
                offers.push(offer(
                    &name("gpu1"),
                    "vms",
                    region,
                    16,
                    1,
                    3.0 * factor,
                    spot,
                ));
                offers.push(offer(
                    &name("gpu8"),
                    "vms",
                    region,
                    96,
                    8,
                    20.0 * factor,
                    spot,
                ));
            }
            offers.push(offer("pod", "pods", region, 4, 0, 0.3, false));
        }
        offers.sort_by(|a, b| a.price.total_cmp(&b.price));
        Self {
            offers,
            machines: BTreeMap::new(),
            made: 0,
            ids,
            faults,
        }
    }

    /// What a backend offers for needs.
    pub fn offers(&self, backend: &str, requirements: &Requirements) -> Vec<Offer> {
        let fits =
            |offer: &&Offer| offer.backend == *backend && matches_without_disk(offer, requirements);
        self.offers.iter().filter(fits).cloned().collect()
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.ids.fraction() < probability
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.ids.fraction() * (high - low)
    }

    /// Makes a machine, or not. The second value is how long the call took.
    ///
    /// # Panics
    /// Never: the data are written here.
    pub fn create(&mut self, offer: &Offer, provider_ref: &str, now: Timestamp) -> (Attempt, f64) {
        let took = self.between(0.3, 15.0);
        let faults = self.faults;
        if self.chance(faults.no_capacity) {
            return (Attempt::Refused("no capacity".into()), took);
        }
        if self.chance(faults.skipped) {
            return (Attempt::Skipped, 0.0);
        }
        if self.chance(faults.lost_answer / 2.0) {
            return (
                Attempt::Unknown("connection reset before the request was read".into()),
                took,
            );
        }
        self.made += 1;
        let id = self.made;
        let boot = self.between(5.0, 90.0);
        let stuck = self.chance(faults.stuck_boot);
        let agents = if stuck {
            1.0e9
        } else {
            boot + self.between(1.0, 60.0)
        };
        let spot = offer.instance.resources.spot;
        let reclaimed = spot && self.chance(faults.reclaimed);
        let reclaimed_at = reclaimed.then(|| after(now, self.between(60.0, 3600.0)));
        let instance_id = format!("m-{id}");
        let refusals = if self.chance(faults.end_refused) {
            self.ids.below(4)
        } else {
            0
        };
        self.machines.insert(
            id,
            Machine {
                known: Known {
                    provider_ref: provider_ref.to_owned(),
                    instance_id: instance_id.clone(),
                },
                offer: offer.clone(),
                address_at: after(now, boot),
                agents_at: after(now, agents),
                reclaimed_at,
                refusals_to_end: refusals,
                tasks: BTreeMap::new(),
            },
        );
        if self.chance(faults.lost_answer) {
            return (Attempt::Unknown("time-out".into()), took);
        }
        let data = json!({
            "backend": offer.backend, "instance_type": offer.instance, "instance_id": instance_id,
            "region": offer.region, "price": offer.price, "username": "root",
            "dockerized": offer.backend != "pods",
        });
        let data = serde_json::from_value(data).expect("provisioning data of this file reads");
        (Attempt::Made(Box::new(data)), took)
    }

    /// `update_provisioning_data`.
    pub fn address(&self, data: &JobProvisioningData, now: Timestamp) -> instances::Answer {
        match number(&data.instance_id).and_then(|id| self.machines.get(&id)) {
            None => instances::Answer::Lost("no such machine".into()),
            Some(machine) if machine.reclaimed_at.is_some_and(|at| now >= at) => {
                instances::Answer::Lost("the provider took the machine back".into())
            }
            Some(machine) if now < machine.address_at => {
                instances::Answer::Address(Box::new(data.clone()))
            }
            Some(_) => {
                let mut data = data.clone();
                data.hostname = Some(format!("host-{}", data.instance_id));
                instances::Answer::Address(Box::new(data))
            }
        }
    }

    /// `terminate_instance`.
    pub fn terminate(&mut self, data: &JobProvisioningData) -> instances::Answer {
        let failed = self.chance(self.faults.call_failed);
        let Some(id) = number(&data.instance_id) else {
            return instances::Answer::Ended;
        };
        if failed {
            return instances::Answer::Failed("internal server error".into());
        }
        match self.machines.get_mut(&id) {
            Some(machine) if machine.refusals_to_end > 0 => {
                machine.refusals_to_end -= 1;
                instances::Answer::NotYet
            }
            _ => {
                self.machines.remove(&id);
                instances::Answer::Ended
            }
        }
    }

    /// Deletes whatever carries a reference.
    pub fn clean(&mut self, provider_ref: &str) {
        self.machines
            .retain(|_, machine| machine.known.provider_ref != provider_ref);
    }

    /// What the providers would list.
    pub fn machines(&self) -> impl Iterator<Item = &Known> {
        self.machines.values().map(|machine| &machine.known)
    }

    /// How many machines were ever made.
    pub const fn made(&self) -> u64 {
        self.made
    }

    /// The machine, if its agents answer now.
    fn reach(
        &mut self,
        data: &JobProvisioningData,
        now: Timestamp,
    ) -> Result<&mut Machine, JobAnswer> {
        let flaky = self.chance(self.faults.call_failed);
        let machine = number(&data.instance_id).and_then(|id| self.machines.get_mut(&id));
        match machine {
            _ if flaky => Err(JobAnswer::Unreachable("connection reset".into())),
            None => Err(JobAnswer::Unreachable("no route".into())),
            Some(machine) if machine.reclaimed_at.is_some_and(|at| now >= at) => {
                Err(JobAnswer::Unreachable("no route".into()))
            }
            Some(machine) if now < machine.agents_at => Err(JobAnswer::NotUp),
            Some(machine) => Ok(machine),
        }
    }

    /// Shim health; tasks that `known` does not accept are removed.
    pub fn health(
        &mut self,
        data: &JobProvisioningData,
        now: Timestamp,
        known: impl Fn(JobId) -> bool,
    ) -> instances::Answer {
        match self.reach(data, now) {
            Ok(machine) => {
                machine.tasks.retain(|job, _| known(*job));
                instances::Answer::Healthy(None)
            }
            Err(JobAnswer::Unreachable(why)) => instances::Answer::Failed(why),
            Err(_) => instances::Answer::Failed("connection refused".into()),
        }
    }

    /// The shim takes a task.
    pub fn submit_task(
        &mut self,
        data: &JobProvisioningData,
        job: JobId,
        blocks: u32,
        now: Timestamp,
    ) -> JobAnswer {
        let pull = self.between(1.0, 60.0);
        let broken = self.chance(self.faults.broken_image);
        match self.reach(data, now) {
            Err(answer) => answer,
            Ok(machine) => {
                let task = || Task {
                    blocks,
                    up_at: after(now, pull),
                    broken,
                    runner: None,
                };
                machine.tasks.entry(job).or_insert_with(task);
                JobAnswer::TaskTaken
            }
        }
    }

    /// How a task is.
    pub fn task_info(
        &mut self,
        data: &JobProvisioningData,
        job: JobId,
        now: Timestamp,
    ) -> JobAnswer {
        match self.reach(data, now).map(|machine| machine.tasks.get(&job)) {
            Err(answer) => answer,
            Ok(None) => JobAnswer::Unreachable("no such task".into()),
            Ok(Some(task)) => {
                let up = now >= task.up_at;
                let ended = (up && task.broken)
                    .then(|| ("creating_container_error".into(), "no such image".into()));
                JobAnswer::Task(TaskState {
                    running: up,
                    ended,
                    ports: up.then(BTreeMap::new),
                })
            }
        }
    }

    /// The runner takes the job. `seconds` is how long it will run, `None` for ever.
    pub fn start(
        &mut self,
        data: &JobProvisioningData,
        job: JobId,
        blocks: u32,
        seconds: Option<f64>,
        now: Timestamp,
    ) -> JobAnswer {
        let exit = i64::from(self.chance(self.faults.job_fails));
        match self.reach(data, now) {
            Err(answer) => answer,
            Ok(machine) => {
                let task = machine.tasks.entry(job).or_insert(Task {
                    blocks,
                    up_at: now,
                    broken: false,
                    runner: None,
                });
                let ends = seconds.map(|seconds| after(now, seconds));
                task.runner.get_or_insert(Runner {
                    started: now,
                    ends,
                    exit,
                    asked: false,
                });
                JobAnswer::Started {
                    working_dir: Some("/workflow".into()),
                    username: None,
                }
            }
        }
    }

    /// What a runner reports, and whether more may come.
    ///
    /// # Errors
    /// The answer when the runner cannot be asked.
    pub fn pull(
        &mut self,
        data: &JobProvisioningData,
        job: JobId,
        since: i64,
        now: Timestamp,
    ) -> Result<(Pulled, bool), JobAnswer> {
        let stored = !self.chance(self.faults.logs_not_stored);
        let machine = self.reach(data, now)?;
        let runner = machine
            .tasks
            .get(&job)
            .and_then(|task| task.runner.as_ref());
        let Some(runner) = runner else {
            return Err(JobAnswer::Unreachable("no such job".into()));
        };
        let over = runner.ends.is_some_and(|at| now >= at);
        let ended = over.then(|| Ended {
            done: runner.exit == 0 && !runner.asked,
            reason: if runner.exit == 0 {
                String::new()
            } else {
                "container_exited_with_error".into()
            },
            message: String::new(),
            exit_status: Some(runner.exit),
        });
        // A line now and then: the minute's number is the position.
        let minute = now.duration_since(runner.started).as_secs() / 60;
        let position = runner.started.as_millisecond() + minute * 60_000;
        let pulled = Pulled {
            stored,
            news: position > since,
            last_updated: position.max(since),
            no_connections_secs: Some(0),
            ended,
        };
        Ok((pulled, !over))
    }

    /// The runner is told to stop.
    pub fn stop(
        &mut self,
        data: &JobProvisioningData,
        job: JobId,
        now: Timestamp,
    ) -> job_terminating::Answer {
        let grace = self.between(0.5, 20.0);
        match self.reach(data, now) {
            Err(_) => job_terminating::Answer::Failed("unreachable".into()),
            Ok(machine) => {
                if let Some(runner) = machine
                    .tasks
                    .get_mut(&job)
                    .and_then(|task| task.runner.as_mut())
                {
                    runner.asked = true;
                    let end = after(now, grace);
                    runner.ends = Some(runner.ends.map_or(end, |at| at.min(end)));
                }
                job_terminating::Answer::Done
            }
        }
    }

    /// The shim forgets a task.
    pub fn remove(
        &mut self,
        data: &JobProvisioningData,
        job: JobId,
        now: Timestamp,
    ) -> job_terminating::Answer {
        match self.reach(data, now) {
            Err(_) => job_terminating::Answer::Failed("unreachable".into()),
            Ok(machine) => {
                machine.tasks.remove(&job);
                job_terminating::Answer::Done
            }
        }
    }

    /// Machines on which living jobs hold more blocks than there are: the truth on the machine, not in rows.
    pub fn overfull(&self, lives: impl Fn(JobId) -> bool) -> Vec<String> {
        let held = |m: &Machine| -> u32 {
            m.tasks
                .iter()
                .filter(|(job, _)| lives(**job))
                .map(|(_, t)| t.blocks)
                .sum()
        };
        let over = |m: &&Machine| held(m) > m.offer.total_blocks;
        self.machines
            .values()
            .filter(over)
            .map(|m| m.known.instance_id.clone())
            .collect()
    }
}
