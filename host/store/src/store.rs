//! The store: one thread that writes, a few that read, and the queues before them.
//!
//! Writers queue up; the writer thread takes what has queued (at most [`GROUP`]) into one transaction, each write in
//! its own savepoint, commits once, and only then answers. So a hundred small writes cost one commit, a failed write
//! undoes itself alone, and an answer means that the change is in the file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::error::DbError;
use crate::sqlite::{self, SqliteTx};
use crate::tx::Tx;

/// The most writes in one transaction.
pub const GROUP: usize = 64;
/// Queued requests before callers have to wait.
const QUEUE: usize = 1024;

/// Where the database is and how many threads read it.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The SQLite file; its folder is made when missing.
    pub path: PathBuf,
    /// Threads that read; each has its own connection.
    pub readers: usize,
    /// Whether events are written down.
    pub keeps_events: bool,
}

impl StoreConfig {
    /// A file with the usual two readers.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            readers: 2,
            keeps_events: true,
        }
    }

    /// From a database address: `sqlite:///absolute/path`, also in the form `sqlite+aiosqlite:///…`, or a bare path.
    ///
    /// # Errors
    /// Any other scheme.
    pub fn from_url(url: &str) -> Result<Self, DbError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Ok(Self::file(url));
        };
        match scheme {
            // Three slashes are a relative path and four an absolute one in one convention, three an absolute one in
            // the other; paths of servers are absolute in practice, so both are read as absolute.
            "sqlite" | "sqlite+aiosqlite" if rest.starts_with('/') => {
                Ok(Self::file(format!("/{}", rest.trim_start_matches('/'))))
            }
            _ => Err(DbError::Unsupported {
                url: format!("{scheme}://…"),
            }),
        }
    }
}

/// The handle to the database; clones share it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    writes: Option<mpsc::Sender<Box<dyn WriteJob>>>,
    reads: Option<mpsc::Sender<ReadJob>>,
    threads: Vec<JoinHandle<()>>,
    path: PathBuf,
}

type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// A queued write: run inside its savepoint, answered after the commit.
trait WriteJob: Send {
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
    /// Another server uses the file, the file is not ours or too new, or it cannot be opened.
    pub fn open(config: StoreConfig) -> Result<Self, DbError> {
        let lock = sqlite::lock(&config.path)?;
        let mut writer = sqlite::open_writer(&config.path)?;
        crate::migrations::migrate(&mut writer)?;
        // This process alone has the file, so whoever held a lease is gone.
        let keeps_events = config.keeps_events;
        crate::lease::release_all(&mut SqliteTx {
            connection: &writer,
            keeps_events,
        })?;
        let (writes, queue) = mpsc::channel(QUEUE);
        let mut threads = vec![spawn("db-write", move || {
            write_loop(&writer, queue, keeps_events);
            drop(writer);
            drop(lock);
        })?];
        let (reads, queue) = mpsc::channel(QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..config.readers.max(1) {
            let connection = sqlite::open_reader(&config.path)?;
            let queue = queue.clone();
            threads.push(spawn("db-read", move || read_loop(&connection, &queue))?);
        }
        let inner = Inner {
            writes: Some(writes),
            reads: Some(reads),
            threads,
            path: config.path,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The database file.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.inner.path
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
        let job: ReadJob = Box::new(move |connection| {
            // The caller may have gone away: nobody to tell.
            drop(reply.send(in_snapshot(connection, work)));
        });
        let Some(reads) = &self.inner.reads else {
            return Err(DbError::Closed.into());
        };
        reads.send(job).await.map_err(|_| DbError::Closed)?;
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
        let Some(writes) = &self.inner.writes else {
            return Err(DbError::Closed.into());
        };
        writes.send(job).await.map_err(|_| DbError::Closed)?;
        answer.await.unwrap_or_else(|_| Err(DbError::Closed.into()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.writes = None;
        self.reads = None;
        let me = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // The last handle may be dropped by a closure on one of these threads, which cannot wait for itself.
            if thread.thread().id() != me && thread.join().is_err() {
                tracing::error!("a database thread ended by a panic");
            }
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, DbError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| DbError::Sql {
            reason: format!("cannot start the thread {name}: {error}"),
        })
}

fn read_loop(connection: &Connection, queue: &Mutex<mpsc::Receiver<ReadJob>>) {
    loop {
        // One reader waits in the queue, the others for the mutex; a job is taken by exactly one.
        let job = queue
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .blocking_recv();
        let Some(job) = job else { return };
        job(connection);
    }
}

fn in_snapshot<T, E, F>(connection: &Connection, work: F) -> Result<T, E>
where
    E: From<DbError>,
    F: FnOnce(&mut dyn Tx) -> Result<T, E>,
{
    statement(connection, "BEGIN")?;
    let result = guarded(|| {
        work(&mut SqliteTx {
            connection,
            keeps_events: false,
        })
    });
    statement(connection, "ROLLBACK")?;
    result
}

fn write_loop(
    connection: &Connection,
    mut queue: mpsc::Receiver<Box<dyn WriteJob>>,
    keeps_events: bool,
) {
    let mut group: Vec<Box<dyn WriteJob>> = Vec::with_capacity(GROUP);
    while let Some(first) = queue.blocking_recv() {
        group.push(first);
        while group.len() < GROUP
            && let Ok(next) = queue.try_recv()
        {
            group.push(next);
        }
        let failed = write_group(connection, &mut group, keeps_events).err();
        if let Some(error) = &failed {
            tracing::error!(%error, writes = group.len(), "a group of writes was not committed");
            if !connection.is_autocommit()
                && let Err(error) = statement(connection, "ROLLBACK")
            {
                tracing::error!(%error, "a failed group of writes could not be rolled back");
            }
        }
        for job in group.drain(..) {
            job.answer(failed.as_ref());
        }
    }
}

fn write_group(
    connection: &Connection,
    group: &mut [Box<dyn WriteJob>],
    keeps_events: bool,
) -> Result<(), DbError> {
    statement(connection, "BEGIN IMMEDIATE")?;
    let mut tx = SqliteTx {
        connection,
        keeps_events,
    };
    for job in group {
        statement(connection, "SAVEPOINT one")?;
        if !job.run(&mut tx) {
            statement(connection, "ROLLBACK TO one")?;
        }
        statement(connection, "RELEASE one")?;
    }
    statement(connection, "COMMIT")
}

fn statement(connection: &Connection, text: &str) -> Result<(), DbError> {
    connection.prepare_cached(text)?.execute([])?;
    Ok(())
}
