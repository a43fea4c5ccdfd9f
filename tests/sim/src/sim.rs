//! The event queue, the faults of replicas, and the checks after every event.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dstack_api::instances::InstanceStatus;
use dstack_backend_types::BackendType;
use dstack_engine::audit::{self, Broken};
use dstack_engine::changes::Changes;
use dstack_engine::ids::{FleetId, Ids, RunId};
use dstack_engine::view::BackendAbilities;
use dstack_engine::world::{Lease, Project, World};
use dstack_engine::{fleets, runs};
use jiff::Timestamp;

use crate::cloud::{Cloud, after};
use crate::flight::{self, Call, Meter, Next};
use crate::{Faults, Options, users};

/// How long a claimed row is held without a heartbeat.
const LEASE: Duration = Duration::from_secs(30);
/// How long a drained world may take to become empty.
const DRAIN: f64 = 3.0 * 3600.0;
/// How many lines of history a failure shows.
const HISTORY: usize = 50;
/// A row that is due for longer than this was forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

#[allow(clippy::large_enum_variant, reason = "events live for a moment")]
enum Event {
    Landed(Lease, Call),
    Write(Lease, Changes),
    Submit,
    Stop(RunId, bool),
    Cleanup,
    Minute,
}

/// What came out of a simulation.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The engine's cost.
    pub meter: Meter,
    /// Runs submitted.
    pub runs: u64,
    /// How they ended.
    pub ends: BTreeMap<String, u64>,
    /// Machines made.
    pub machines: u64,
    /// The greatest number of living machines.
    pub peak: usize,
    /// Changes that were refused: stale leases and failed guards.
    pub refused: u64,
    /// Simulated seconds until everything was gone.
    pub seconds: i64,
}

/// A rule was broken.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed that repeats it.
    pub seed: u64,
    /// When, in simulated seconds.
    pub at: i64,
    /// What.
    pub broken: Vec<Broken>,
    /// The last events.
    pub history: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} at {} s:", self.seed, self.at)?;
        for broken in self.broken.iter().take(10) {
            writeln!(f, "  broken {broken}")?;
        }
        self.history
            .iter()
            .try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl std::error::Error for Failure {}

/// One simulation.
pub struct Sim {
    /// All rows; public so that tests can break them.
    pub world: World,
    /// All providers.
    pub cloud: Cloud,
    options: Options,
    start: Timestamp,
    now: Timestamp,
    ids: Ids,
    queue: BTreeMap<(Timestamp, u64), Event>,
    sequence: u64,
    history: VecDeque<String>,
    report: Report,
    fleets: Vec<FleetId>,
    submitted_until: Timestamp,
}

fn abilities(name: &'static str, creates_instances: bool) -> BackendAbilities {
    BackendAbilities {
        name: BackendType::new(name),
        creates_instances,
        multinode: creates_instances,
        reservations: false,
        privileged: creates_instances,
        instance_mounts: creates_instances,
        provisioning_timeout: Duration::from_secs(600),
    }
}

impl Sim {
    /// A world with fleets, and users that will submit.
    pub fn new(options: Options) -> Self {
        let start = Timestamp::constant(1_767_225_600, 0);
        let mut ids = Ids::from_number(options.seed);
        let cloud = Cloud::new(Ids::from_number(ids.bits()), options.faults);
        let project = Project {
            name: "main".into(),
            deleted: false,
        };
        let mut world = World::default();
        world.projects.insert(users::PROJECT, project);
        world.backends = Arc::new(vec![abilities("vms", true), abilities("pods", false)]);
        let mut sim = Self {
            world,
            cloud,
            options,
            start,
            now: start,
            ids,
            queue: BTreeMap::new(),
            sequence: 0,
            history: VecDeque::new(),
            report: Report::default(),
            fleets: Vec::new(),
            submitted_until: after(start, options.time.as_secs_f64()),
        };
        for (name, configuration) in users::fleets(options.instances) {
            let id = users::create_fleet(&mut sim.world, &mut sim.ids, name, configuration, start);
            sim.fleets.push(id);
        }
        // The first wave comes over ten minutes, or a quarter of the time.
        let wave = (options.time.as_secs_f64() / 4.0).min(600.0);
        for _ in 0..options.instances {
            let at = after(start, sim.ids.fraction() * wave);
            sim.at(at, Event::Submit);
        }
        sim.at(after(start, 10.0), Event::Cleanup);
        sim.at(after(start, 60.0), Event::Minute);
        sim
    }

    fn at(&mut self, at: Timestamp, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    fn later(&mut self, seconds: f64, event: Event) {
        self.at(after(self.now, seconds), event);
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.ids.fraction() < probability
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.history.len() >= HISTORY {
            self.history.pop_front();
        }
        let at = self.now.duration_since(self.start).as_millis();
        let line = line();
        self.history
            .push_back(format!("{}.{:03} {line}", at / 1000, at % 1000));
    }

    fn fail(&self, broken: Vec<Broken>) -> Result<(), Box<Failure>> {
        if broken.is_empty() {
            return Ok(());
        }
        let mut history: Vec<String> = self.history.iter().cloned().collect();
        history.extend(self.world.events.iter().map(|(at, event)| {
            let about: Vec<&str> = event.targets.iter().map(|t| &*t.name).collect();
            format!(
                "event at {}: {} {about:?}",
                at.duration_since(self.start).as_secs(),
                event.message
            )
        }));
        let at = self.now.duration_since(self.start).as_secs();
        Err(Box::new(Failure {
            seed: self.options.seed,
            at,
            broken,
            history,
        }))
    }

    /// Runs until the time is over, then stops everything and runs until nothing is left.
    ///
    /// # Errors
    /// [`Failure`] at the first broken rule.
    pub fn run(mut self) -> Result<Report, Box<Failure>> {
        self.run_until(self.submitted_until)?;
        self.drain()?;
        Ok(self.finish())
    }

    /// Runs for some simulated time.
    ///
    /// # Errors
    /// [`Failure`] at the first broken rule.
    pub fn run_until(&mut self, until: Timestamp) -> Result<(), Box<Failure>> {
        loop {
            let due = self.world.next_due().map(|at| at.max(self.now));
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            match (due, event) {
                (Some(due), event) if due <= until && event.is_none_or(|event| due <= event) => {
                    self.now = due;
                    if let Some(lease) = self.world.claim(due, LEASE) {
                        self.step(lease);
                    }
                }
                (_, Some(event)) if event <= until => {
                    self.now = event;
                    if let Some((_, event)) = self.queue.pop_first() {
                        self.handle(event)?;
                    }
                }
                _ => {
                    self.now = until;
                    return Ok(());
                }
            }
        }
    }

    /// Simulated time since the start, as a timestamp of the world.
    pub fn time(&self, seconds: f64) -> Timestamp {
        after(self.start, seconds)
    }

    fn step(&mut self, lease: Lease) {
        let next = flight::begin(
            &self.world,
            &self.cloud,
            &lease,
            self.now,
            &mut self.ids,
            &mut self.report.meter,
        );
        self.go_on(lease, next);
    }

    fn go_on(&mut self, lease: Lease, next: Next) {
        match next {
            Next::Nothing => self.later(0.0, Event::Write(lease, Changes::nothing())),
            Next::Write(changes) => {
                let paused = self.chance(self.options.faults.replica_paused);
                let delay = if paused {
                    45.0
                } else {
                    0.001 + self.ids.fraction() * 0.01
                };
                self.later(delay, Event::Write(lease, changes));
            }
            Next::Order(before, call) => match self.world.checkpoint(&lease, before, self.now) {
                Ok(()) => self.send(lease, call),
                Err(refusal) => {
                    self.report.refused += 1;
                    self.note(|| format!("order of {:?} refused: {refusal:?}", lease.pipeline));
                    self.later(0.0, Event::Write(lease, Changes::later(Duration::ZERO)));
                }
            },
            Next::Ask(call) => self.send(lease, call),
        }
    }

    fn send(&mut self, lease: Lease, mut call: Call) {
        let took = flight::send(&mut self.cloud, &mut call, self.now, &mut self.ids);
        if self.chance(self.options.faults.replica_died) {
            self.note(|| format!("a replica died in a call of {:?}", lease.pipeline));
            return;
        }
        let paused = self.chance(self.options.faults.replica_paused);
        if !paused {
            // The heartbeat of a living replica.
            self.world.heartbeat(&lease, after(self.now, took + 20.0));
        }
        self.later(
            if paused { took + 90.0 } else { took },
            Event::Landed(lease, call),
        );
    }

    fn handle(&mut self, event: Event) -> Result<(), Box<Failure>> {
        match event {
            Event::Landed(lease, call) => {
                let next = flight::land(
                    &self.world,
                    &mut self.cloud,
                    call,
                    self.now,
                    &mut self.ids,
                    &mut self.report.meter,
                );
                self.go_on(lease, next);
            }
            Event::Write(lease, changes) => self.write(&lease, changes),
            Event::Submit => self.submit(),
            Event::Stop(run, abort) => {
                let changes = self
                    .world
                    .run(run)
                    .and_then(|run| runs::stop(run, abort, users::USER));
                if let Some(changes) = changes {
                    self.note(|| format!("a user stops run {run}"));
                    self.world.request(changes, self.now).ok();
                }
            }
            Event::Cleanup => {
                let now = self.now;
                let (due, kept) = self
                    .world
                    .cleanup
                    .drain(..)
                    .partition(|row| row.not_before <= now);
                self.world.cleanup = kept;
                let due: Vec<dstack_engine::changes::CleanupRow> = due;
                for row in due {
                    self.cloud.clean(&row.provider_ref);
                }
                self.later(10.0, Event::Cleanup);
            }
            Event::Minute => {
                self.check_all()?;
                self.later(60.0, Event::Minute);
            }
        }
        let touched = self.world.take_touched();
        self.fail(audit::touched(&self.world, &touched, self.now))
    }

    fn write(&mut self, lease: &Lease, changes: Changes) {
        let (pipeline, id) = (lease.pipeline, lease.id);
        let quiet = changes.events.is_empty();
        if !quiet {
            let said: Vec<String> = changes
                .events
                .iter()
                .map(|e| {
                    format!(
                        "{} [{}]",
                        e.message,
                        e.targets.first().map_or("", |t| &*t.name)
                    )
                })
                .collect();
            self.note(|| format!("{} {id}: {}", pipeline.name(), said.join("; ")));
        }
        if let Err(refusal) = self.world.apply(lease, changes, self.now) {
            self.report.refused += 1;
            self.note(|| format!("{} {id} refused: {refusal:?}", pipeline.name()));
        }
    }

    fn submit(&mut self) {
        if self.now >= self.submitted_until {
            return;
        }
        self.report.runs += 1;
        let name = format!("run-{}", self.report.runs);
        let configuration = users::configuration(&mut self.ids);
        let run = users::submit(
            &mut self.world,
            &mut self.ids,
            &name,
            configuration,
            self.now,
        );
        if self.chance(self.options.faults.stopped) {
            let at = self.ids.fraction() * 1200.0;
            let abort = self.ids.below(4) == 0;
            self.later(at, Event::Stop(run, abort));
        }
        // Another one takes its place about when it ends.
        let at = 60.0 + self.ids.fraction() * 1800.0;
        self.later(at, Event::Submit);
    }

    fn check_all(&mut self) -> Result<(), Box<Failure>> {
        let mut broken = audit::world(&self.world, self.now);
        broken.extend(audit::machines(&self.world, self.cloud.machines()));
        let holds = |job| self.world.job(job).is_some_and(|job| job.blocks > 0);
        broken.extend(self.cloud.overfull(holds).into_iter().map(|what| Broken {
            rule: "one job a block",
            what,
        }));
        let waits = self.world.oldest_wait(self.now);
        if waits > FORGOTTEN {
            broken.push(Broken {
                rule: "due rows",
                what: format!("one has been waiting for {waits:?}"),
            });
        }
        let living = self.world.instances().filter(|i| i.is_living()).count();
        self.report.peak = self.report.peak.max(living);
        self.fail(broken)
    }

    /// Stops all runs, deletes all fleets, and waits until nothing is left anywhere.
    ///
    /// # Errors
    /// [`Failure`] at the first broken rule, or when something is left.
    pub fn drain(&mut self) -> Result<(), Box<Failure>> {
        self.options.faults = Faults::NONE;
        self.cloud.faults = Faults::NONE;
        let end = after(self.now, DRAIN);
        let active: Vec<RunId> = self
            .world
            .runs()
            .filter(|run| !run.status.is_finished())
            .map(|run| run.id)
            .collect();
        for run in active {
            self.later(0.0, Event::Stop(run, false));
        }
        loop {
            let until = after(self.now, 60.0);
            self.run_until(until)?;
            self.delete_fleets();
            let left = self.left();
            if left.is_empty() {
                return Ok(());
            }
            if self.now >= end {
                return self.fail(left);
            }
        }
    }

    fn delete_fleets(&mut self) {
        for id in self.fleets.clone() {
            let view = self.world.fleet_view(id, self.now);
            let Some(view) = view.filter(|view| !view.fleet.deleted) else {
                continue;
            };
            if let Ok(changes) = fleets::delete(&view, None)
                && view.fleet.status == dstack_api::fleets::FleetStatus::Active
            {
                self.world.request(changes, self.now).ok();
            }
        }
    }

    fn left(&self) -> Vec<Broken> {
        let mut left = Vec::new();
        let mut say = |what: String| {
            left.push(Broken {
                rule: "drained",
                what,
            })
        };
        for run in self.world.runs().filter(|run| !run.status.is_finished()) {
            say(format!("{} is {}", run.name, run.status));
        }
        for job in self.world.jobs().filter(|job| !job.status.is_finished()) {
            say(format!("{} is {}", job.name, job.status));
        }
        for instance in self
            .world
            .instances()
            .filter(|i| i.status != InstanceStatus::Terminated)
        {
            say(format!("{} is {}", instance.name, instance.status));
        }
        for fleet in self.world.fleets().filter(|fleet| !fleet.deleted) {
            say(format!("fleet {} is {}", fleet.name, fleet.status));
        }
        for machine in self.cloud.machines() {
            say(format!("machine {} is still paid for", machine.instance_id));
        }
        for row in &self.world.cleanup {
            say(format!("cleanup of {} is not done", row.provider_ref));
        }
        left
    }

    /// The numbers of a simulation.
    pub fn finish(mut self) -> Report {
        for run in self.world.runs() {
            let reason = run
                .termination_reason
                .map_or_else(|| "none".to_owned(), |r| r.to_string());
            *self.report.ends.entry(reason).or_default() += 1;
        }
        self.report.machines = self.cloud.made();
        self.report.seconds = self.now.duration_since(self.start).as_secs();
        self.report
    }
}
