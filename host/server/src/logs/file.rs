//! The files themselves. Everything here blocks; the async functions move the work to a blocking thread.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dstack_api::logs::LogEvent;
use jiff::Timestamp;

use super::{
    Answer, Entries, LogEntry, LogError, LogKey, LogPage, LogQuery, LogStore, Reach, has_room, line,
};

/// Bytes written at once, and a line more at most.
const WRITE: usize = 256 * 1024;
/// Bytes read at once when going backwards.
const BLOCK: u64 = 64 * 1024;

/// The store of logs.
#[derive(Debug, Clone)]
pub struct FileLogs {
    root: Arc<PathBuf>,
}

impl FileLogs {
    /// Files below `<root>/projects`.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self {
            root: Arc::new(root),
        }
    }

    fn path(&self, key: &LogKey) -> PathBuf {
        let file = format!("{}.log", key.producer.word());
        let mut path = self.root.join("projects");
        path.extend([
            &key.project,
            "logs",
            &key.run,
            &key.submission.to_string(),
            &file,
        ]);
        path
    }

    /// Adds entries at the end, in their order. When this answers, a reader sees them.
    ///
    /// The entries are made one by one while they are written.
    ///
    /// # Errors
    /// The file system refused; then none of the entries is stored.
    pub async fn append<I>(&self, key: &LogKey, entries: I) -> Result<(), LogError>
    where
        I: IntoIterator<Item = LogEntry>,
        I::IntoIter: Send + 'static,
    {
        let entries = entries.into_iter();
        let path = self.path(key);
        blocking(move || append(&path, entries).map_err(|source| LogError::Io { path, source }))
            .await
    }

    /// Reads a page. A log that is not there is empty.
    ///
    /// # Errors
    /// A token that is none of ours, or the file system.
    pub async fn poll(&self, key: &LogKey, query: LogQuery) -> Result<LogPage, LogError> {
        let path = self.path(key);
        blocking(move || {
            let token = query.number()?;
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Ok(LogPage::default());
                }
                Err(source) => return Err(LogError::Io { path, source }),
            };
            let page = if query.descending {
                backwards(&file, &query, token)
            } else {
                forwards(&file, &query, token)
            };
            page.map_err(|source| LogError::Io { path, source })
        })
        .await
    }
}

impl LogStore for FileLogs {
    fn append<'a>(&'a self, key: &'a LogKey, entries: Entries) -> Answer<'a, ()> {
        Box::pin(self.append(key, entries))
    }

    fn poll<'a>(&'a self, key: &'a LogKey, query: LogQuery) -> Answer<'a, LogPage> {
        Box::pin(self.poll(key, query))
    }

    fn stored_until<'a>(&'a self, key: &'a LogKey) -> Answer<'a, i64> {
        Box::pin(async {
            let page = self.poll(key, LogQuery::LAST).await?;
            let last = page.logs.first();
            Ok(last.map_or(i64::MIN, |event| event.timestamp.as_microsecond()))
        })
    }

    fn drop_before(&self, time: Timestamp) -> Answer<'_, u64> {
        let root = Arc::clone(&self.root);
        Box::pin(blocking(move || {
            Ok(retention::drop_before(&root.join("projects"), time))
        }))
    }

    fn reach(&self) -> Reach {
        Reach::Here { others: None }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            Err(LogError::Io {
                path: PathBuf::new(),
                source: std::io::Error::other(error.to_string()),
            })
        })
}

fn append(path: &Path, entries: impl Iterator<Item = LogEntry>) -> std::io::Result<()> {
    let mut entries = entries.peekable();
    if entries.peek().is_none() {
        return Ok(());
    }
    let open = || {
        OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(path)
    };
    let mut file = match open() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            open()?
        }
        other => other?,
    };
    let end = file.seek(SeekFrom::End(0))?;
    let written = write_lines(&mut file, end, entries);
    if written.is_err() {
        // The same comes again, and must not stand there twice. Where this fails too, the file system is broken.
        drop(file.set_len(end));
    }
    written
}

fn write_lines(
    file: &mut File,
    end: u64,
    entries: impl Iterator<Item = LogEntry>,
) -> std::io::Result<()> {
    if end > 0 {
        // A line cut by a crash must not swallow the next one.
        file.seek(SeekFrom::Start(end - 1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    // Whole lines at once: a reader sees them or, at worst, one without its end, which it leaves alone.
    let mut bytes = Vec::new();
    for entry in entries {
        line::write(&entry, &mut bytes);
        if bytes.len() >= WRITE {
            file.write_all(&bytes)?;
            bytes.clear();
        }
    }
    file.write_all(&bytes)
}

fn forwards(file: &File, query: &LogQuery, token: Option<u64>) -> std::io::Result<LogPage> {
    let start = match (token, query.after) {
        (Some(token), _) => token,
        (None, Some(after)) => first_after(file, after)?,
        (None, None) => 0,
    };
    let mut reader = BufReader::new(file);
    let mut at = reader.seek(SeekFrom::Start(start))?;
    let (mut page, mut bytes) = (LogPage::default(), 0);
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let read = reader.read_until(b'\n', &mut buffer)?;
        if buffer.last() != Some(&b'\n') {
            return Ok(page);
        }
        if let Some(event) = line::read(&buffer) {
            if query.before.is_some_and(|before| event.timestamp >= before) {
                return Ok(page);
            }
            if query.after.is_none_or(|after| event.timestamp > after) {
                if !has_room(&page, bytes, query) {
                    // There is more, and it begins here.
                    page.next_token = Some(at.to_string());
                    return Ok(page);
                }
                bytes += event.message.len();
                page.logs.push(event);
            }
        }
        at += u64::try_from(read).unwrap_or(0);
    }
}

/// Lines from the end of the file to its beginning. The token is the end of what was not shown yet.
fn backwards(file: &File, query: &LogQuery, token: Option<u64>) -> std::io::Result<LogPage> {
    let length = file.metadata()?.len();
    let mut end = match token {
        Some(token) => token.min(length),
        None => whole_lines(file, length)?,
    };
    let (mut page, mut bytes) = (LogPage::default(), 0);
    let mut behind = Behind::new(file, end);
    while let Some((start, text)) = behind.line()? {
        if let Some(event) = line::read(&text) {
            if query.after.is_some_and(|after| event.timestamp <= after) {
                return Ok(page);
            }
            if wanted(&event, query) {
                if !has_room(&page, bytes, query) {
                    page.next_token = Some(end.to_string());
                    return Ok(page);
                }
                bytes += event.message.len();
                page.logs.push(event);
            }
        }
        end = start;
    }
    Ok(page)
}

/// Reads lines from behind, each block of the file once.
struct Behind<'a> {
    file: &'a File,
    /// Where the bytes begin in the file.
    from: u64,
    /// What has been read and not been given yet.
    bytes: Vec<u8>,
}

impl<'a> Behind<'a> {
    fn new(file: &'a File, end: u64) -> Self {
        Self {
            file,
            from: end,
            bytes: Vec::new(),
        }
    }

    /// The last line with its end, and where it begins; none at the beginning of the file.
    fn line(&mut self) -> std::io::Result<Option<(u64, Vec<u8>)>> {
        loop {
            let inside = self.bytes.len().saturating_sub(1);
            let mut before = self.bytes.iter().take(inside);
            if let Some(found) = before.rposition(|byte| *byte == b'\n') {
                let line = self.bytes.split_off(found + 1);
                let start = self.from + u64::try_from(found).unwrap_or(0) + 1;
                return Ok(Some((start, line)));
            }
            if self.from == 0 {
                let rest = std::mem::take(&mut self.bytes);
                return Ok((!rest.is_empty()).then_some((0, rest)));
            }
            let start = self.from.saturating_sub(BLOCK);
            let mut earlier = read_range(self.file, start, self.from)?;
            earlier.append(&mut self.bytes);
            (self.bytes, self.from) = (earlier, start);
        }
    }
}

fn wanted(event: &LogEvent, query: &LogQuery) -> bool {
    query.before.is_none_or(|before| event.timestamp < before)
}

/// Where the last whole line ends.
fn whole_lines(file: &File, length: u64) -> std::io::Result<u64> {
    if length == 0 || read_range(file, length - 1, length)? == b"\n" {
        Ok(length)
    } else {
        line_start(file, length + 1)
    }
}

/// Where the line begins that ends (with its line end) at `end`.
fn line_start(file: &File, end: u64) -> std::io::Result<u64> {
    let mut to = end.saturating_sub(1);
    while to > 0 {
        let from = to.saturating_sub(BLOCK);
        let bytes = read_range(file, from, to)?;
        if let Some(found) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + u64::try_from(found).unwrap_or(0) + 1);
        }
        to = from;
    }
    Ok(0)
}

fn read_range(mut file: &File, from: u64, to: u64) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(to.saturating_sub(from)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The offset of a line before which nothing is later than `after`, by halving. Entries are in the order of their times.
fn first_after(file: &File, after: Timestamp) -> std::io::Result<u64> {
    let (mut low, mut high) = (0, file.metadata()?.len());
    while high - low > BLOCK {
        let middle = low + (high - low) / 2;
        let start = line_start(file, middle + 1)?;
        let end = (middle + BLOCK).min(high);
        let bytes = read_range(file, start, end)?;
        let time = bytes
            .split(|byte| *byte == b'\n')
            .next()
            .and_then(line::time);
        match time {
            Some(at) if at <= after && start > low => low = start,
            Some(at) if at > after => high = start.max(low),
            // A damaged or very long line: the rest is read from where we are sure.
            _ => return Ok(low),
        }
    }
    Ok(low)
}

mod retention;

#[cfg(test)]
mod tests;
