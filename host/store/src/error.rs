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
    /// The file was written by dstack's Python server.
    #[error(
        "the database {path} belongs to the Python dstack server (it has a table alembic_version), which this \
         server does not read; start with another DSTACK_SERVER_DIR or DSTACK_DATABASE_URL, or move the file away"
    )]
    Foreign {
        /// The database file.
        path: PathBuf,
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
        "the database address {url:?} is not supported; use a file path or sqlite:///absolute/path"
    )]
    Unsupported {
        /// The scheme of the address (never the whole one: it may carry a password).
        url: String,
    },
    /// A unique constraint refused the row.
    #[error("a row with the same {what} exists already")]
    Conflict {
        /// The columns of the constraint, for example `users.name`.
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
