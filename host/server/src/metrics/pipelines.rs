//! The numbers of the pipelines: what waits, what runs, how long steps take.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Labels, family};
use crate::pipelines::{BOUNDS_S, Counted, Stats};

#[derive(Debug)]
pub(super) struct OfPipelines(pub(super) Stats);

type Load = fn(&Counted) -> f64;

const LOADS: [(&str, &str, Load); 3] = [
    (
        "dstack_pipeline_queue",
        "Rows of a pipeline that are due and that no server works on",
        |it| real(it.waiting),
    ),
    (
        "dstack_pipeline_lag_seconds",
        "How long the oldest due row of a pipeline has been waiting",
        |it| it.lag.as_secs_f64(),
    ),
    (
        "dstack_pipeline_running",
        "Steps of a pipeline that run on this server",
        |it| real(it.running),
    ),
];

#[expect(
    clippy::cast_precision_loss,
    reason = "a count of rows is far below 2^53"
)]
fn real(count: u64) -> f64 {
    count as f64
}

fn of_pipeline(counted: &Counted) -> Labels {
    vec![("pipeline", counted.pipeline.name().to_owned())]
}

impl Collector for OfPipelines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.counted();
        for (name, help, load) in LOADS {
            let numbers = all
                .iter()
                .map(|it| (of_pipeline(it), ConstGauge::new(load(it))));
            family(&mut encoder, (name, help), MetricType::Gauge, numbers)?;
        }
        let ended = all.iter().flat_map(|it| {
            [("done", it.done), ("failed", it.failed)].map(|(outcome, count)| {
                let mut labels = of_pipeline(it);
                labels.push(("outcome", outcome.to_owned()));
                (labels, ConstCounter::new(count))
            })
        });
        family(
            &mut encoder,
            (
                "dstack_pipeline_steps",
                "Steps of a pipeline that ended on this server",
            ),
            MetricType::Counter,
            ended,
        )?;
        let mut times = encoder.encode_descriptor(
            "dstack_pipeline_step_duration_seconds",
            "How long steps of a pipeline took on this server",
            None,
            MetricType::Histogram,
        )?;
        for it in &all {
            let bounds = BOUNDS_S.iter().copied().chain([f64::MAX]);
            let classes: Vec<(f64, u64)> = bounds.zip(it.classes).collect();
            let count = it.done + it.failed;
            times
                .encode_family(&of_pipeline(it))?
                .encode_histogram::<[(&str, &str); 0]>(it.seconds, count, &classes, None)?;
        }
        Ok(())
    }
}
