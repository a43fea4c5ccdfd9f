//! Configurations: from their text to what a plan uses of them; files that are meant to hurt.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use dstack_api::config::{Configuration, Mode};
use dstack_api::plan::{PlanLimits, effective_form, prepare, preview_jobs};
use dstack_api::yaml;
use dstack_test_support::hostile;

use crate::measure::{Row, median};

/// Milliseconds that `f` takes, the middle of some tries.
fn milliseconds(mut f: impl FnMut()) -> f64 {
    let tries = (0..5).map(|_| {
        let began = Instant::now();
        f();
        began.elapsed().as_secs_f64() * 1000.0
    });
    median(tries.collect())
}

fn row(what: &'static str, ours: f64, target: f64) -> Row {
    Row {
        what,
        unit: "ms",
        ours,
        target,
        reference: None,
    }
}

/// Reads a text and plans it; true if it may be applied.
fn plan(text: &str) -> bool {
    let Ok(parsed) = yaml::parse::<Configuration>("file", text, Mode::Strict) else {
        return false;
    };
    let mut configuration = parsed.value;
    let known = |name: &str| Some(format!("<{name}>"));
    if prepare(&mut configuration, &[], known).is_err() {
        return false;
    }
    match &configuration {
        Configuration::Run(run) => preview_jobs(run, &PlanLimits::default()).is_ok(),
        _ => effective_form(&configuration).is_ok(),
    }
}

/// The folder of configurations: the shared one with everybody's files where it is, else this repository's.
#[expect(
    clippy::disallowed_methods,
    reason = "the folder of a developer's machine is set from outside"
)]
fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var("DSTACK_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let shared = root.join(shared).join("spec/config-corpus");
    if shared.is_dir() {
        shared
    } else {
        root.join("tests/contract/config-corpus")
    }
}

/// Every file of the corpus, and a long one.
pub(crate) fn files() -> Result<Vec<Row>> {
    let folder = folder();
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let (mut slowest, mut sum, mut count) = (0.0_f64, 0.0, 0);
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|ext| ext != "yml") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let took = milliseconds(|| {
            plan(&text);
        });
        slowest = slowest.max(took);
        sum += took;
        count += 1;
    }
    ensure!(
        count > 400,
        "only {count} configurations in {}",
        folder.display()
    );
    let long = long();
    ensure!(plan(&long), "the generated configuration is refused");
    let took = milliseconds(|| {
        plan(&long);
    });
    Ok(vec![
        row("configuration to plan form, slowest file", slowest, 1.0),
        row("configurations of the corpus, all", sum, 2000.0),
        row("generated configuration of 50 kB", took, 10.0),
    ])
}

/// A service of 50 kB with a bit of everything.
fn long() -> String {
    let mut text = "type: service\nname: long\nport: 80\nimage: i\nenv:\n".to_owned();
    let mut part = 0;
    while text.len() < 5_000 {
        part += 1;
        let _infallible = writeln!(text, "  - VARIABLE_{part}=value number {part}");
    }
    text.push_str("groups:\n");
    while text.len() < 50_000 {
        part += 1;
        let _infallible = write!(
            text,
            "  - name: group-{part}\n    replicas: 1..4\n    scaling: {{metric: rps, target: 10}}\n    commands:\n      - |\n        \
             # Starts the server of this group and waits until it answers, then tells the router where it is.\n          \
             python serve.py --port 80 --tensor-parallel 8 --max-model-len 131072 --trust-remote-code \\\n          \
             --number {part} --router ${{{{ groups[0].replicas[0].IP_ADDRESS }}}} --log-level info --metrics\n    \
             resources:\n      gpu: H100,A100:80GB..:{part}\n      memory: 64GB..\n"
        );
    }
    text
}

/// The slowest of the hostile files.
pub(crate) fn hostile() -> Result<Vec<Row>> {
    let mut slowest = ("", 0.0);
    for (name, make) in hostile::CASES {
        let bytes = make();
        let took = milliseconds(|| {
            if let Err(errors) = hostile::read(&bytes) {
                errors.render();
            }
        });
        if took > slowest.1 {
            slowest = (name, took);
        }
    }
    println!("slowest hostile file: {}", slowest.0);
    Ok(vec![row(
        "hostile configuration, slowest",
        slowest.1,
        100.0,
    )])
}
