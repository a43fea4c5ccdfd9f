//! Where the database is.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::DbError;
use crate::postgres::Address;

/// Which database, and how it is used.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The database.
    pub database: Database,
    /// Threads that read; each has its own connection.
    pub readers: usize,
    /// Whether events are written down.
    pub keeps_events: bool,
    /// The longest time of one PostgreSQL statement; none has no limit. SQLite does not look at it.
    pub command_timeout: Option<Duration>,
    /// Where PostgreSQL is reached without a pooler, for what needs a session of its own (news between replicas); `None` is
    /// the database's own address.
    pub direct: Option<Address>,
}

/// A database.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "one value a process")]
pub enum Database {
    /// The SQLite file; its folder is made when missing. One server has it to itself.
    Sqlite(PathBuf),
    /// A PostgreSQL database, which several servers may share.
    Postgres(Address),
}

impl StoreConfig {
    fn of(database: Database, readers: usize) -> Self {
        Self {
            database,
            readers,
            keeps_events: true,
            command_timeout: Some(Duration::from_secs(300)),
            direct: None,
        }
    }

    /// A file with the usual two readers.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::of(Database::Sqlite(path.into()), 2)
    }

    /// A PostgreSQL database with the usual five readers.
    #[must_use]
    pub fn postgres(address: Address) -> Self {
        Self::of(Database::Postgres(address), 5)
    }

    /// From a database address: `postgres://user:password@host:port/name` (also `postgresql://`, and with a driver's name as in
    /// `postgresql+asyncpg://`), `sqlite:///absolute/path` (also `sqlite+aiosqlite:///…`), or a bare path.
    ///
    /// # Errors
    /// Any other scheme, and an address that makes no sense.
    pub fn from_url(url: &str) -> Result<Self, DbError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Ok(Self::file(url));
        };
        match scheme.split('+').next().unwrap_or_default() {
            // Three slashes are a relative path and four an absolute one in one convention, three an absolute one in
            // the other; paths of servers are absolute in practice, so both are read as absolute.
            "sqlite" if rest.starts_with('/') => {
                Ok(Self::file(format!("/{}", rest.trim_start_matches('/'))))
            }
            "postgres" | "postgresql" => Ok(Self::postgres(Address::parse(url)?)),
            _ => Err(DbError::Unsupported {
                url: format!("{scheme}://…"),
            }),
        }
    }
}
