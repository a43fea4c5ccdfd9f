//! Whether this is a database that we can use, and bringing its schema up to date.

use std::time::Duration;

use super::session::{PostgresTx, Session};
use super::threads::{WRITE_LOCK, look};
use crate::error::DbError;
use crate::migrations::{MIGRATIONS, known};
use crate::sql::Sql;
use crate::tx::Tx;
use crate::{params, sql};

/// The oldest PostgreSQL that we are tested with is 15; from 13 on it has all that is used.
const OLDEST: i64 = 130_000;
/// How long one replica waits for the tables that another one's step still holds.
const LOCK_MS: u32 = 2_000;
/// How often that is tried again, with [`REST`] between: five minutes in all.
const TRIES: u32 = 100;
const REST: Duration = Duration::from_secs(1);

/// Refuses a server that is too old, and a database of the Python server.
pub(super) fn check(session: &mut Session) -> Result<(), DbError> {
    const VERSION: Sql = sql!("SELECT CAST(current_setting('server_version_num') AS BIGINT)");
    const FOREIGN: Sql = sql!(
        "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relname = 'alembic_version' AND n.nspname = ANY (current_schemas(false)) LIMIT 1"
    );
    let database = session.address().to_string();
    let (version, foreign) = look(session, |tx| {
        let version = tx.first(VERSION, params![], |mut row| row.take::<i64>())?;
        let foreign = tx.first(FOREIGN, params![], |_| Ok(()))?;
        Ok((version.unwrap_or_default(), foreign))
    })?;
    if version < OLDEST {
        return Err(DbError::TooOld {
            place: database,
            found: version / 10_000,
            needed: OLDEST / 10_000,
        });
    }
    if foreign.is_some() {
        return Err(DbError::Foreign { database });
    }
    Ok(())
}

/// Brings the schema to the newest number. Replicas that start together do it one after the other.
pub(super) fn migrate(session: &mut Session) -> Result<(), DbError> {
    // The steps of other replicas stand still meanwhile, so that no table is held for long.
    let begin = format!(
        "BEGIN; SET LOCAL lock_timeout = {LOCK_MS}; SELECT pg_advisory_xact_lock({WRITE_LOCK})"
    );
    let mut tries = 0;
    loop {
        let migrated = session.begin(&begin).and_then(|()| {
            let done = pending(session);
            match &done {
                Ok(()) => session.batch("COMMIT")?,
                Err(_) => session.give_up(),
            }
            done
        });
        match migrated {
            Err(DbError::Sql { reason }) if reason.contains("lock timeout") && tries < TRIES => {
                tries += 1;
                tracing::info!(
                    "another server uses the database; its schema is changed as soon as possible"
                );
                session.rest(REST);
            }
            other => return other,
        }
    }
}

fn pending(session: &mut Session) -> Result<(), DbError> {
    const FOUND: Sql = sql!("SELECT coalesce(max(number), 0) FROM schema_version");
    const DONE: Sql = sql!("INSERT INTO schema_version (number, applied_at) VALUES (?1, ?2)");
    session.batch(
        "CREATE TABLE IF NOT EXISTS schema_version (number BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL)",
    )?;
    let mut tx = PostgresTx::new(session, false);
    let tx: &mut dyn Tx = &mut tx;
    let found: i64 = tx
        .first(FOUND, params![], |mut row| row.take())?
        .unwrap_or_default();
    if found > known() {
        return Err(DbError::TooNew {
            found,
            known: known(),
        });
    }
    for migration in MIGRATIONS.iter().filter(|it| it.number > found) {
        session.batch(migration.postgres)?;
        let now = jiff::Timestamp::now();
        let tx: &mut dyn Tx = &mut PostgresTx::new(session, false);
        tx.exec(DONE, params![migration.number, now])?;
        tracing::debug!(number = migration.number, "schema migrated");
    }
    Ok(())
}
