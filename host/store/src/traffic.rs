//! Requests to services, as told by those who forward them: replicas of gateways, or servers with their own proxy.
//!
//! Each place reports every few seconds, also when nothing came. The autoscaler trusts the sum only while every place
//! that reported lately still does: a place that fell silent may carry all the load.

use dstack_engine::changes::{Hint, Pipeline};
use dstack_engine::ids::RunId;
use dstack_engine::scaling::Traffic;
use jiff::{SignedDuration, Timestamp};

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Row, Tx};
use crate::{lease, params, sql};

/// A report that is older says nothing about now.
const FRESH: SignedDuration = SignedDuration::from_secs(60);
/// A place that has been silent for longer is gone.
const GONE: SignedDuration = SignedDuration::from_secs(600);

const PUT: Sql = sql!(
    "INSERT INTO service_traffic (run_id, source, last_30, last_60, last_300, reported_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (run_id, source) DO UPDATE SET last_30 = excluded.last_30, \
     last_60 = excluded.last_60, last_300 = excluded.last_300, reported_at = excluded.reported_at"
);
const OF_RUN: Sql = sql!(
    "SELECT last_30, last_60, last_300, reported_at FROM service_traffic WHERE run_id = ?1 AND reported_at > ?2"
);
const REMOVE: Sql = sql!("DELETE FROM service_traffic WHERE run_id = ?1 AND source = ?2");

/// The statements of this file, for the test of query plans.
#[cfg(test)]
pub(crate) const SQL: &[(&str, Sql)] = &[("traffic", OF_RUN), ("remove traffic", REMOVE)];

/// Stores what a place saw and makes the run due, so that its number of replicas follows. The answer is to be sent to
/// the pipelines after the commit.
pub fn put(
    tx: &mut dyn Tx,
    run: RunId,
    source: &str,
    seen: Traffic,
    now: Timestamp,
) -> Result<Hint, DbError> {
    tx.exec(
        PUT,
        params![
            run,
            source,
            count(seen.last_30),
            count(seen.last_60),
            count(seen.last_300),
            now
        ],
    )?;
    let hint = Hint {
        pipeline: Pipeline::Runs,
        id: run.0,
    };
    lease::hint(tx, hint, now)?;
    Ok(hint)
}

/// A place forwards the requests of this run no longer.
pub fn remove(tx: &mut dyn Tx, run: RunId, source: &str) -> Result<(), DbError> {
    tx.exec(REMOVE, params![run, source])?;
    Ok(())
}

/// What all places together saw; `None` while nobody reports, or one of them does not any more.
pub fn of_run(tx: &mut dyn Tx, run: RunId, now: Timestamp) -> Result<Option<Traffic>, DbError> {
    let (fresh, gone) = (ago(now, FRESH), ago(now, GONE));
    let reports = tx.all(OF_RUN, params![run, gone], from_row)?;
    if reports.is_empty() || reports.iter().any(|(_, at)| *at < fresh) {
        return Ok(None);
    }
    let all = reports.iter().map(|(seen, _)| *seen);
    Ok(Some(all.fold(Traffic::default(), Traffic::plus)))
}

fn ago(now: Timestamp, age: SignedDuration) -> Timestamp {
    now.checked_sub(age).unwrap_or(Timestamp::MIN)
}

fn from_row(mut row: Row<'_>) -> Result<(Traffic, Timestamp), DbError> {
    let seen = Traffic {
        last_30: uncount(row.take()?),
        last_60: uncount(row.take()?),
        last_300: uncount(row.take()?),
    };
    Ok((seen, row.take()?))
}

fn count(requests: u64) -> i64 {
    i64::try_from(requests).unwrap_or(i64::MAX)
}

fn uncount(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}
