//! Machines, runs and jobs for Prometheus, under the names of the compatible server.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dstack_backend_types::JobProvisioningData;
use dstack_store::job_metrics::Point;
use dstack_store::measures::{JobMeasure, MachineMeasure, RunMeasure};
use jiff::{SignedDuration, Timestamp};

use super::text::{Family, Kind, Labels, Text};

/// Upper bounds of the classes of `dstack_submit_to_provision_duration_seconds`, in seconds.
const BOUNDS: [u32; 17] = [
    15, 30, 45, 60, 90, 120, 180, 240, 300, 360, 420, 480, 540, 600, 900, 1200, 1800,
];
/// An exporter's text counts for so long.
const EXPORTER_LIFE: SignedDuration = SignedDuration::from_secs(60);

/// What happened since the server started.
#[derive(Debug, Default)]
pub(crate) struct Happened(Mutex<BTreeMap<(String, String), Counts>>);

#[derive(Debug, Default, Clone)]
struct Counts {
    /// Runs that began to wait.
    pending: u64,
    /// Provisioned runs below each bound.
    below: [u64; BOUNDS.len()],
    provisioned: u64,
    seconds: f64,
}

impl Happened {
    fn change(&self, project: &str, run_type: &str, change: impl FnOnce(&mut Counts)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(
            all.entry((project.to_owned(), run_type.to_owned()))
                .or_default(),
        );
    }

    /// A run began to wait for its time or for another try.
    pub(crate) fn pending(&self, project: &str, run_type: &str) {
        self.change(project, run_type, |counts| counts.pending += 1);
    }

    /// A run got its first machine so long after it was submitted.
    pub(crate) fn provisioned(&self, project: &str, run_type: &str, after: SignedDuration) {
        let seconds = after.as_secs_f64().max(0.0);
        self.change(project, run_type, |counts| {
            counts.provisioned += 1;
            counts.seconds += seconds;
            for (bound, count) in BOUNDS.iter().zip(&mut counts.below) {
                if seconds <= f64::from(*bound) {
                    *count += 1;
                }
            }
        });
    }
}

/// Everything that one scrape shows.
pub(crate) struct Snapshot {
    pub(crate) now: Timestamp,
    pub(crate) machines: Vec<MachineMeasure>,
    pub(crate) runs: Vec<RunMeasure>,
    pub(crate) jobs: Vec<(JobMeasure, Option<Point>, Option<String>)>,
}

impl Snapshot {
    /// Reads it.
    pub(crate) fn read(
        tx: &mut dyn dstack_store::Tx,
        now: Timestamp,
    ) -> Result<Self, dstack_store::DbError> {
        use dstack_store::{job_metrics, measures};
        let since = now.checked_sub(EXPORTER_LIFE).unwrap_or(now);
        let mut jobs = Vec::new();
        for job in measures::jobs(tx)? {
            let point = job_metrics::last(tx, job.id)?.map(|(_, point)| point);
            let exporter = job_metrics::exporter(tx, job.id, since)?;
            jobs.push((job, point, exporter));
        }
        Ok(Self {
            now,
            machines: measures::machines(tx)?,
            runs: measures::runs(tx)?,
            jobs,
        })
    }

    /// The text of a scrape.
    pub(crate) fn text(&self, happened: &Happened) -> String {
        let mut text = Text::default();
        self.machines(&mut text);
        self.runs(&mut text);
        self.jobs(&mut text);
        for (job, _, exporter) in &self.jobs {
            if let Some(exporter) = exporter {
                text.append_labelled(exporter, &job_labels(job));
            }
        }
        since_start(&mut text, happened);
        text.finish()
    }

    fn seconds_since(&self, at: Timestamp) -> f64 {
        self.now.duration_since(at).as_secs_f64().max(0.0)
    }

    fn machines(&self, text: &mut Text) {
        let mut duration = Family::new(
            "dstack_instance_duration_seconds_total",
            "How long a machine has existed, in seconds",
            Kind::Counter,
        );
        let mut price = Family::new(
            "dstack_instance_price_dollars_per_hour",
            "What a machine costs, in US dollars per hour",
            Kind::Gauge,
        );
        let mut gpus = Family::new(
            "dstack_instance_gpu_count",
            "GPUs of a machine",
            Kind::Gauge,
        );
        for machine in &self.machines {
            let labels = machine_labels(machine);
            duration.add(&labels, self.seconds_since(machine.created_at));
            if let Some(data) = &machine.data {
                price.add(&labels, data.price);
                gpus.add(&labels, count(data.instance_type.resources.gpus.len()));
            }
        }
        text.extend([duration, price, gpus]);
    }

    fn runs(&self, text: &mut Text) {
        let mut by_user: BTreeMap<(&str, &str), [u64; 4]> = BTreeMap::new();
        for runs in &self.runs {
            let counts = by_user.entry((&runs.project, &runs.user)).or_default();
            let [all, terminated, failed, done] = counts;
            *all += runs.count;
            match runs.status.as_str() {
                "terminated" => *terminated += runs.count,
                "failed" => *failed += runs.count,
                "done" => *done += runs.count,
                _ => {}
            }
        }
        for (index, (name, help)) in [
            ("dstack_run_count_total", "All runs"),
            ("dstack_run_count_terminated_total", "Runs that were ended"),
            ("dstack_run_count_failed_total", "Runs that failed"),
            (
                "dstack_run_count_done_total",
                "Runs that did what they should",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let mut family = Family::new(name, help, Kind::Counter);
            for ((project, user), counts) in &by_user {
                let labels = vec![
                    ("dstack_project_name", (*project).to_owned()),
                    ("dstack_user_name", (*user).to_owned()),
                ];
                let number = counts.get(index).copied().unwrap_or_default();
                family.add(&labels, float(number));
            }
            text.extend([family]);
        }
    }

    fn jobs(&self, text: &mut Text) {
        let family = |name, help, kind| Family::new(name, help, kind);
        let mut duration = family(
            "dstack_job_duration_seconds_total",
            "How long ago a job was submitted, in seconds",
            Kind::Counter,
        );
        let mut price = family(
            "dstack_job_price_dollars_per_hour",
            "What a job's machine costs, in US dollars per hour",
            Kind::Gauge,
        );
        let mut gpus = family("dstack_job_gpu_count", "GPUs of a job", Kind::Gauge);
        let mut cpus = family("dstack_job_cpu_count", "Processors of a job", Kind::Gauge);
        let mut cpu_time = family(
            "dstack_job_cpu_time_seconds_total",
            "CPU time that a job has used, in seconds",
            Kind::Counter,
        );
        let mut memory = family(
            "dstack_job_memory_total_bytes",
            "Memory that a job may use, in bytes",
            Kind::Gauge,
        );
        let mut used = family(
            "dstack_job_memory_usage_bytes",
            "Memory that a job uses with what could be dropped, in bytes",
            Kind::Gauge,
        );
        let mut working = family(
            "dstack_job_memory_working_set_bytes",
            "Memory that a job uses without what could be dropped, in bytes",
            Kind::Gauge,
        );
        let mut ratio = family(
            "dstack_job_gpu_usage_ratio",
            "How busy a GPU of a job is, from 0 to 1",
            Kind::Gauge,
        );
        let mut gpu_memory = family(
            "dstack_job_gpu_memory_total_bytes",
            "Memory of a GPU of a job, in bytes",
            Kind::Gauge,
        );
        let mut gpu_used = family(
            "dstack_job_gpu_memory_usage_bytes",
            "Memory of a GPU that a job uses, in bytes",
            Kind::Gauge,
        );
        for (job, point, _) in &self.jobs {
            let labels = job_labels(job);
            let resources = &job.data.instance_type.resources;
            duration.add(&labels, self.seconds_since(job.submitted_at));
            price.add(&labels, job.data.price);
            gpus.add(&labels, count(resources.gpus.len()));
            cpus.add(&labels, f64::from(resources.cpus));
            memory.add(&labels, bytes_of_mib(resources.memory_mib));
            let Some(point) = point else { continue };
            cpu_time.add(&labels, float(point.cpu_usage_micro) / 1e6);
            used.add(&labels, float(point.memory_usage_bytes));
            working.add(&labels, float(point.memory_working_set_bytes));
            let each = point
                .gpus_util_percent
                .iter()
                .zip(&point.gpus_memory_usage_bytes);
            for (number, (percent, bytes)) in each.enumerate() {
                let mut labels = labels.clone();
                labels.push(("dstack_gpu_num", number.to_string()));
                ratio.add(&labels, float(*percent) / 100.0);
                if let Some(gpu) = resources.gpus.get(number).or(resources.gpus.first()) {
                    gpu_memory.add(&labels, bytes_of_mib(gpu.memory_mib));
                }
                gpu_used.add(&labels, float(*bytes));
            }
        }
        text.extend([
            duration, price, gpus, cpus, cpu_time, memory, used, working, ratio, gpu_memory,
            gpu_used,
        ]);
    }
}

fn since_start(text: &mut Text, happened: &Happened) {
    let all = happened
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let mut times = Family::new(
        "dstack_submit_to_provision_duration_seconds",
        "How long runs waited for their first machine, in seconds",
        Kind::Histogram,
    );
    let mut pending = Family::new(
        "dstack_pending_runs_total",
        "Runs that began to wait",
        Kind::Counter,
    );
    for ((project, run_type), counts) in &all {
        let labels = vec![
            ("project_name", project.clone()),
            ("run_type", run_type.clone()),
        ];
        if counts.provisioned > 0 {
            for (bound, below) in BOUNDS.iter().zip(counts.below) {
                let mut labels = labels.clone();
                labels.push(("le", format!("{bound}.0")));
                times.add_as("_bucket", &labels, float(below));
            }
            let mut of_all = labels.clone();
            of_all.push(("le", "+Inf".to_owned()));
            times.add_as("_bucket", &of_all, float(counts.provisioned));
            times.add_as("_count", &labels, float(counts.provisioned));
            times.add_as("_sum", &labels, counts.seconds);
        }
        if counts.pending > 0 {
            pending.add(&labels, float(counts.pending));
        }
    }
    text.extend([times, pending]);
}

fn machine_labels(machine: &MachineMeasure) -> Labels {
    let (kind, backend, gpu) = machine.data.as_ref().map(named).unwrap_or_default();
    vec![
        ("dstack_project_name", machine.project.clone()),
        ("dstack_fleet_name", machine.fleet.clone()),
        ("dstack_fleet_id", machine.fleet_id.to_string()),
        ("dstack_instance_name", machine.name.clone()),
        ("dstack_instance_id", machine.id.to_string()),
        ("dstack_instance_type", kind),
        ("dstack_backend", backend),
        ("dstack_gpu", gpu),
    ]
}

fn job_labels(job: &JobMeasure) -> Labels {
    let (_, backend, gpu) = named(&job.data);
    vec![
        ("dstack_project_name", job.project.clone()),
        ("dstack_user_name", job.user.clone()),
        ("dstack_run_name", job.run.clone()),
        ("dstack_run_id", job.run_id.to_string()),
        ("dstack_job_name", job.name.clone()),
        ("dstack_job_id", job.id.to_string()),
        ("dstack_job_num", job.job_num.to_string()),
        ("dstack_replica_num", job.replica_num.to_string()),
        ("dstack_run_type", job.run_type.clone()),
        ("dstack_backend", backend),
        ("dstack_gpu", gpu),
    ]
}

/// Machine type, backend and GPU of a machine.
fn named(data: &JobProvisioningData) -> (String, String, String) {
    let gpu = data.instance_type.resources.gpus.first();
    (
        data.instance_type.name.clone(),
        data.backend.as_str().to_owned(),
        gpu.map(|gpu| gpu.name.clone()).unwrap_or_default(),
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and bytes far below 2^53"
)]
const fn float(number: u64) -> f64 {
    number as f64
}

fn count(number: usize) -> f64 {
    float(u64::try_from(number).unwrap_or(u64::MAX))
}

fn bytes_of_mib(mib: u64) -> f64 {
    float(mib.saturating_mul(1024 * 1024))
}

#[cfg(test)]
mod tests {
    use super::{Happened, Snapshot};
    use dstack_store::measures::RunMeasure;
    use jiff::{SignedDuration, Timestamp};

    #[test]
    fn runs_are_counted_by_user_and_histograms_add_up() {
        let of = |status: &str, count| RunMeasure {
            project: "main".to_owned(),
            user: "a\"b".to_owned(),
            status: status.to_owned(),
            count,
        };
        let snapshot = Snapshot {
            now: Timestamp::UNIX_EPOCH,
            machines: Vec::new(),
            runs: vec![of("done", 2), of("running", 1)],
            jobs: Vec::new(),
        };
        let happened = Happened::default();
        happened.pending("main", "task");
        happened.provisioned("main", "task", SignedDuration::from_secs(20));
        happened.provisioned("main", "task", SignedDuration::from_secs(2000));
        let text = snapshot.text(&happened);
        for line in [
            "dstack_run_count_total{dstack_project_name=\"main\",dstack_user_name=\"a\\\"b\"} 3.0",
            "dstack_run_count_done_total{dstack_project_name=\"main\",dstack_user_name=\"a\\\"b\"} 2.0",
            "dstack_pending_runs_total{project_name=\"main\",run_type=\"task\"} 1.0",
            "dstack_submit_to_provision_duration_seconds_bucket{project_name=\"main\",run_type=\"task\",le=\"15.0\"} 0.0",
            "dstack_submit_to_provision_duration_seconds_bucket{project_name=\"main\",run_type=\"task\",le=\"30.0\"} 1.0",
            "dstack_submit_to_provision_duration_seconds_bucket{project_name=\"main\",run_type=\"task\",le=\"+Inf\"} 2.0",
            "dstack_submit_to_provision_duration_seconds_sum{project_name=\"main\",run_type=\"task\"} 2020.0",
        ] {
            assert!(
                text.lines().any(|one| one == line),
                "{line} is missing:\n{text}"
            );
        }
        assert!(
            !text.contains("dstack_job_gpu_count"),
            "families without samples are left out"
        );
    }
}
