//! Logs of jobs in the database: chunks of lines, numbered from 0, only ever added to at their end.
//!
//! What a line looks like is the server's business. Times of lines only grow.

use dstack_engine::ids::JobId;
use jiff::Timestamp;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Row, Tx};
use crate::{params, sql};

/// Some lines of a log, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Number of its first line.
    pub first_line: u64,
    /// How many lines it has.
    pub lines: u64,
    /// Time of its first line.
    pub first_at: Timestamp,
    /// Time of its last line.
    pub last_at: Timestamp,
    /// The lines.
    pub data: Vec<u8>,
}

macro_rules! chunks {
    ($rest:literal) => {
        sql!(
            "SELECT first_line, lines, first_at, last_at, data FROM log_chunks WHERE job_id = ?1 AND producer = ?2 ",
            $rest
        )
    };
}
pub(crate) const LAST: Sql = chunks!("ORDER BY first_line DESC LIMIT 1");
pub(crate) const FROM: Sql = chunks!(
    "AND first_line >= (SELECT coalesce(max(c.first_line), 0) FROM log_chunks c \
     WHERE c.job_id = ?1 AND c.producer = ?2 AND c.first_line <= ?3) ORDER BY first_line LIMIT ?4"
);
pub(crate) const AFTER: Sql = chunks!("AND last_at > ?3 ORDER BY last_at LIMIT ?4");
pub(crate) const BEFORE: Sql = chunks!("AND first_line < ?3 ORDER BY first_line DESC LIMIT ?4");
const PUT: Sql = sql!(
    "INSERT INTO log_chunks (job_id, producer, first_line, lines, first_at, last_at, data) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (job_id, producer, first_line) DO UPDATE SET \
     lines = excluded.lines, last_at = excluded.last_at, data = excluded.data"
);

pub(crate) const DELETE: Sql = sql!(
    "DELETE FROM log_chunks WHERE (job_id, producer, first_line) IN (SELECT job_id, producer, first_line \
     FROM log_chunks WHERE last_at < ?1 ORDER BY last_at LIMIT ?2)"
);

fn from_row(mut row: Row<'_>) -> Result<Chunk, DbError> {
    Ok(Chunk {
        first_line: row.take()?,
        lines: row.take()?,
        first_at: row.take()?,
        last_at: row.take()?,
        data: row.take()?,
    })
}

fn number(it: u64) -> i64 {
    i64::try_from(it).unwrap_or(i64::MAX)
}

/// The newest chunk of a log; `producer` is whose output it is.
pub fn last(tx: &mut dyn Tx, job: JobId, producer: &str) -> Result<Option<Chunk>, DbError> {
    tx.first(LAST, params![job, producer], from_row)
}

/// Adds a chunk, or replaces the one that begins with the same line.
pub fn put(tx: &mut dyn Tx, job: JobId, producer: &str, chunk: &Chunk) -> Result<(), DbError> {
    tx.exec(
        PUT,
        params![
            job,
            producer,
            number(chunk.first_line),
            number(chunk.lines),
            chunk.first_at,
            chunk.last_at,
            &chunk.data
        ],
    )?;
    Ok(())
}

/// Chunks from the one that has this line, in order, at most `limit`.
pub fn from_line(
    tx: &mut dyn Tx,
    job: JobId,
    producer: &str,
    line: u64,
    limit: u32,
) -> Result<Vec<Chunk>, DbError> {
    tx.all(FROM, params![job, producer, number(line), limit], from_row)
}

/// Chunks that have something later than `time`, in order, at most `limit`.
pub fn after(
    tx: &mut dyn Tx,
    job: JobId,
    producer: &str,
    time: Timestamp,
    limit: u32,
) -> Result<Vec<Chunk>, DbError> {
    tx.all(AFTER, params![job, producer, time, limit], from_row)
}

/// Chunks that have something before this line, newest first, at most `limit`.
pub fn before_line(
    tx: &mut dyn Tx,
    job: JobId,
    producer: &str,
    line: u64,
    limit: u32,
) -> Result<Vec<Chunk>, DbError> {
    tx.all(
        BEFORE,
        params![job, producer, number(line), limit],
        from_row,
    )
}

/// Deletes chunks that have nothing as late as `time`, the oldest first, at most `limit`; answers how many.
pub fn delete_before(tx: &mut dyn Tx, time: Timestamp, limit: u32) -> Result<u64, DbError> {
    tx.exec(DELETE, params![time, limit])
}
