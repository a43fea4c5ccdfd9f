//! One connection, used by one thread: opened anew when it is lost, with its prepared statements and its transaction.

use std::collections::HashMap;
use std::error::Error as _;
use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Statement};

use super::address::Address;
use super::cells::type_of;
use super::tls::Tls;
use crate::error::DbError;
use crate::sql::Dialect;
use crate::tx::{Row, Tx, Value};

/// Statements kept prepared on each connection. The hot ones number about a hundred; updates come in more shapes.
const PREPARED: usize = 512;
/// Tries to open a lost connection before a caller is told.
const TRIES: u32 = 5;

/// The connection of a thread.
pub(super) struct Session {
    prepared: HashMap<String, Statement>,
    client: Option<Client>,
    runtime: Runtime,
    address: Address,
    tls: Tls,
}

/// An error that no connection is to blame for.
pub(super) fn refused(error: &tokio_postgres::Error) -> DbError {
    DbError::Sql {
        reason: told(error),
    }
}

/// What the database or the system said, without the library's own words.
fn told(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said.message().to_owned();
    }
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// What an error means at this address.
pub(super) fn failed(address: &Address, error: &tokio_postgres::Error) -> DbError {
    let (place, reason) = (address.to_string(), told(error));
    if let Some(said) = error.as_db_error() {
        let code = said.code();
        return match code.code() {
            "23505" => DbError::Conflict {
                what: said.constraint().unwrap_or_default().to_owned(),
            },
            "3D000" => DbError::NoDatabase { place },
            // A wrong password, an unknown user, no right to this database.
            "28P01" | "28000" | "42501" => DbError::Login { place, reason },
            // Shutting down, starting, too many connections, lost by an administrator's command or a timeout of the session.
            "57P01" | "57P02" | "57P03" | "53300" | "25P03" => {
                DbError::Unreachable { place, reason }
            }
            _ if *code == SqlState::T_R_SERIALIZATION_FAILURE
                || *code == SqlState::T_R_DEADLOCK_DETECTED =>
            {
                DbError::Sql {
                    reason: format!(
                        "{reason}; somebody else holds rows of dstack's tables in a transaction"
                    ),
                }
            }
            _ => DbError::Sql { reason },
        };
    }
    let cause = error.source().and_then(|it| it.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::PermissionDenied) if reason.contains("does not allow writes") => {
            DbError::ReadOnly { place }
        }
        Some(_) => DbError::Unreachable { place, reason },
        None if error.is_closed() || reason.contains("connect") || reason.contains("timeout") => {
            DbError::Unreachable { place, reason }
        }
        None => DbError::Sql { reason },
    }
}

impl Session {
    /// Opens a connection. Not to be called on a thread of an async runtime.
    pub(super) fn open(address: &Address) -> Result<Self, DbError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| DbError::Sql {
                reason: format!("a database thread cannot be set up: {error}"),
            })?;
        let mut session = Self {
            prepared: HashMap::new(),
            client: None,
            runtime,
            address: address.clone(),
            tls: Tls::new(&address.trust)?,
        };
        session.connect()?;
        Ok(session)
    }

    pub(super) const fn address(&self) -> &Address {
        &self.address
    }

    fn connect(&mut self) -> Result<(), DbError> {
        self.prepared.clear();
        self.client = None;
        let (address, tls) = (&self.address, self.tls.clone());
        let client = self.runtime.block_on(async {
            let (client, connection) = address.connect(tls).await?;
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(reason = told(&error), "a connection to the database ended");
                }
            });
            Ok::<_, DbError>(client)
        })?;
        self.client = Some(client);
        Ok(())
    }

    fn client(&self) -> Result<&Client, DbError> {
        self.client.as_ref().ok_or_else(|| DbError::Unreachable {
            place: self.address.to_string(),
            reason: "there is no connection".to_owned(),
        })
    }

    /// Runs statements without parameters and results.
    pub(super) fn batch(&self, text: &str) -> Result<(), DbError> {
        let client = self.client()?;
        self.runtime
            .block_on(client.batch_execute(text))
            .map_err(|error| failed(&self.address, &error))
    }

    /// Begins a transaction with this text, on a new connection if the old one is lost.
    pub(super) fn begin(&mut self, text: &str) -> Result<(), DbError> {
        let mut wait = Duration::from_millis(50);
        for _ in 1..TRIES {
            match self.try_begin(text) {
                Err(DbError::Unreachable { place, reason }) => {
                    tracing::debug!(place, reason, "the database does not answer; trying again");
                    self.client = None;
                    self.rest(wait);
                    wait *= 2;
                }
                other => return other,
            }
        }
        self.try_begin(text)
    }

    fn try_begin(&mut self, text: &str) -> Result<(), DbError> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.connect()?;
        }
        let begun = self.batch(text);
        if begun.is_err() && !matches!(begun, Err(DbError::Unreachable { .. })) {
            // Half a beginning would be the next one's trouble.
            self.batch("ROLLBACK")?;
        }
        begun
    }

    /// Ends a transaction whose result does not matter any more.
    pub(super) fn give_up(&mut self) {
        if self.batch("ROLLBACK").is_err() {
            self.client = None;
        }
    }

    pub(super) fn rest(&self, time: Duration) {
        self.runtime
            .block_on(async move { tokio::time::sleep(time).await });
    }

    pub(super) fn rows(
        &mut self,
        text: &str,
        params: &[Value<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, DbError> {
        if self.address.is_pooled {
            let typed = typed(params);
            let client = self.client()?;
            let found = self.runtime.block_on(client.query_typed(text, &typed));
            return found.map_err(|error| failed(&self.address, &error));
        }
        let statement = self.statement(text)?;
        let client = self.client()?;
        let found = self
            .runtime
            .block_on(client.query(&statement, &plain(params)));
        found.map_err(|error| failed(&self.address, &error))
    }

    fn change(&mut self, text: &str, params: &[Value<'_>]) -> Result<u64, DbError> {
        if self.address.is_pooled {
            let typed = typed(params);
            let client = self.client()?;
            let changed = self.runtime.block_on(client.execute_typed(text, &typed));
            return changed.map_err(|error| failed(&self.address, &error));
        }
        let statement = self.statement(text)?;
        let client = self.client()?;
        let changed = self
            .runtime
            .block_on(client.execute(&statement, &plain(params)));
        changed.map_err(|error| failed(&self.address, &error))
    }

    fn statement(&mut self, text: &str) -> Result<Statement, DbError> {
        if let Some(known) = self.prepared.get(text) {
            return Ok(known.clone());
        }
        let client = self.client()?;
        let made = self
            .runtime
            .block_on(client.prepare(text))
            .map_err(|error| failed(&self.address, &error))?;
        if self.prepared.len() >= PREPARED {
            self.prepared.clear();
        }
        self.prepared.insert(text.to_owned(), made.clone());
        Ok(made)
    }
}

fn plain<'a>(params: &'a [Value<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(|it| it as &(dyn ToSql + Sync)).collect()
}

fn typed<'a>(params: &'a [Value<'_>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    let typed = |it: &'a Value<'_>| (it as &(dyn ToSql + Sync), type_of(it));
    params.iter().map(typed).collect()
}

/// A transaction that the caller begins and ends.
pub(super) struct PostgresTx<'a> {
    session: &'a mut Session,
    keeps_events: bool,
    /// A statement failed: until it is rolled back, nothing of the transaction counts.
    is_broken: bool,
}

impl<'a> PostgresTx<'a> {
    pub(super) const fn new(session: &'a mut Session, keeps_events: bool) -> Self {
        Self {
            session,
            keeps_events,
            is_broken: false,
        }
    }

    pub(super) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn noted<T>(&mut self, result: Result<T, DbError>) -> Result<T, DbError> {
        self.is_broken |= result.is_err();
        result
    }
}

impl Tx for PostgresTx<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
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
        let found = self.session.rows(text, params);
        for row in &self.noted(found)? {
            each(Row::new(row))?;
        }
        Ok(())
    }

    fn change(&mut self, text: &str, params: &[Value<'_>]) -> Result<u64, DbError> {
        let changed = self.session.change(text, params);
        self.noted(changed)
    }

    fn begin_part(&mut self) -> Result<(), DbError> {
        let begun = self.session.batch("SAVEPOINT part");
        self.noted(begun)
    }

    fn end_part(&mut self, keeps: bool) -> Result<(), DbError> {
        let text = if keeps && !self.is_broken {
            "RELEASE SAVEPOINT part"
        } else {
            "ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part"
        };
        let ended = self.session.batch(text);
        self.is_broken = ended.is_err();
        ended
    }
}
