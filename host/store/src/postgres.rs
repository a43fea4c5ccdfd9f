//! PostgreSQL: a database that several servers share.
//!
//! Each server has one connection that writes, a few that read, and one for news. All threads are the store's own; nothing here
//! runs on the server's async threads.

mod address;
mod bus;
mod cells;
mod schema;
mod session;
mod threads;
mod tls;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use jiff::Timestamp;
use tokio::sync::mpsc;

pub use address::Address;

use crate::config::StoreConfig;
use crate::error::DbError;
use crate::news::{Clock, Ears, News};
use crate::sql::Sql;
use crate::store::{Queues, ReadJob, WriteJob, spawn};
use crate::{params, sql};
use session::Session;

/// News that wait to be sent; more are left out, since whoever is not told looks by itself.
const NEWS: usize = 1024;

/// Opens the database, migrates it, and starts the threads.
pub(crate) fn open(
    config: &StoreConfig,
    address: &Address,
    (ears, clock): (Arc<Ears>, Arc<Clock>),
) -> Result<(Queues, Vec<JoinHandle<()>>), DbError> {
    // Opening waits for the network, which a thread of an async runtime may not.
    let opened = std::thread::scope(|scope| {
        scope
            .spawn(|| connections(config, address, &clock))
            .join()
            .unwrap_or_else(|_| {
                Err(DbError::Panicked {
                    reason: "while the database was opened".to_owned(),
                })
            })
    });
    let (writer, readers) = opened?;
    let (keeps_events, timeout) = (config.keeps_events, config.command_timeout);
    let (writes, queue) = mpsc::channel::<Box<dyn WriteJob>>(crate::store::QUEUE);
    let mut running = vec![spawn("db-write", move || {
        threads::write_loop(writer, queue, keeps_events, timeout);
    })?];
    let (reads, queue) = mpsc::channel::<ReadJob>(crate::store::QUEUE);
    let queue = Arc::new(Mutex::new(queue));
    for session in readers {
        let queue = queue.clone();
        running.push(spawn("db-read", move || {
            threads::read_loop(session, &queue, timeout);
        })?);
    }
    let (news, told) = mpsc::channel::<News>(NEWS);
    let direct = config.direct.clone().unwrap_or_else(|| address.clone());
    running.push(spawn(
        "db-news",
        move || match tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => runtime.block_on(bus::run(direct, told, bus::Shared { ears, clock })),
            Err(error) => tracing::error!(%error, "news of other servers are not listened to"),
        },
    )?);
    let queues = Queues {
        writes,
        reads,
        news: Some(news),
    };
    Ok((queues, running))
}

fn connections(
    config: &StoreConfig,
    address: &Address,
    clock: &Clock,
) -> Result<(Session, Vec<Session>), DbError> {
    const TIME: Sql =
        sql!("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)");
    let mut writer = Session::open(address)?;
    schema::check(&mut writer)?;
    schema::migrate(&mut writer)?;
    let asked = std::time::Instant::now();
    let time = threads::look(&mut writer, |tx| {
        tx.first(TIME, params![], |mut row| row.take::<Timestamp>())
    })?;
    if let Some(time) = time {
        clock.set(time, asked);
    }
    let readers = (0..config.readers.max(1))
        .map(|_| Session::open(address))
        .collect::<Result<_, _>>()?;
    Ok((writer, readers))
}
