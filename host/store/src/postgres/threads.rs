//! The threads of a PostgreSQL store: one that writes, a few that read.
//!
//! Writers of all replicas come one after the other: each transaction takes the database's write lock first. So what a
//! closure has read stays true until it has written, as with SQLite, whatever it read. While one replica waits for its
//! turn, its writes queue up and go into one transaction.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::mpsc;

use super::session::{PostgresTx, Session};
use crate::error::DbError;
use crate::store::{GROUP, ReadJob, WriteJob};
use crate::tx::Tx;

/// The advisory lock that serializes writes: the letters of `dstack`, and 1.
pub(super) const WRITE_LOCK: i64 = 0x6473_7461_636b_0001;
/// A transaction whose replica is silent for so long (a paused machine) is ended by the database, and its lock with it.
const SILENT_MS: u32 = 10_000;

fn local_settings(timeout: Option<Duration>) -> String {
    let timeout_ms = timeout.map_or(0, |it| it.as_millis());
    format!(
        "SET LOCAL statement_timeout = {timeout_ms}; \
         SET LOCAL idle_in_transaction_session_timeout = {SILENT_MS}"
    )
}

pub(super) fn read_loop(
    mut session: Session,
    queue: &Mutex<mpsc::Receiver<ReadJob>>,
    timeout: Option<Duration>,
) {
    let begin = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {}",
        local_settings(timeout)
    );
    loop {
        // One reader waits in the queue, the others for the mutex; a job is taken by exactly one.
        let job = queue
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .blocking_recv();
        let Some(job) = job else { return };
        match session.begin(&begin) {
            Ok(()) => {
                job(Ok(&mut PostgresTx::new(&mut session, false)));
                session.give_up();
            }
            Err(error) => job(Err(error)),
        }
    }
}

/// A write, and why it alone is not kept although its closure was content.
type Member = (Box<dyn WriteJob>, Option<DbError>);

pub(super) fn write_loop(
    mut session: Session,
    mut queue: mpsc::Receiver<Box<dyn WriteJob>>,
    keeps_events: bool,
    timeout: Option<Duration>,
) {
    let begin = format!(
        "BEGIN; {}; SELECT pg_advisory_xact_lock({WRITE_LOCK})",
        local_settings(timeout)
    );
    let mut group: Vec<Member> = Vec::with_capacity(GROUP);
    while let Some(first) = queue.blocking_recv() {
        group.push((first, None));
        let begun = session.begin(&begin);
        // What came while the lock was waited for; without a database nobody should wait in line to be told the same.
        let most = if begun.is_ok() { GROUP } else { usize::MAX };
        while group.len() < most
            && let Ok(next) = queue.try_recv()
        {
            group.push((next, None));
        }
        let failed = begun.and_then(|()| {
            let written = write_group(&mut session, &mut group, keeps_events);
            if written.is_err() {
                session.give_up();
            }
            written
        });
        if let Err(error) = &failed {
            tracing::error!(%error, writes = group.len(), "a group of writes was not committed");
        }
        for (job, alone) in group.drain(..) {
            job.answer(failed.as_ref().err().or(alone.as_ref()));
        }
    }
}

fn write_group(
    session: &mut Session,
    group: &mut [Member],
    keeps_events: bool,
) -> Result<(), DbError> {
    let shares = group.len() > 1;
    for (job, alone) in group.iter_mut() {
        if shares {
            session.batch("SAVEPOINT one")?;
        }
        let mut tx = PostgresTx::new(session, keeps_events);
        let mut keeps = job.run(&mut tx);
        if keeps && tx.is_broken() {
            // The database has undone all of it already.
            keeps = false;
            *alone = Some(DbError::Sql {
                reason: "a statement of this step had failed".to_owned(),
            });
        }
        match (shares, keeps) {
            (true, true) => session.batch("RELEASE SAVEPOINT one")?,
            (true, false) => session.batch("ROLLBACK TO SAVEPOINT one; RELEASE SAVEPOINT one")?,
            (false, true) => {}
            (false, false) => return session.batch("ROLLBACK"),
        }
    }
    session.batch("COMMIT")
}

/// A look at the database on a session of one's own, outside of the threads.
pub(super) fn look<T>(
    session: &mut Session,
    work: impl FnOnce(&mut dyn Tx) -> Result<T, DbError>,
) -> Result<T, DbError> {
    session.begin("BEGIN")?;
    let found = work(&mut PostgresTx::new(session, false));
    session.give_up();
    found
}
