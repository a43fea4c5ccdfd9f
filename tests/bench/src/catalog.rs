//! The catalog: half a million rows from an archive, and queries over them.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use dstack_backend_catalog::{Catalog, CatalogConfig, Filter, NoWeb, Source, select, write_zip};
use dstack_backend_types::services::{CatalogQuery, CatalogReply};
use dstack_backend_types::{CatalogItem, Requirements};
use serde_json::json;

use crate::measure::{Row, median};

const ROWS: usize = 500_000;
/// Rows of one of five backends.
const FEW: usize = 10_000;
const QUERIES: [&str; 5] = [
    r#"{"gpu_name": "H100", "min_gpu_count": 8}"#,
    r#"{"gpu_name": ["A100"], "min_gpu_memory": 80, "max_price": 5, "spot": false}"#,
    r#"{"min_cpu": 8, "max_cpu": 8, "min_memory": 64, "max_price": 0.4, "max_gpu_count": 0}"#,
    r#"{"min_compute_capability": "8.9", "min_total_gpu_memory": 300}"#,
    r#"{"gpu_vendor": "nvidia", "min_gpu_count": 1, "max_price": 0.5}"#,
];

/// Rows as the snapshot has them, again and again with other places and prices.
fn rows(count: usize) -> Result<Vec<CatalogItem>> {
    let config = CatalogConfig {
        has_snapshot: true,
        ..CatalogConfig::default()
    };
    let known = Catalog::new(config, Arc::new(NoWeb));
    let known = known.query(&Filter::default(), Default::default())?;
    Ok((0..count)
        .zip(known.iter().cycle())
        .map(|(at, one)| {
            let round = at / known.len();
            let mut item = one.item.clone();
            item.location = format!("{}-{round}", item.location);
            item.price += f64::from(u32::try_from(round).unwrap_or_default()) / 1e4;
            item
        })
        .collect())
}

/// The most memory that this process had, in MiB.
fn memory_at_most() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|line| line.starts_with("VmHWM"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.context("no such field")?.parse::<f64>()? / 1024.0)
}

fn row(what: &'static str, unit: &'static str, ours: f64, target: f64) -> Row {
    Row {
        what,
        unit,
        ours,
        target,
        reference: None,
    }
}

/// The word that makes this program the process that only loads and asks.
pub(crate) const CHILD: &str = "catalog-child";

pub(crate) fn load_and_query() -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("acme/1");
    std::fs::create_dir_all(&place)?;
    let bytes = write_zip("acme", &rows(ROWS)?)?;
    std::fs::write(place.join("catalog.zip"), bytes)?;
    std::fs::write(folder.path().join("acme/version"), "1")?;
    // Another process, whose memory has nothing of the rows that were made.
    let output = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .arg(folder.path())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let figures: Vec<f64> = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [loaded, grown, asked] = figures.as_slice() else {
        anyhow::bail!("{text}{}", String::from_utf8_lossy(&output.stderr));
    };
    Ok(vec![
        row("catalog of 500,000 rows: load", "s", *loaded, 1.0),
        row(
            "catalog of 500,000 rows: memory at most",
            "MiB",
            *grown,
            300.0,
        ),
        row("catalog of 500,000 rows: query", "ms", *asked, 5.0),
        row(
            "five backends ask for what fits, 50,000 rows",
            "ms",
            ask_five()?,
            50.0,
        ),
    ])
}

/// Loads the catalog of a folder and asks it; prints seconds, MiB at most, and milliseconds.
pub(crate) fn child(folder: &Path) -> Result<()> {
    let config = CatalogConfig {
        sources: vec![Source::Folder(folder.to_owned())],
        ..CatalogConfig::default()
    };
    let catalog = Catalog::new(config, Arc::new(NoWeb));
    let began = Instant::now();
    let status = catalog.status();
    let loaded = began.elapsed().as_secs_f64();
    ensure!(status.iter().any(|one| one.rows == ROWS), "{status:?}");
    let mut figures = Vec::new();
    for query in QUERIES {
        let filter = Filter::from_json(query)?;
        let began = Instant::now();
        let found = catalog.query(&filter, Default::default())?;
        figures.push(began.elapsed().as_secs_f64() * 1000.0);
        ensure!(!found.is_empty(), "{query} finds nothing");
    }
    println!("{loaded} {} {}", memory_at_most()?, median(figures));
    Ok(())
}

/// What the catalog's part of a plan costs: five backends ask, the answers cross the border as JSON.
fn ask_five() -> Result<f64> {
    let table = rows(FEW)?.into_iter().collect();
    let requirements: Requirements =
        serde_json::from_value(json!({"resources": {"gpu": "A100:1..", "disk": null}}))?;
    let query = CatalogQuery {
        requirements: Some(requirements),
        ..CatalogQuery::default()
    };
    let mut figures = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        for _ in 0..5 {
            let items = select(&table, &query);
            let reply = CatalogReply {
                version: None,
                items,
            };
            let text = serde_json::to_vec(&reply)?;
            let reply: CatalogReply = serde_json::from_slice(&text)?;
            ensure!(!reply.items.is_empty(), "nothing fits");
        }
        figures.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(median(figures))
}
