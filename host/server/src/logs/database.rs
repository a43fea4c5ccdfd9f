//! Logs in the database, for servers that share one and no folder: the same lines as in files, in chunks.
//!
//! A page's token is the number of a line.

use std::time::Duration;

use dstack_api::logs::LogEvent;
use dstack_engine::ids::JobId;
use dstack_store::logs::{self, Chunk};
use dstack_store::{DbError, Store, Tx};
use jiff::Timestamp;

use super::news::News;
use super::{LogEntry, LogError, LogKey, LogPage, LogQuery, Producer, line};

/// A chunk that is larger gets no more lines, and one is begun anew behind this size.
const FULL: usize = 8 * 1024;
const LARGEST: usize = 64 * 1024;
/// How often a reader looks for what another server has appended.
const OTHERS: Duration = Duration::from_secs(1);
/// Chunks read at once.
const CHUNKS: u32 = 8;

/// The store of logs.
#[derive(Clone)]
pub struct DatabaseLogs {
    store: Store,
    news: News,
}

impl std::fmt::Debug for DatabaseLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatabaseLogs")
    }
}

const fn word(producer: Producer) -> &'static str {
    match producer {
        Producer::Job => "job",
        Producer::Runner => "runner",
    }
}

impl DatabaseLogs {
    /// Logs in this database.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self {
            store,
            news: News::default(),
        }
    }

    /// Adds entries at the end, in their order. What is not later than the last entry is there already: another server, or
    /// this one before it was killed, has stored it.
    ///
    /// # Errors
    /// The database; then none of the entries may be taken as stored.
    pub async fn append(&self, key: &LogKey, entries: Vec<LogEntry>) -> Result<(), LogError> {
        let (job, producer) = (JobId(key.submission), word(key.producer));
        self.store
            .write(move |tx| append(tx, (job, producer), &entries))
            .await?;
        self.news.tell(key);
        Ok(())
    }

    /// Reads a page; if it is empty, reads again when this server appends something, and each second what another one may
    /// have appended, up to `patience`.
    ///
    /// # Errors
    /// As [`DatabaseLogs::poll`].
    pub async fn poll_patiently(
        &self,
        key: &LogKey,
        query: LogQuery,
        patience: Duration,
    ) -> Result<LogPage, LogError> {
        let ear = self.news.listen(key);
        let mut left = patience;
        loop {
            let mut grown = std::pin::pin!(ear.grown.notified());
            // From here on nothing is missed, also while the page is read.
            grown.as_mut().enable();
            let page = self.poll(key, query.clone()).await?;
            if !page.logs.is_empty() || left.is_zero() {
                return Ok(page);
            }
            let wait = left.min(OTHERS);
            left = left.saturating_sub(wait);
            if tokio::time::timeout(wait, grown).await.is_ok() {
                // What has come may be left out by the query; the next answer is given as it is.
                left = Duration::ZERO;
            }
        }
    }

    /// Reads a page. A log that is not there is empty.
    ///
    /// # Errors
    /// A token that is none of ours, or the database.
    pub async fn poll(&self, key: &LogKey, query: LogQuery) -> Result<LogPage, LogError> {
        let token = query.check_token()?;
        let of = (JobId(key.submission), word(key.producer));
        let page = self.store.read(move |tx| {
            if query.descending {
                backwards(tx, of, &query, token)
            } else {
                forwards(tx, of, &query, token)
            }
        });
        Ok(page.await?)
    }
}

type Log = (JobId, &'static str);

fn append(tx: &mut dyn Tx, (job, producer): Log, entries: &[LogEntry]) -> Result<(), DbError> {
    let last = logs::last(tx, job, producer)?;
    let stored = last.as_ref().map_or(Timestamp::MIN, |it| it.last_at);
    let next_line = last.as_ref().map_or(0, |it| it.first_line + it.lines);
    let mut open = last.filter(|it| it.data.len() < FULL);
    let mut is_new = false;
    for (next_line, entry) in (next_line..).zip(entries.iter().filter(|it| it.at > stored)) {
        if let Some(full) = open.take_if(|it| it.data.len() >= LARGEST) {
            logs::put(tx, job, producer, &full)?;
        }
        let chunk = open.get_or_insert_with(|| Chunk {
            first_line: next_line,
            lines: 0,
            first_at: entry.at,
            last_at: entry.at,
            data: Vec::new(),
        });
        line::write(entry, &mut chunk.data);
        chunk.lines += 1;
        chunk.last_at = entry.at;
        is_new = true;
    }
    match open {
        Some(chunk) if is_new => logs::put(tx, job, producer, &chunk),
        _ => Ok(()),
    }
}

/// The lines of a chunk with their numbers. Each is whole: a transaction wrote them.
fn lines(chunk: &Chunk) -> Vec<(u64, LogEvent)> {
    let lines = chunk.data.split_inclusive(|byte| *byte == b'\n');
    (chunk.first_line..)
        .zip(lines)
        .filter_map(|(number, text)| Some((number, line::read(text)?)))
        .collect()
}

fn forwards(
    tx: &mut dyn Tx,
    (job, producer): Log,
    query: &LogQuery,
    token: Option<u64>,
) -> Result<LogPage, DbError> {
    let mut page = LogPage::default();
    let mut from = token.unwrap_or(0);
    let mut chunks = match (token, query.after) {
        (None, Some(after)) => logs::after(tx, job, producer, after, CHUNKS)?,
        _ => logs::from_line(tx, job, producer, from, CHUNKS)?,
    };
    loop {
        let Some(end) = chunks.last().map(|it| it.first_line + it.lines) else {
            return Ok(page);
        };
        for (number, event) in chunks.iter().flat_map(lines) {
            if query.before.is_some_and(|before| event.timestamp >= before) {
                return Ok(page);
            }
            let is_wanted =
                number >= from && query.after.is_none_or(|after| event.timestamp > after);
            if is_wanted && page.logs.len() >= query.limit {
                page.next_token = Some(number.to_string());
                return Ok(page);
            }
            if is_wanted {
                page.logs.push(event);
            }
        }
        from = end;
        chunks = logs::from_line(tx, job, producer, from, CHUNKS)?;
        // The chunk before is answered where no other begins there.
        chunks.retain(|it| it.first_line >= end);
    }
}

fn backwards(
    tx: &mut dyn Tx,
    (job, producer): Log,
    query: &LogQuery,
    token: Option<u64>,
) -> Result<LogPage, DbError> {
    let mut page = LogPage::default();
    let mut end = token.unwrap_or(u64::MAX);
    loop {
        let chunks = logs::before_line(tx, job, producer, end, CHUNKS)?;
        let Some(first) = chunks.last().map(|it| it.first_line) else {
            return Ok(page);
        };
        for (number, event) in chunks.iter().flat_map(|it| lines(it).into_iter().rev()) {
            if number >= end {
                continue;
            }
            if query.after.is_some_and(|after| event.timestamp <= after) {
                return Ok(page);
            }
            if query.before.is_none_or(|before| event.timestamp < before) {
                if page.logs.len() >= query.limit {
                    page.next_token = Some((number + 1).to_string());
                    return Ok(page);
                }
                page.logs.push(event);
            }
        }
        end = first;
    }
}

#[cfg(test)]
mod tests {
    use dstack_engine::ids::Ids;
    use dstack_store::{Store, StoreConfig};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::super::{FileLogs, LogEntry, LogKey, LogQuery, Logs, Producer};
    use super::DatabaseLogs;

    fn at(number: i64) -> Timestamp {
        Timestamp::from_microsecond(1_700_000_000_000_000 + number).unwrap()
    }

    /// All pages of a query, and how many there were.
    async fn pages(logs: &Logs, key: &LogKey, mut query: LogQuery) -> (Vec<String>, usize) {
        let (mut all, mut count) = (Vec::new(), 0);
        loop {
            let page = logs.poll(key, query.clone()).await.unwrap();
            count += 1;
            assert!(page.logs.len() <= query.limit);
            all.extend(
                page.logs
                    .iter()
                    .map(|it| format!("{} {}", it.timestamp, it.message)),
            );
            match page.next_token {
                Some(token) => query.token = Some(token),
                None => return (all, count),
            }
        }
    }

    #[tokio::test]
    async fn pages_are_those_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(StoreConfig::file(folder.path().join("sqlite.db"))).unwrap();
        let files = Logs::Files(FileLogs::new(folder.path().to_owned()));
        let database = Logs::Database(DatabaseLogs::new(store));
        let key = LogKey {
            project: "main".to_owned(),
            run: "run".to_owned(),
            submission: Uuid::from_u128(1),
            producer: Producer::Job,
        };
        let mut ids = Ids::from_number(7);
        let mut time = 0;
        for _ in 0..60 {
            let mut entries = Vec::new();
            for _ in 0..ids.below(40) {
                time += 1 + i64::try_from(ids.below(1000)).unwrap();
                let length = usize::try_from(ids.below(600)).unwrap();
                let mut message = vec![b'x'; length];
                message.push(if ids.below(20) == 0 { 0xff } else { b'\n' });
                entries.push(LogEntry {
                    at: at(time),
                    message,
                });
            }
            files.append(&key, entries.clone()).await.unwrap();
            database.append(&key, entries.clone()).await.unwrap();
            // Once more, as after a crash before the position was written.
            database.append(&key, entries).await.unwrap();
        }
        for number in 0..60 {
            let some = |ids: &mut Ids| {
                let micros = i64::try_from(ids.below(time.unsigned_abs() + 100)).unwrap();
                (ids.below(3) == 0).then(|| at(micros))
            };
            let query = LogQuery {
                after: some(&mut ids),
                before: some(&mut ids),
                descending: number % 2 == 0,
                token: None,
                limit: 1 + usize::try_from(ids.below(400)).unwrap(),
            };
            let ours = pages(&database, &key, query.clone()).await;
            assert_eq!(ours, pages(&files, &key, query.clone()).await, "{query:?}");
        }
    }
}
