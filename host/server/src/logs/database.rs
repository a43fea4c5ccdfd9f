//! Logs in the database, for servers that share one and no folder: the same lines as in files, in chunks.
//!
//! A page's token is the number of a line.

use std::time::Duration;

use dstack_api::logs::LogEvent;
use dstack_engine::ids::JobId;
use dstack_store::logs::{self, Chunk};
use dstack_store::{DbError, Store, Tx};
use jiff::Timestamp;

use super::{
    Answer, Entries, LogEntry, LogError, LogKey, LogPage, LogQuery, LogStore, Reach, has_room, line,
};

/// A chunk that is larger gets no more lines, and one is begun anew behind this size.
const FULL: usize = 8 * 1024;
const LARGEST: usize = 64 * 1024;
/// How often a reader looks for what another server has appended.
const OTHERS: Duration = Duration::from_secs(1);
/// Chunks read at once.
const CHUNKS: u32 = 8;
/// Chunks deleted in one transaction, so that others get their turn.
const AT_ONCE: u32 = 200;

/// The store of logs.
#[derive(Clone)]
pub struct DatabaseLogs {
    store: Store,
}

impl std::fmt::Debug for DatabaseLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatabaseLogs")
    }
}

impl DatabaseLogs {
    /// Logs in this database.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Adds entries at the end, in their order. What is not later than the last entry is there already: another server, or
    /// this one before it was killed, has stored it.
    ///
    /// # Errors
    /// The database; then none of the entries may be taken as stored.
    pub async fn append(&self, key: &LogKey, entries: Vec<LogEntry>) -> Result<(), LogError> {
        let (job, producer) = (JobId(key.submission), key.producer.word());
        self.store
            .write(move |tx| append(tx, (job, producer), &entries))
            .await?;
        Ok(())
    }

    /// Reads a page. A log that is not there is empty.
    ///
    /// # Errors
    /// A token that is none of ours, or the database.
    pub async fn poll(&self, key: &LogKey, query: LogQuery) -> Result<LogPage, LogError> {
        let token = query.number()?;
        let of = (JobId(key.submission), key.producer.word());
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

impl LogStore for DatabaseLogs {
    fn append<'a>(&'a self, key: &'a LogKey, entries: Entries) -> Answer<'a, ()> {
        Box::pin(self.append(key, entries.collect()))
    }

    fn poll<'a>(&'a self, key: &'a LogKey, query: LogQuery) -> Answer<'a, LogPage> {
        Box::pin(self.poll(key, query))
    }

    /// It looks by itself, in the transaction that appends.
    fn stored_until<'a>(&'a self, _key: &'a LogKey) -> Answer<'a, i64> {
        Box::pin(async { Ok(i64::MIN) })
    }

    fn drop_before(&self, time: Timestamp) -> Answer<'_, u64> {
        Box::pin(async move {
            let mut all = 0;
            loop {
                let delete = move |tx: &mut dyn Tx| logs::delete_before(tx, time, AT_ONCE);
                let count = self.store.write(delete).await?;
                all += count;
                if count < u64::from(AT_ONCE) {
                    return Ok(all);
                }
            }
        })
    }

    fn reach(&self) -> Reach {
        Reach::Here {
            others: Some(OTHERS),
        }
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
    let (mut page, mut bytes) = (LogPage::default(), 0);
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
            if is_wanted && !has_room(&page, bytes, query) {
                page.next_token = Some(number.to_string());
                return Ok(page);
            }
            if is_wanted {
                bytes += event.message.len();
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
    let (mut page, mut bytes) = (LogPage::default(), 0);
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
                if !has_room(&page, bytes, query) {
                    page.next_token = Some((number + 1).to_string());
                    return Ok(page);
                }
                bytes += event.message.len();
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
        let files = Logs::new(FileLogs::new(folder.path().to_owned()));
        let database = Logs::new(DatabaseLogs::new(store));
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

    #[tokio::test]
    async fn old_chunks_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(StoreConfig::file(folder.path().join("sqlite.db"))).unwrap();
        let logs = Logs::new(DatabaseLogs::new(store));
        let key = LogKey {
            project: "main".to_owned(),
            run: "run".to_owned(),
            submission: Uuid::from_u128(1),
            producer: Producer::Job,
        };
        for number in 0..300 {
            // A chunk each.
            let message = vec![b'x'; 10_000];
            let entry = LogEntry {
                at: at(number),
                message,
            };
            logs.append(&key, vec![entry]).await.unwrap();
        }
        assert_eq!(logs.drop_before(at(250)).await.unwrap(), 250);
        let query = LogQuery {
            descending: false,
            limit: 1000,
            ..LogQuery::LAST
        };
        let (rest, _) = pages(&logs, &key, query).await;
        assert_eq!(rest.len(), 50);
    }
}
