//! What jobs use of their machines, as the API shows it.

use dstack_api::metrics::{JobMetrics, JobMetricsQuery, Metric};
use dstack_engine::ids::RunId;
use dstack_engine::model::JobRow;
use dstack_store::job_metrics::{self, Point};
use dstack_store::{Store, jobs, runs};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::Access;

/// A point and when it was taken.
type Taken = (Timestamp, Point);

/// The series of a job, newest value first.
pub(crate) async fn of_job(
    store: &Store,
    access: &Access,
    run_name: String,
    query: JobMetricsQuery,
) -> Result<JobMetrics, ApiError> {
    let project = access.project.id;
    let limit = query.limit.min(i32::MAX.unsigned_abs() - 1);
    let found = store
        .read(move |tx| {
            let run = match query.run_id {
                Some(id) => runs::get(tx, RunId(id))?
                    .filter(|run| run.project_id == project && *run.name == *run_name),
                None => runs::by_name(tx, project, &run_name)?,
            };
            let Some(run) = run else { return Ok(None) };
            let job = jobs::of_run(tx, run.id)?
                .into_iter()
                .rfind(|job| (job.replica_num, job.job_num) == (query.replica_num, query.job_num));
            let Some(job) = job else { return Ok(None) };
            // CPU time is told as a sum, so a value needs two points.
            let points = job_metrics::list(tx, job.id, query.after, query.before, limit + 1)?;
            Ok(Some((job, points)))
        })
        .await?;
    let (job, points) =
        found.ok_or_else(|| ApiError::not_exists("Found no job with given parameters"))?;
    Ok(JobMetrics {
        metrics: series(&job, &points),
    })
}

fn series(job: &JobRow, points: &[Taken]) -> Vec<Metric> {
    if points.len() < 2 {
        return Vec::new();
    }
    let Some(newest) = points.get(..points.len() - 1) else {
        return Vec::new();
    };
    let timestamps: Vec<Timestamp> = newest.iter().map(|(at, _)| *at).collect();
    let metric = |name: &str, values: Vec<Value>| Metric {
        name: name.to_owned(),
        timestamps: timestamps.clone(),
        values,
    };
    let each = |name: &str, value: &dyn Fn(&Point) -> Value| {
        metric(name, newest.iter().map(|(_, point)| value(point)).collect())
    };
    let cpu = points
        .windows(2)
        .filter_map(|pair| match pair {
            [newer, older] => Some(json!(cpu_percent(older, newer))),
            _ => None,
        })
        .collect();
    let mut all = vec![
        metric("cpu_usage_percent", cpu),
        each("memory_usage_bytes", &|point| {
            json!(point.memory_usage_bytes)
        }),
        each("memory_working_set_bytes", &|point| {
            json!(point.memory_working_set_bytes)
        }),
    ];
    let machine = job.provisioning_data.as_deref();
    let resources = job
        .runtime_data
        .as_deref()
        .and_then(|data| data.offer.as_ref().map(|offer| &offer.instance.resources))
        .or_else(|| machine.map(|machine| &machine.instance_type.resources));
    if let Some(resources) = resources {
        all.push(each("cpus_detected_num", &|_| json!(resources.cpus)));
        all.push(each("memory_total_bytes", &|_| {
            json!(resources.memory_mib * 1024 * 1024)
        }));
    }
    all.extend(gpus(points, &each, resources));
    all
}

/// Makes a series of what is read from each point.
type Series<'a> = dyn Fn(&str, &dyn Fn(&Point) -> Value) -> Metric + 'a;

/// The series of GPUs; none if their number changed in between.
fn gpus(
    points: &[Taken],
    each: &Series<'_>,
    resources: Option<&dstack_backend_types::Resources>,
) -> Vec<Metric> {
    let count = |point: &Point| point.gpus_util_percent.len();
    let number = points.first().map_or(0, |(_, point)| count(point));
    if points.iter().any(|(_, point)| count(point) != number) {
        return Vec::new();
    }
    let mut all = vec![each("gpus_detected_num", &|_| json!(number))];
    if number == 0 {
        return all;
    }
    if let Some(gpu) = resources.and_then(|resources| resources.gpus.first()) {
        let bytes = gpu.memory_mib * 1024 * 1024;
        all.push(each("gpu_memory_total_bytes", &|_| json!(bytes)));
    }
    for gpu in 0..number {
        all.push(each(
            &format!("gpu_memory_usage_bytes_gpu{gpu}"),
            &|point| json!(point.gpus_memory_usage_bytes.get(gpu)),
        ));
    }
    for gpu in 0..number {
        all.push(each(&format!("gpu_util_percent_gpu{gpu}"), &|point| {
            json!(point.gpus_util_percent.get(gpu))
        }));
    }
    all
}

/// How busy the processors were between two points, in whole percent of one of them.
fn cpu_percent(older: &Taken, newer: &Taken) -> u64 {
    let micros = newer.0.as_microsecond() - older.0.as_microsecond();
    let Some(micros) = u64::try_from(micros).ok().filter(|micros| *micros > 0) else {
        return 0;
    };
    let used = newer
        .1
        .cpu_usage_micro
        .saturating_sub(older.1.cpu_usage_micro);
    used.saturating_mul(100).saturating_add(micros / 2) / micros
}

#[cfg(test)]
mod tests {
    use super::{Point, Taken, cpu_percent};
    use jiff::Timestamp;

    fn at(second: i64, cpu: u64) -> Taken {
        let point = Point {
            cpu_usage_micro: cpu,
            ..Point::default()
        };
        (Timestamp::from_second(second).unwrap(), point)
    }

    #[test]
    fn cpu_is_told_in_percent_of_one_processor() {
        assert_eq!(cpu_percent(&at(0, 0), &at(10, 15_000_000)), 150);
        assert_eq!(cpu_percent(&at(0, 0), &at(10, 149_999)), 1);
        assert_eq!(
            cpu_percent(&at(0, 9), &at(10, 3)),
            0,
            "a counter that began anew"
        );
        assert_eq!(cpu_percent(&at(5, 0), &at(5, 3)), 0);
    }
}
