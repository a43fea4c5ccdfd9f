//! What the server tells Prometheus.
//!
//! Numbers are taken when they are asked for: a collector reads what its part of the server counts anyway.

mod pipelines;
mod text;
pub(crate) mod work;

use std::fmt;

use dstack_plugins::{
    DURATION_BOUNDS_S, Isolation, PluginState, PluginStats, PluginStatus, Plugins,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::pipelines::Stats;
use crate::routes::panics::Panics;

/// All metrics of the server.
pub(crate) struct Metrics(Registry);

impl Metrics {
    /// With the numbers of the API, the plugins and the pipelines.
    pub(crate) fn new(plugins: &Plugins, stats: Stats, panics: Panics) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(OfRequests(panics)));
        registry.register_collector(Box::new(pipelines::OfPipelines(stats)));
        registry.register_collector(Box::new(OfPlugins(plugins.clone())));
        Self(registry)
    }

    /// The text that a scrape gets.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0)?;
        Ok(text)
    }
}

#[derive(Debug)]
struct OfRequests(Panics);

impl Collector for OfRequests {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metric = encoder.encode_descriptor(
            "dstack_http_panics",
            "Requests that ended by a fault of the program",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(self.0.count()).encode(metric)
    }
}

#[derive(Debug)]
struct OfPlugins(Plugins);

type Labels = Vec<(&'static str, String)>;

/// A family of counters or gauges with all its numbers.
fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    kind: MetricType,
    numbers: impl IntoIterator<Item = (Labels, M)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, metric) in numbers {
        metric.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn of_backend(name: &str) -> Labels {
    vec![("backend", name.to_owned())]
}

fn of_method(name: &str, method: &str) -> Labels {
    let mut labels = of_backend(name);
    labels.push(("method", method.to_owned()));
    labels
}

/// A plugin with its counters.
type Counted = (PluginStatus, PluginStats);
type Count = fn(&PluginStats) -> u64;
type Load = fn(&PluginStats) -> usize;

const COUNTS: [(&str, &str, Count); 3] = [
    (
        "dstack_backend_respawns",
        "Processes of a backend that took the place of one that ended",
        |stats| stats.respawns,
    ),
    (
        "dstack_backend_deaths",
        "Processes of a backend that ended without being told to",
        |stats| stats.deaths,
    ),
    (
        "dstack_backend_breaker_opened",
        "How often calls of a backend began to be refused, since it failed again and again",
        |stats| stats.breaker_opened,
    ),
];

const LOADS: [(&str, &str, Load); 4] = [
    (
        "dstack_backend_breaker_open",
        "1 while calls of a backend are refused, since it failed again and again",
        |stats| usize::from(stats.is_breaker_open),
    ),
    (
        "dstack_backend_calls_running",
        "Calls of a backend that run",
        |stats| stats.running,
    ),
    (
        "dstack_backend_calls_waiting",
        "Calls of a backend that wait for their turn",
        |stats| stats.waiting,
    ),
    (
        "dstack_backend_lost_threads",
        "Threads in a backend that never came back",
        |stats| stats.lost_threads,
    ),
];

fn calls(encoder: &mut DescriptorEncoder<'_>, all: &[Counted]) -> fmt::Result {
    let methods = || {
        all.iter().flat_map(|(status, stats)| {
            let methods = stats.methods.iter();
            methods.map(|(method, of)| (of_method(&status.name, method), of))
        })
    };
    let ended = methods().map(|(labels, of)| (labels, ConstCounter::new(of.calls)));
    family(
        encoder,
        ("dstack_backend_calls", "Calls of a backend that have ended"),
        MetricType::Counter,
        ended,
    )?;
    let failed = methods().flat_map(|(labels, of)| {
        of.errors.iter().map(move |(kind, count)| {
            let mut labels = labels.clone();
            labels.push(("kind", (*kind).to_owned()));
            (labels, ConstCounter::new(*count))
        })
    });
    family(
        encoder,
        (
            "dstack_backend_call_errors",
            "Calls of a backend that ended with an error, by its kind",
        ),
        MetricType::Counter,
        failed,
    )?;
    let mut durations = encoder.encode_descriptor(
        "dstack_backend_call_duration_seconds",
        "How long calls of a backend took",
        None,
        MetricType::Histogram,
    )?;
    for (labels, of) in methods() {
        let bounds = DURATION_BOUNDS_S.iter().copied().chain([f64::MAX]);
        let classes: Vec<(f64, u64)> = bounds.zip(of.durations).collect();
        durations
            .encode_family(&labels)?
            .encode_histogram::<[(&str, &str); 0]>(of.seconds, of.calls, &classes, None)?;
    }
    Ok(())
}

impl Collector for OfPlugins {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counted = |status: PluginStatus| status.stats.clone().map(|stats| (status, stats));
        let all: Vec<Counted> = self.0.list().into_iter().filter_map(counted).collect();
        calls(&mut encoder, &all)?;
        for (name, help, count) in COUNTS {
            let numbers = all
                .iter()
                .map(|(status, stats)| (of_backend(&status.name), ConstCounter::new(count(stats))));
            family(&mut encoder, (name, help), MetricType::Counter, numbers)?;
        }
        for (name, help, load) in LOADS {
            let numbers = all.iter().map(|(status, stats)| {
                let load = i64::try_from(load(stats)).unwrap_or(i64::MAX);
                (of_backend(&status.name), ConstGauge::new(load))
            });
            family(&mut encoder, (name, help), MetricType::Gauge, numbers)?;
        }
        let usable = all.iter().map(|(status, _)| {
            let mut labels = of_backend(&status.name);
            labels.push(("version", status.version.clone().unwrap_or_default()));
            labels.push(("isolation", isolation(status.isolation).to_owned()));
            let is_good = matches!(status.state, PluginState::Available | PluginState::Loaded);
            (labels, ConstGauge::new(i64::from(is_good)))
        });
        family(
            &mut encoder,
            (
                "dstack_backend_usable",
                "1 if a backend can be called, 0 if it failed, is refused or switched off",
            ),
            MetricType::Gauge,
            usable,
        )
    }
}

fn isolation(isolation: Option<Isolation>) -> &'static str {
    match isolation {
        Some(Isolation::InProcess) => "in_process",
        Some(Isolation::Process) => "process",
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dstack_plugins::PluginStats;

    use super::{COUNTS, LOADS};

    #[test]
    fn each_number_has_its_name_which_operators_find_in_the_guide() {
        let stats = PluginStats {
            respawns: 1,
            deaths: 2,
            breaker_opened: 3,
            is_breaker_open: true,
            running: 4,
            waiting: 5,
            lost_threads: 6,
            ..PluginStats::default()
        };
        let counts = COUNTS.map(|(name, _, count)| (format!("{name}_total"), count(&stats)));
        let loads = LOADS.map(|(name, _, load)| (name.to_owned(), load(&stats) as u64));
        let shown: BTreeMap<String, u64> = counts.into_iter().chain(loads).collect();
        let wanted = [
            ("dstack_backend_respawns_total", 1),
            ("dstack_backend_deaths_total", 2),
            ("dstack_backend_breaker_opened_total", 3),
            ("dstack_backend_breaker_open", 1),
            ("dstack_backend_calls_running", 4),
            ("dstack_backend_calls_waiting", 5),
            ("dstack_backend_lost_threads", 6),
        ];
        let wanted = wanted.map(|(name, number)| (name.to_owned(), number));
        assert_eq!(shown, wanted.into());
        let guide = include_str!("../../docs/plugins.md");
        for name in shown.keys() {
            assert!(guide.contains(&format!("`{name}`")), "{name}");
        }
    }
}
