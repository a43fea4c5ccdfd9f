use std::time::Duration;

use dstack_sim::{Faults, Options, Report, Sim};

fn simulate(instances: u32, minutes: u64, seed: u64, faults: Faults) -> Report {
    let options = Options {
        instances,
        time: Duration::from_secs(minutes * 60),
        seed,
        faults,
    };
    match Sim::new(options).run() {
        Ok(report) => report,
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn a_good_day_ends_every_run_well() {
    let report = simulate(100, 60, 1, Faults::NONE);
    let done = report.ends.get("all_jobs_done").copied().unwrap_or(0);
    let stopped = report.ends.get("stopped_by_user").copied().unwrap_or(0);
    assert!(done > 50, "{report:?}");
    // Runs with a time limit never end by themselves here.
    let limited = report.ends.get("job_failed").copied().unwrap_or(0);
    assert!(limited * 8 < report.runs, "{report:?}");
    assert_eq!(done + stopped + limited, report.runs, "{report:?}");
}

/// Twenty bad days of 500 jobs at a time; in four parts, so that they run side by side.
fn bad_days(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let report = simulate(500, 60, seed, Faults::MANY);
        assert!(
            report.runs > 500 && report.machines > 300 && report.refused > 0,
            "{report:?}"
        );
    }
}

#[test]
fn bad_days_break_no_rule_0_to_4() {
    bad_days(0..5);
}

#[test]
fn bad_days_break_no_rule_5_to_9() {
    bad_days(5..10);
}

#[test]
fn bad_days_break_no_rule_10_to_14() {
    bad_days(10..15);
}

#[test]
fn bad_days_break_no_rule_15_to_19() {
    bad_days(15..20);
}

#[test]
fn ten_thousand_machines_break_no_rule() {
    let report = simulate(10_000, 6, 7, Faults::MANY);
    assert!(report.peak > 5_000, "{report:?}");
}

#[test]
fn the_same_seed_gives_the_same_day() {
    let numbers = |r: &Report| (r.runs, r.machines, r.meter.steps, r.refused, r.ends.clone());
    let (a, b) = (
        simulate(50, 30, 3, Faults::MANY),
        simulate(50, 30, 3, Faults::MANY),
    );
    assert_eq!(numbers(&a), numbers(&b));
}
