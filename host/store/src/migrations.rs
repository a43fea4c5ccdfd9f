//! Schema changes: numbered, only ever added, all pending ones applied in one transaction.
//!
//! One number has a file for each database. Edit none that was released: write the next one.

use rusqlite::{Connection, TransactionBehavior};

use crate::error::DbError;

pub(crate) struct Migration {
    pub(crate) number: i64,
    sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        sqlite: include_str!("migrations/sqlite/0001_init.sql"),
        postgres: include_str!("migrations/postgres/0001_init.sql"),
    },
    Migration {
        number: 2,
        sqlite: include_str!("migrations/sqlite/0002_ssh_hosts.sql"),
        postgres: include_str!("migrations/postgres/0002_ssh_hosts.sql"),
    },
    Migration {
        number: 3,
        sqlite: include_str!("migrations/sqlite/0003_side_resources.sql"),
        postgres: include_str!("migrations/postgres/0003_side_resources.sql"),
    },
    Migration {
        number: 4,
        sqlite: include_str!("migrations/sqlite/0004_run_images.sql"),
        postgres: include_str!("migrations/postgres/0004_run_images.sql"),
    },
    Migration {
        number: 5,
        sqlite: include_str!("migrations/sqlite/0005_services.sql"),
        postgres: include_str!("migrations/postgres/0005_services.sql"),
    },
    Migration {
        number: 6,
        sqlite: include_str!("migrations/sqlite/0006_volumes.sql"),
        postgres: include_str!("migrations/postgres/0006_volumes.sql"),
    },
    Migration {
        number: 7,
        sqlite: include_str!("migrations/sqlite/0007_gateways.sql"),
        postgres: include_str!("migrations/postgres/0007_gateways.sql"),
    },
    Migration {
        number: 8,
        sqlite: include_str!("migrations/sqlite/0008_replicas.sql"),
        postgres: include_str!("migrations/postgres/0008_replicas.sql"),
    },
    Migration {
        number: 9,
        sqlite: include_str!("migrations/sqlite/0009_http_api.sql"),
        postgres: include_str!("migrations/postgres/0009_http_api.sql"),
    },
];

/// The newest number of this release.
pub(crate) fn known() -> i64 {
    MIGRATIONS.last().map_or(0, |it| it.number)
}

/// Brings the schema of a SQLite file to the newest number.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), DbError> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema_version (number INTEGER NOT NULL PRIMARY KEY, applied_at INTEGER NOT NULL)",
    )?;
    let found: i64 = tx.query_row(
        "SELECT coalesce(max(number), 0) FROM schema_version",
        [],
        |row| row.get(0),
    )?;
    let known = known();
    if found > known {
        return Err(DbError::TooNew { found, known });
    }
    for migration in MIGRATIONS.iter().filter(|it| it.number > found) {
        tx.execute_batch(migration.sqlite)?;
        tx.execute(
            "INSERT INTO schema_version (number, applied_at) VALUES (?1, ?2)",
            (migration.number, jiff::Timestamp::now().as_microsecond()),
        )?;
        tracing::debug!(number = migration.number, "schema migrated");
    }
    tx.commit()?;
    Ok(())
}
