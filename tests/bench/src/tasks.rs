//! Trivial tasks on the local backend, as processes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dstack_e2e::{Runtime, server, task};

use crate::measure::{Row, median};

const PATIENCE: Duration = Duration::from_secs(60);

/// One task on an idle server: submit to `done`, without a machine at first and with an idle one later.
pub(crate) fn one() -> Result<Vec<Row>> {
    let (mut new, mut reused) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let server = server(Runtime::Process)?;
        for number in 0..3 {
            let name = format!("t{number}");
            let path = server.file("t.dstack.yml", &task(&name, Runtime::Process, &["true"]))?;
            let began = Instant::now();
            server.ok(&["apply", "-f", &path, "-y", "-d"])?;
            let run = server.finished(&name, PATIENCE)?;
            ensure!(run["status"] == "done", "{run}");
            let took = began.elapsed().as_secs_f64();
            if number == 0 {
                new.push(took)
            } else {
                reused.push(took)
            }
        }
    }
    let row = |what, ours| Row {
        what,
        unit: "s",
        ours: median(ours),
        target: 2.0,
        reference: Some(24.0),
    };
    Ok(vec![
        row("one task, submit to done, new machine", new),
        row("one task, submit to done, idle machine", reused),
    ])
}

/// A row of tasks one after another.
pub(crate) fn many() -> Result<Vec<Row>> {
    const COUNT: u32 = 20;
    let server = server(Runtime::Process)?;
    let began = Instant::now();
    for number in 0..COUNT {
        let name = format!("m{number}");
        let path = server.file("t.dstack.yml", &task(&name, Runtime::Process, &["true"]))?;
        server.ok(&["apply", "-f", &path, "-y", "-d"])?;
        server.finished(&name, PATIENCE)?;
    }
    let per_task = began.elapsed().as_secs_f64() / f64::from(COUNT);
    Ok(vec![Row {
        what: "20 tasks one after another, each",
        unit: "s",
        ours: per_task,
        target: 2.0,
        reference: Some(31.0),
    }])
}
