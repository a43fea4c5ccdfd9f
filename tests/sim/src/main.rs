//! `cargo run -p dstack-sim -- --instances 10000 --hours 1 --seeds 7..8`

#![allow(
    clippy::print_stdout,
    reason = "a tool for developers that prints its findings"
)]

use std::time::Duration;

use anyhow::{Context, Result, bail};
use dstack_sim::{Faults, Options, Sim};

fn main() -> Result<()> {
    let mut options = Options {
        instances: 500,
        time: Duration::from_secs(3600),
        seed: 0,
        faults: Faults::MANY,
    };
    let mut seeds = 0..1;
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        if flag == "--no-faults" {
            options.faults = Faults::NONE;
            continue;
        }
        let value = args
            .next()
            .with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--instances" => {
                options.instances = value.parse().context("--instances takes a number")?
            }
            "--hours" => {
                let hours: f64 = value.parse().context("--hours takes a number")?;
                options.time = Duration::from_secs_f64(hours * 3600.0);
            }
            "--seeds" => {
                let (from, to) = value.split_once("..").context("--seeds takes A..B")?;
                seeds = from.parse()?..to.parse()?;
            }
            other => bail!(
                "unknown option {other}; there are --instances, --hours, --seeds and --no-faults"
            ),
        }
    }
    for seed in seeds {
        let report = Sim::new(Options { seed, ..options })
            .run()
            .map_err(|failure| anyhow::anyhow!("{failure}"))?;
        println!(
            "seed {seed}: {} runs, {} machines (at most {} at a time), {} steps, {:.1} µs of decisions a step, \
             {} refused, empty after {} s, ends {:?}",
            report.runs,
            report.machines,
            report.peak,
            report.meter.steps,
            report.meter.micros_per_step(),
            report.refused,
            report.seconds,
            report.ends
        );
    }
    Ok(())
}
