//! Logs of jobs, behind one trait: where they are kept is a setting.
//!
//! | store | when | a page's token |
//! |---|---|---|
//! | files | usually | byte offset |
//! | database | servers share one and no folder | number of a line |
//! | CloudWatch Logs, Google Cloud Logging | set | the provider's |
//! | Fluent Bit | set; read back from Elasticsearch | sort values of the last hit |
//!
//! ```text
//! <root>/projects/<project>/logs/<run>/<submission>/job.log
//!                                                   runner.log
//! ```
//! A log is only ever appended to. Reading the last page costs as much as reading the first one.

mod care;
mod cloudwatch;
mod database;
mod elastic;
mod file;
mod fluentbit;
mod forward;
mod google;
mod line;
mod news;
mod open;
mod pieces;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dstack_api::logs::JobSubmissionLogs;
use jiff::Timestamp;
use uuid::Uuid;

use crate::outside::OutsideError;
use care::Care;
pub use database::DatabaseLogs;
pub use file::FileLogs;
use news::News;
pub(crate) use open::open;

/// Entries one by one, made while they are written.
pub type Entries = Box<dyn Iterator<Item = LogEntry> + Send>;

/// What a store answers, later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LogError>> + Send + 'a>>;

/// A place where logs are kept.
pub trait LogStore: std::fmt::Debug + Send + Sync {
    /// Adds entries at the end, in their order.
    ///
    /// # Errors
    /// Then none of the entries may be taken as stored.
    fn append<'a>(&'a self, key: &'a LogKey, entries: Entries) -> Answer<'a, ()>;

    /// Reads a page. A log that is not there is empty.
    ///
    /// # Errors
    /// A token that is none of the store's, or the store itself.
    fn poll<'a>(&'a self, key: &'a LogKey, query: LogQuery) -> Answer<'a, LogPage>;

    /// The time up to which everything is stored, in microseconds; `i64::MIN` for nothing, or where the store itself leaves
    /// out what it has.
    ///
    /// # Errors
    /// As [`LogStore::poll`].
    fn stored_until<'a>(&'a self, key: &'a LogKey) -> Answer<'a, i64>;

    /// Refuses a token that is none of the store's, also where there is nothing to read.
    ///
    /// # Errors
    /// [`LogError::BadToken`].
    fn check_token(&self, query: &LogQuery) -> Result<(), LogError> {
        query.number().map(drop)
    }

    /// Deletes logs that have nothing as late as `time`; answers how many parts went. Providers have their own rules for that.
    ///
    /// # Errors
    /// As [`LogStore::append`].
    fn drop_before(&self, _time: Timestamp) -> Answer<'_, u64> {
        Box::pin(async { Ok(0) })
    }

    /// How far away it is.
    fn reach(&self) -> Reach;
}

/// How far away a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Written by this server alone, or asked for next to nothing.
    Here {
        /// How often a reader looks for what another server has appended; none where there is no other.
        others: Option<Duration>,
    },
    /// A provider: it may be slow or gone, and each question counts.
    Outside,
}

/// Where logs are kept. Clones are one.
#[derive(Debug, Clone)]
pub struct Logs {
    store: Arc<dyn LogStore>,
    news: News,
    care: Arc<Care>,
}

impl Logs {
    /// Over a store.
    pub fn new(store: impl LogStore + 'static) -> Self {
        Self {
            store: Arc::new(store),
            news: News::default(),
            care: Arc::default(),
        }
    }

    /// Whether a question to the store costs next to nothing.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self.store.reach(), Reach::Here { .. })
    }

    /// Adds entries at the end, in their order. When this answers, a reader sees them, or will as soon as the provider shows
    /// them.
    ///
    /// A provider that does not answer is left alone for a while: nobody waits for it then, and what comes is refused at once.
    ///
    /// # Errors
    /// The store; then none of the entries may be taken as stored.
    pub async fn append<I>(&self, key: &LogKey, entries: I) -> Result<(), LogError>
    where
        I: IntoIterator<Item = LogEntry>,
        I::IntoIter: Send + 'static,
    {
        let entries: Entries = Box::new(entries.into_iter());
        if self.is_here() {
            self.store.append(key, entries).await?;
        } else {
            self.care.over(self.store.append(key, entries)).await?;
        }
        self.news.tell(key);
        Ok(())
    }

    /// The time up to which everything is stored: see [`LogStore::stored_until`].
    ///
    /// # Errors
    /// As [`Logs::poll`].
    pub(crate) async fn stored_until(&self, key: &LogKey) -> Result<i64, LogError> {
        if self.is_here() {
            self.store.stored_until(key).await
        } else {
            self.care.over(self.store.stored_until(key)).await
        }
    }

    /// Deletes what is older: see [`LogStore::drop_before`].
    ///
    /// # Errors
    /// As [`Logs::append`].
    pub(crate) async fn drop_before(&self, time: Timestamp) -> Result<u64, LogError> {
        self.store.drop_before(time).await
    }

    /// Reads a page; if it is empty, waits up to `patience` for something to be appended and reads again.
    ///
    /// # Errors
    /// As [`Logs::poll`].
    pub async fn poll_patiently(
        &self,
        key: &LogKey,
        query: LogQuery,
        patience: Duration,
    ) -> Result<LogPage, LogError> {
        let others = match self.store.reach() {
            Reach::Here { others } => others,
            Reach::Outside => None,
        };
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
            let wait = others.map_or(left, |others| left.min(others));
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
    /// A token that is none of ours, or the store.
    pub async fn poll(&self, key: &LogKey, query: LogQuery) -> Result<LogPage, LogError> {
        self.check_token(&query)?;
        self.store.poll(key, query).await
    }

    /// Refuses a token that is none of ours, also where there is nothing to read.
    ///
    /// # Errors
    /// [`LogError::BadToken`].
    pub(crate) fn check_token(&self, query: &LogQuery) -> Result<(), LogError> {
        self.store.check_token(query)
    }
}

/// Whose output it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Producer {
    /// The job's commands.
    Job,
    /// The runner itself.
    Runner,
}

impl Producer {
    /// `job` or `runner`, as in names of files and streams.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Runner => "runner",
        }
    }
}

/// The log of one submission. The names come from the database, never from a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogKey {
    /// Project.
    pub project: String,
    /// Run.
    pub run: String,
    /// Submission of the job.
    pub submission: Uuid,
    /// Whose output.
    pub producer: Producer,
}

impl LogKey {
    /// The parts with something between them: the names of streams at providers, the same as the compatible server's.
    pub(crate) fn joined(&self, between: &str) -> String {
        [
            self.project.as_str(),
            self.run.as_str(),
            &self.submission.to_string(),
            self.producer.word(),
        ]
        .join(between)
    }
}

/// A piece of output: usually a line, with its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was written.
    pub at: Timestamp,
    /// The bytes as they were written.
    pub message: Vec<u8>,
}

/// Which part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// Only what is later than this.
    pub after: Option<Timestamp>,
    /// Only what is earlier than this.
    pub before: Option<Timestamp>,
    /// Newest first.
    pub descending: bool,
    /// Token of the previous page.
    pub token: Option<String>,
    /// Entries at most.
    pub limit: usize,
}

impl LogQuery {
    /// The newest entry.
    pub(crate) const LAST: Self = Self {
        after: None,
        before: None,
        descending: true,
        token: None,
        limit: 1,
    };

    /// The token of a store whose tokens are numbers.
    ///
    /// # Errors
    /// [`LogError::BadToken`].
    pub(crate) fn number(&self) -> Result<Option<u64>, LogError> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let digits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
        token
            .parse()
            .ok()
            .filter(|_| digits)
            .map(Some)
            .ok_or_else(|| LogError::BadToken(token.clone()))
    }

    /// Refuses a token that no provider gives: empty, very long, or with characters that are not seen.
    ///
    /// # Errors
    /// [`LogError::ForeignToken`].
    pub(crate) fn check_opaque(&self) -> Result<(), LogError> {
        match &self.token {
            Some(token)
                if token.is_empty()
                    || token.len() > 4096
                    || !token.bytes().all(|byte| byte.is_ascii_graphic()) =>
            {
                Err(LogError::ForeignToken(token.chars().take(100).collect()))
            }
            _ => Ok(()),
        }
    }
}

/// Why logs cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The token is none of ours.
    #[error("Invalid next_token: {0}. Must be a non-negative integer.")]
    BadToken(String),
    /// The token is none of the provider's.
    #[error("Invalid next_token: {0}.")]
    ForeignToken(String),
    /// The provider allows fewer questions than are asked.
    #[error(
        "The provider of logs allows no more reads at the moment. Try again, or have its quota for reads raised."
    )]
    TooManyReads,
    /// The database refused.
    #[error("cannot use the logs of the database")]
    Database(#[from] dstack_store::DbError),
    /// The file system refused.
    #[error("cannot use the log file {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The provider refused, or cannot be reached.
    #[error("cannot use {store}: {why}")]
    Outside {
        /// Which provider.
        store: &'static str,
        /// What it said.
        why: String,
        /// Whether nobody answers there.
        is_gone: bool,
    },
    /// The provider did not answer before, and is left alone for a while.
    #[error("the provider of logs did not answer; it is asked again soon")]
    Resting,
}

impl LogError {
    /// From what a provider's client says.
    pub(crate) fn outside(store: &'static str) -> impl Fn(OutsideError) -> Self {
        move |error| Self::Outside {
            store,
            is_gone: matches!(error, OutsideError::Unreachable { .. }),
            why: error.to_string(),
        }
    }
}

/// Bytes of messages after which a page is full, whatever number of entries was asked for: entries may be long, and many may
/// ask at once.
const PAGE: usize = 4 << 20;

/// Whether a page has room for one more.
fn has_room(page: &LogPage, bytes: usize, query: &LogQuery) -> bool {
    page.logs.len() < query.limit && (page.logs.is_empty() || bytes < PAGE)
}

/// A page of a log, as the API answers it.
pub type LogPage = JobSubmissionLogs;

#[cfg(test)]
pub(crate) mod tests {
    use super::{LogKey, LogQuery, Logs};

    pub(crate) fn query() -> LogQuery {
        LogQuery {
            descending: false,
            limit: 1000,
            ..LogQuery::LAST
        }
    }

    /// The texts of all pages of a query, and how many pages there were.
    pub(crate) async fn pages(
        logs: &Logs,
        key: &LogKey,
        mut query: LogQuery,
    ) -> (Vec<String>, usize) {
        let (mut all, mut count) = (Vec::new(), 0);
        loop {
            let page = logs.poll(key, query.clone()).await.unwrap();
            count += 1;
            assert!(page.logs.len() <= query.limit);
            for event in &page.logs {
                all.push(String::from_utf8(event.bytes().unwrap()).unwrap());
            }
            match page.next_token {
                Some(token) => query.token = Some(token),
                None => return (all, count),
            }
        }
    }
}
