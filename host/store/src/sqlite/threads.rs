//! The threads of a SQLite store: one that writes, a few that read, each with its connection.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::SqliteTx;
use crate::config::StoreConfig;
use crate::error::DbError;
use crate::store::{GROUP, QUEUE, Queues, ReadJob, WriteJob, spawn};

/// Opens the file, migrates it, and starts the threads.
pub(crate) fn open(
    config: &StoreConfig,
    path: &Path,
) -> Result<(Queues, Vec<JoinHandle<()>>), DbError> {
    let lock = super::lock(path)?;
    let mut writer = super::open_writer(path)?;
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
        let connection = super::open_reader(path)?;
        let queue = queue.clone();
        threads.push(spawn("db-read", move || read_loop(&connection, &queue))?);
    }
    let queues = Queues {
        writes,
        reads,
        news: None,
    };
    Ok((queues, threads))
}

fn read_loop(connection: &Connection, queue: &Mutex<mpsc::Receiver<ReadJob>>) {
    loop {
        // One reader waits in the queue, the others for the mutex; a job is taken by exactly one.
        let job = queue
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .blocking_recv();
        let Some(job) = job else { return };
        in_snapshot(connection, job);
    }
}

fn in_snapshot(connection: &Connection, job: ReadJob) {
    if let Err(error) = statement(connection, "BEGIN") {
        return job(Err(error));
    }
    job(Ok(&mut SqliteTx {
        connection,
        keeps_events: false,
    }));
    if let Err(error) = statement(connection, "ROLLBACK") {
        tracing::error!(%error, "a snapshot could not be left");
    }
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
