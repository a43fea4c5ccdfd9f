//! SQLite: opening a file safely, and a transaction on one of its connections.

pub(crate) mod threads;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags};

use crate::error::DbError;
use crate::sql::Dialect;
use crate::tx::{Cell, Columns, Row, Tx, Value};

/// Statements kept prepared on each connection; the hot ones number about sixty.
const PREPARED: usize = 96;

/// Takes the lock that keeps a second server off the same file.
///
/// SQLite itself would let two servers in, and both would then act on the same machines.
pub(crate) fn lock(path: &Path) -> Result<File, DbError> {
    let open = |reason: std::io::Error| DbError::Open {
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    if let Some(folder) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(open)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(PathBuf::from(name))
        .map_err(open)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let known = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
            let holder = if known {
                format!("process {}", holder.trim())
            } else {
                "process unknown".to_owned()
            };
            return Err(DbError::InUse {
                path: path.to_owned(),
                holder,
            });
        }
        Err(TryLockError::Error(error)) => return Err(open(error)),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(open)?;
    Ok(file)
}

/// Opens the writer's connection; refuses a file of the Python server before anything in it is changed.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, DbError> {
    let open = |error: rusqlite::Error| DbError::Open {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    restrict(path)?;
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(open)?;
    let foreign: i64 = connection
        .query_row(
            "SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'",
            [],
            |row| row.get(0),
        )
        .map_err(open)?;
    if foreign > 0 {
        return Err(DbError::Foreign {
            database: path.display().to_string(),
        });
    }
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .map_err(open)?;
    settings(&connection).map_err(open)?;
    connection
        .pragma_update(None, "foreign_keys", true)
        .map_err(open)?;
    connection
        .pragma_update(None, "wal_autocheckpoint", 2000)
        .map_err(open)?;
    Ok(connection)
}

/// Opens a connection that cannot write.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, DbError> {
    let open = |error: rusqlite::Error| DbError::Open {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(open)?;
    settings(&connection).map_err(open)?;
    connection
        .pragma_update(None, "query_only", true)
        .map_err(open)?;
    Ok(connection)
}

fn settings(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // Negative: kibibytes. Three connections at most then keep 6 MB.
    connection.pragma_update(None, "cache_size", -2000)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(PREPARED);
    Ok(())
}

/// The file holds tokens and keys (encrypted, but still): it is made for its owner only.
fn restrict(path: &Path) -> Result<(), DbError> {
    use std::os::unix::fs::OpenOptionsExt;
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(DbError::Open {
            path: path.to_owned(),
            reason: error.to_string(),
        }),
    }
}

/// A transaction (or savepoint) that the caller begins and ends.
pub(crate) struct SqliteTx<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) keeps_events: bool,
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(it) => ValueRef::Integer(*it),
            Self::Real(it) => ValueRef::Real(*it),
            Self::Text(it) => ValueRef::Text(it.as_bytes()),
            Self::Blob(it) => ValueRef::Blob(it),
        }))
    }
}

impl Columns for rusqlite::Row<'_> {
    fn cell(&self, index: usize) -> Result<Cell<'_>, DbError> {
        Ok(match self.get_ref(index)? {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(it) => Cell::Int(it),
            ValueRef::Real(it) => Cell::Real(it),
            ValueRef::Blob(it) => Cell::Blob(it),
            ValueRef::Text(it) => {
                Cell::Text(std::str::from_utf8(it).map_err(|error| DbError::Column {
                    column: Columns::name(self, index),
                    reason: error.to_string(),
                })?)
            }
        })
    }

    fn name(&self, index: usize) -> String {
        self.as_ref()
            .column_name(index)
            .map_or_else(|_| format!("#{index}"), str::to_owned)
    }
}

impl Tx for SqliteTx<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn keeps_events(&self) -> bool {
        self.keeps_events
    }

    fn query(
        &mut self,
        text: &str,
        params: &[Value<'_>],
        each: &mut dyn FnMut(Row<'_>) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let mut statement = self.connection.prepare_cached(text)?;
        let mut rows = statement.query(rusqlite::params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            each(Row::new(row))?;
        }
        Ok(())
    }

    fn begin_part(&mut self) -> Result<(), DbError> {
        self.connection
            .prepare_cached("SAVEPOINT part")?
            .execute([])?;
        Ok(())
    }

    fn end_part(&mut self, keeps: bool) -> Result<(), DbError> {
        if !keeps {
            self.connection
                .prepare_cached("ROLLBACK TO SAVEPOINT part")?
                .execute([])?;
        }
        self.connection
            .prepare_cached("RELEASE SAVEPOINT part")?
            .execute([])?;
        Ok(())
    }

    fn change(&mut self, text: &str, params: &[Value<'_>]) -> Result<u64, DbError> {
        let mut statement = self.connection.prepare_cached(text)?;
        let changed = statement.execute(rusqlite::params_from_iter(params))?;
        Ok(u64::try_from(changed).unwrap_or(u64::MAX))
    }
}
