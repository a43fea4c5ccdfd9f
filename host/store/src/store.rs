//! The store: one thread that writes, a few that read, and the queues before them.
//!
//! Writers queue up; the writer thread takes what has queued (at most [`GROUP`]) into one transaction, each write in
//! its own savepoint, commits once, and only then answers. So a hundred small writes cost one commit, a failed write
//! undoes itself alone, and an answer means that the change is in the database.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, oneshot};

use crate::config::{Database, StoreConfig};
use crate::error::DbError;
use crate::news::{Clock, Ears, Heard, News};
use crate::tx::Tx;
use crate::{postgres, sqlite};

/// The most writes in one transaction.
pub const GROUP: usize = 64;
/// Queued requests before callers have to wait.
pub(crate) const QUEUE: usize = 1024;

/// The handle to the database; clones share it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    queues: Option<Queues>,
    threads: Vec<JoinHandle<()>>,
    database: Database,
    ears: Arc<Ears>,
    clock: Arc<Clock>,
}

/// The ways to the threads; the threads end when these are dropped.
pub(crate) struct Queues {
    pub(crate) writes: mpsc::Sender<Box<dyn WriteJob>>,
    pub(crate) reads: mpsc::Sender<ReadJob>,
    /// Where there are other replicas to be told.
    pub(crate) news: Option<mpsc::Sender<News>>,
}

/// A queued read: given its snapshot, or why there is none.
pub(crate) type ReadJob = Box<dyn FnOnce(Result<&mut dyn Tx, DbError>) + Send>;

/// A queued write: run inside its savepoint, answered after the commit.
pub(crate) trait WriteJob: Send {
    /// Runs the closure; true keeps its changes.
    fn run(&mut self, tx: &mut dyn Tx) -> bool;
    /// Replaces the result when the transaction as a whole failed.
    fn answer(self: Box<Self>, failed: Option<&DbError>);
}

struct Write<T, E, F> {
    work: Option<F>,
    result: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<T, E, F> WriteJob for Write<T, E, F>
where
    T: Send,
    E: From<DbError> + Send,
    F: FnOnce(&mut dyn Tx) -> Result<T, E> + Send,
{
    fn run(&mut self, tx: &mut dyn Tx) -> bool {
        let Some(work) = self.work.take() else {
            return false;
        };
        let result = guarded(|| work(tx));
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn answer(self: Box<Self>, failed: Option<&DbError>) {
        let result = match (failed, self.result) {
            (Some(error), None | Some(Ok(_))) => Err(E::from(error.clone())),
            (_, Some(result)) => result,
            (None, None) => Err(E::from(DbError::Closed)),
        };
        // The caller may have gone away; the change stays all the same.
        drop(self.reply.send(result));
    }
}

/// Turns a panic of the closure into an error, so that one bad request does not end the thread.
fn guarded<T, E: From<DbError>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<&str>()
            .map(|it| (*it).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        tracing::error!(reason, "a database step panicked");
        Err(E::from(DbError::Panicked { reason }))
    })
}

impl Store {
    /// Opens the database, migrates it, and starts the threads.
    ///
    /// # Errors
    /// Another server uses the file, the database is not ours or too new, or it cannot be opened or reached.
    pub fn open(config: StoreConfig) -> Result<Self, DbError> {
        let (ears, clock) = (Arc::<Ears>::default(), Arc::<Clock>::default());
        let (queues, threads) = match &config.database {
            Database::Sqlite(path) => sqlite::threads::open(&config, path)?,
            Database::Postgres(address) => {
                postgres::open(&config, address, (ears.clone(), clock.clone()))?
            }
        };
        let inner = Inner {
            queues: Some(queues),
            threads,
            database: config.database,
            ears,
            clock,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.inner.database
    }

    /// Whether other servers may work on the same database.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.inner.database, Database::Postgres(_))
    }

    /// The time that all servers of this database share, in the precision of its columns.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// How far the clock of this machine is ahead of the database's; zero where they are the same.
    #[must_use]
    pub fn clock_skew(&self) -> SignedDuration {
        self.inner.clock.skew()
    }

    /// Tells the other servers of this database something, if there can be any. After a commit only.
    pub fn tell(&self, news: News) {
        let queue = self.inner.queues.as_ref().and_then(|it| it.news.as_ref());
        if let Some(queue) = queue
            && queue.try_send(news).is_err()
        {
            tracing::debug!(
                "there are too many news for the other servers; they look by themselves"
            );
        }
    }

    /// Calls this with what the other servers tell, for the rest of the store's life. It must not block. Only the first call
    /// counts.
    pub fn listen(&self, ear: impl Fn(Heard) + Send + Sync + 'static) {
        if !self.inner.ears.set(Box::new(ear)) {
            tracing::warn!("somebody listens to the news already");
        }
    }

    /// Reads in one consistent snapshot, on a reading thread.
    ///
    /// # Errors
    /// What the closure answers, or [`DbError::Closed`].
    pub async fn read<T, F>(&self, work: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Tx) -> Result<T, DbError> + Send + 'static,
    {
        self.read_as(work).await
    }

    /// Writes in one transaction, on the writing thread; the answer comes after the commit.
    ///
    /// # Errors
    /// What the closure answers (then nothing of it is written), or the commit's failure.
    pub async fn write<T, F>(&self, work: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Tx) -> Result<T, DbError> + Send + 'static,
    {
        self.write_as(work).await
    }

    /// Like [`Store::read`] with the caller's own error type.
    ///
    /// # Errors
    /// What the closure answers, or [`DbError::Closed`].
    pub async fn read_as<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
        F: FnOnce(&mut dyn Tx) -> Result<T, E> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: ReadJob = Box::new(move |snapshot| {
            let found = match snapshot {
                Ok(tx) => guarded(|| work(tx)),
                Err(error) => Err(E::from(error)),
            };
            // The caller may have gone away: nobody to tell.
            drop(reply.send(found));
        });
        let Some(queues) = &self.inner.queues else {
            return Err(DbError::Closed.into());
        };
        queues.reads.send(job).await.map_err(|_| DbError::Closed)?;
        answer.await.unwrap_or_else(|_| Err(DbError::Closed.into()))
    }

    /// Like [`Store::write`] with the caller's own error type, for refusals that are no database errors.
    ///
    /// # Errors
    /// What the closure answers (then nothing of it is written), or the commit's failure.
    pub async fn write_as<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
        F: FnOnce(&mut dyn Tx) -> Result<T, E> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Write {
            work: Some(work),
            result: None,
            reply,
        });
        let Some(queues) = &self.inner.queues else {
            return Err(DbError::Closed.into());
        };
        queues.writes.send(job).await.map_err(|_| DbError::Closed)?;
        answer.await.unwrap_or_else(|_| Err(DbError::Closed.into()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queues = None;
        let me = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // The last handle may be dropped by a closure on one of these threads, which cannot wait for itself.
            if thread.thread().id() != me && thread.join().is_err() {
                tracing::error!("a database thread ended by a panic");
            }
        }
    }
}

pub(crate) fn spawn(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, DbError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| DbError::Sql {
            reason: format!("cannot start the thread {name}: {error}"),
        })
}
