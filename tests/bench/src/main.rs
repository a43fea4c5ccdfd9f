//! Load and latency of the real binaries, printed as ratios.
//!
//! `cargo xtask bench [NAME…]` builds for release and runs this. Each row has what was measured, the target, and the
//! ratio to the reference's figure. Reference figures were taken with its release 0.22.5 on a machine of the same size;
//! read ratios, not milliseconds. Ships nowhere.
#![expect(clippy::print_stdout, reason = "a command-line tool for developers")]

mod agents;
mod catalog;
mod configurations;
mod idle;
mod logs;
mod measure;
mod plugins;
mod tasks;

use anyhow::{Result, bail};
use measure::Row;

type Measure = fn() -> Result<Vec<Row>>;

/// Every measure by name.
const ALL: &[(&str, Measure)] = &[
    ("configurations", configurations::files),
    ("hostile", configurations::hostile),
    ("agent-sizes", agents::sizes),
    ("agent-start", agents::start),
    ("agent-memory", agents::memory),
    ("agent-logs", logs::all),
    ("agent-latency", logs::latency),
    ("version", idle::version),
    ("start", idle::start),
    ("idle", idle::idle),
    ("task", tasks::one),
    ("tasks", tasks::many),
    ("plugins", plugins::load),
    ("calls", plugins::calls),
    ("offers", plugins::offers),
    ("respawn", plugins::respawn),
    ("catalog", catalog::load_and_query),
];

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let [word, folder] = wanted.as_slice()
        && word == catalog::CHILD
    {
        return catalog::child(folder.as_ref());
    }
    if let Some(unknown) = wanted
        .iter()
        .find(|name| !ALL.iter().any(|(known, _)| known == name))
    {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        bail!(
            "no measure is called {unknown}; there are {}",
            known.join(", ")
        );
    }
    println!(
        "{:<44} {:>12} {:>12} {:>12} {:>8}",
        "measure", "ours", "target", "reference", "ratio"
    );
    let mut missed = 0;
    for (name, measure) in ALL {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        for row in measure()? {
            println!("{row}");
            missed += usize::from(!row.is_met());
        }
    }
    println!(
        "{}",
        if missed == 0 {
            "every target is met".to_owned()
        } else {
            format!("{missed} target(s) missed")
        }
    );
    Ok(())
}
