//! What can go wrong with the database, in words an operator can act on.

use std::path::PathBuf;

/// Why a read, a write or the opening of the store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DbError {
    /// Another server already works on this file.
    #[error(
        "the database {path} is in use by another dstack server ({holder}); stop it first, \
         or use PostgreSQL to run several servers on one database"
    )]
    InUse {
        /// The database file.
        path: PathBuf,
        /// Who holds it, as far as its lock file tells.
        holder: String,
    },
    /// The database was written by dstack's Python server.
    #[error(
        "the database {database} belongs to the Python dstack server (it has a table alembic_version), which this \
         server does not read; start with another DSTACK_SERVER_DIR or DSTACK_DATABASE_URL, or move it away"
    )]
    Foreign {
        /// The database file, or the address without its password.
        database: String,
    },
    /// A newer release has migrated this database.
    #[error(
        "the database has schema {found}, but this release knows schemas up to {known}; \
         start the newer release again or restore a backup"
    )]
    TooNew {
        /// The schema number found.
        found: i64,
        /// The newest number this release knows.
        known: i64,
    },
    /// The file could not be opened at all.
    #[error("cannot open the database {path}: {reason}")]
    Open {
        /// The database file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A database address of a kind that this build does not speak.
    #[error(
        "the database address {url:?} is not supported; use postgres://user:password@host:port/name, a file path or \
         sqlite:///absolute/path"
    )]
    Unsupported {
        /// The scheme of the address (never the whole one: it may carry a password).
        url: String,
    },
    /// A PostgreSQL address makes no sense.
    #[error("the database address cannot be used: {reason}; look at DSTACK_DATABASE_URL")]
    Address {
        /// What is wrong, without anything of the password.
        reason: String,
    },
    /// The database server does not answer, or the connection was lost. If that was during the commit of a write, the write may
    /// have happened.
    #[error(
        "the database {place} does not answer: {reason}; is it running, and is DSTACK_DATABASE_URL right?"
    )]
    Unreachable {
        /// The address without the password.
        place: String,
        /// What the system or the database said.
        reason: String,
    },
    /// User, password or rights are refused.
    #[error(
        "the database {place} refuses this user: {reason}; look at user and password in DSTACK_DATABASE_URL"
    )]
    Login {
        /// The address without the password.
        place: String,
        /// What the database said.
        reason: String,
    },
    /// The database server has no database of this name.
    #[error("there is no database {place}; make it first: CREATE DATABASE … OWNER …")]
    NoDatabase {
        /// The address without the password.
        place: String,
    },
    /// A standby, or a database set to be read only.
    #[error(
        "the database {place} only allows reading; DSTACK_DATABASE_URL must lead to the primary server"
    )]
    ReadOnly {
        /// The address without the password.
        place: String,
    },
    /// The database server is older than what is used of it.
    #[error("the database {place} is PostgreSQL {found}; version {needed} or newer is needed")]
    TooOld {
        /// The address without the password.
        place: String,
        /// The main version found.
        found: i64,
        /// The oldest main version that works.
        needed: i64,
    },
    /// A unique constraint refused the row.
    #[error("a row with the same {what} exists already")]
    Conflict {
        /// The columns of the constraint, for example `users.name`, or its name, `users_name`.
        what: String,
    },
    /// A row that must exist is not there.
    #[error("{what} does not exist")]
    Missing {
        /// The kind and id of the row.
        what: String,
    },
    /// A stored value cannot be read as what the column should hold.
    #[error("column {column} holds a value that cannot be read: {reason}")]
    Column {
        /// The column's name.
        column: String,
        /// What is wrong with the value; never the value itself, since it may be secret.
        reason: String,
    },
    /// A value cannot be stored.
    #[error("cannot store {what}: {reason}")]
    Encode {
        /// What was to be stored.
        what: &'static str,
        /// What serialization said.
        reason: String,
    },
    /// The database refused the statement.
    #[error("the database refused a statement: {reason}")]
    Sql {
        /// What the database said.
        reason: String,
    },
    /// The code that used the transaction panicked; its changes are undone.
    #[error("a database step panicked: {reason}")]
    Panicked {
        /// The panic's message.
        reason: String,
    },
    /// The store is shut down.
    #[error("the database is closed")]
    Closed,
}

impl DbError {
    /// Whether a unique constraint refused the row.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

impl From<rusqlite::Error> for DbError {
    fn from(error: rusqlite::Error) -> Self {
        if let rusqlite::Error::SqliteFailure(code, Some(message)) = &error
            && code.code == rusqlite::ErrorCode::ConstraintViolation
            && let Some(what) = message.strip_prefix("UNIQUE constraint failed: ")
        {
            return Self::Conflict {
                what: what.to_owned(),
            };
        }
        Self::Sql {
            reason: error.to_string(),
        }
    }
}
