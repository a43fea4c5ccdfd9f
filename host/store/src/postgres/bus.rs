//! News between replicas: LISTEN and NOTIFY on a connection of their own.
//!
//! News go out after commits, never inside of one: a notifying transaction would keep every other commit waiting. The first one
//! goes at once, the rest in at most [`PACE`] steps. After every break the receiver is told to look at everything. Where the
//! connection goes through a pooler that drops notifications, a test at the beginning finds out; then all is looked at once a
//! second.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dstack_engine::changes::{Hint, Pipeline};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::address::Address;
use super::session::failed;
use super::tls::Tls;
use crate::error::DbError;
use crate::news::{Clock, Ears, Heard, News, Topic};

const CHANNEL: &str = "dstack_news";
/// At least so long between two notifications.
const PACE: Duration = Duration::from_millis(50);
/// Hints in one notification: the limit is 8,000 bytes, a hint has at most 70.
const HINTS: usize = 100;
/// More hints than this at once are "everything".
const MANY: usize = 1_000;
/// How often the database is asked for its time; a connection that does not answer is given up.
const PULSE: Duration = Duration::from_secs(15);
const ANSWER: Duration = Duration::from_secs(10);
/// How long the test waits for its own notification.
const TEST: Duration = Duration::from_secs(2);
/// How often all is looked at where notifications do not arrive.
const POLL: Duration = Duration::from_secs(1);
/// A clock that is further off is worth a warning.
const SKEW: SignedDuration = SignedDuration::from_secs(2);

/// A notification.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    v: u32,
    src: Uuid,
    #[serde(default)]
    hints: Vec<(String, Uuid)>,
    #[serde(default)]
    changed: Vec<String>,
    #[serde(default)]
    all: bool,
}

/// What the bus shares with the store.
pub(super) struct Shared {
    pub(super) ears: Arc<Ears>,
    pub(super) clock: Arc<Clock>,
}

/// Works until the sender of the news is gone.
pub(super) async fn run(address: Address, mut news: mpsc::Receiver<News>, shared: Shared) {
    let me = Uuid::new_v4();
    let mut wait = Duration::from_millis(100);
    loop {
        let began = Instant::now();
        match connected(&address, me, &mut news, &shared).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(%error, "news between servers are interrupted");
                if began.elapsed() > PULSE {
                    wait = Duration::from_millis(100);
                }
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(5));
        // Nobody can be told now; who listens again looks at everything.
        while news.try_recv().is_ok() {}
        if news.is_closed() {
            return;
        }
    }
}

/// One connection, until it breaks or nobody tells news any more.
async fn connected(
    address: &Address,
    me: Uuid,
    news: &mut mpsc::Receiver<News>,
    shared: &Shared,
) -> Result<(), DbError> {
    let tls = Tls::new(&address.trust)?;
    let (client, mut connection) = address.connect(tls).await?;
    // The connection must always be read, also while a statement of ours waits for its answer.
    let (arrived, mut incoming) = mpsc::channel(1024);
    let reading = tokio::spawn(async move {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                Ok(AsyncMessage::Notification(it)) => {
                    // A full queue is a lot of news: the last one to fit stands for all.
                    if arrived.try_send(it.payload().to_owned()).is_err() {
                        tracing::debug!("news of other servers were dropped");
                    }
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    let client = Client { client, address };
    client.batch(&format!("LISTEN {CHANNEL}")).await?;
    let arrives = arrives(&client, &mut incoming, me).await?;
    if !arrives {
        tracing::warn!(
            "notifications of the database do not arrive, perhaps because of a pooler; this server looks for work once a \
             second. Set DSTACK_DATABASE_DIRECT_URL to an address without a pooler"
        );
    }
    let worked = work(&client, (news, &mut incoming), me, shared, arrives).await;
    reading.abort();
    worked
}

/// The connection for statements.
struct Client<'a> {
    client: tokio_postgres::Client,
    address: &'a Address,
}

impl Client<'_> {
    /// Waits for an answer, but not for ever.
    async fn answered<T>(
        &self,
        asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, DbError> {
        match tokio::time::timeout(ANSWER, asked).await {
            Ok(answer) => answer.map_err(|error| failed(self.address, &error)),
            Err(_) => Err(DbError::Unreachable {
                place: self.address.to_string(),
                reason: format!("no answer within {} s", ANSWER.as_secs()),
            }),
        }
    }

    async fn batch(&self, text: &str) -> Result<(), DbError> {
        self.answered(self.client.batch_execute(text)).await
    }
}

/// Whether a notification of our own comes back.
async fn arrives(
    client: &Client<'_>,
    incoming: &mut mpsc::Receiver<String>,
    me: Uuid,
) -> Result<bool, DbError> {
    let test = Message {
        v: 1,
        src: me,
        hints: Vec::new(),
        changed: Vec::new(),
        all: false,
    };
    send(client, &test).await?;
    let mine = me.to_string();
    let seen = tokio::time::timeout(TEST, async {
        while let Some(payload) = incoming.recv().await {
            if payload.contains(&mine) {
                return true;
            }
        }
        false
    });
    Ok(seen.await.unwrap_or(false))
}

async fn work(
    client: &Client<'_>,
    (news, incoming): (&mut mpsc::Receiver<News>, &mut mpsc::Receiver<String>),
    me: Uuid,
    shared: &Shared,
    arrives: bool,
) -> Result<(), DbError> {
    shared.ears.tell(Heard::Everything);
    let mut pulse = tokio::time::interval(PULSE);
    let mut poll = tokio::time::interval(POLL);
    let mut free_at = tokio::time::Instant::from_std(Instant::now());
    let mut waiting = Waiting::default();
    loop {
        tokio::select! {
            told = news.recv() => match told {
                Some(told) => waiting.add(told),
                None => return Ok(()),
            },
            payload = incoming.recv() => match payload {
                Some(payload) => hear(&payload, me, &shared.ears),
                // The connection is gone; the next statement says why.
                None => {
                    client.batch("").await?;
                    return Ok(());
                }
            },
            () = tokio::time::sleep_until(free_at), if !waiting.is_empty() => {
                for message in waiting.take(me) {
                    send(client, &message).await?;
                }
                free_at = tokio::time::Instant::from_std(Instant::now() + PACE);
            }
            _ = pulse.tick() => look_at_clock(client, shared).await?,
            _ = poll.tick(), if !arrives => shared.ears.tell(Heard::Everything),
        }
    }
}

async fn send(client: &Client<'_>, message: &Message) -> Result<(), DbError> {
    let Ok(text) = serde_json::to_string(message) else {
        return Ok(());
    };
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&CHANNEL, Type::TEXT), (&text, Type::TEXT)];
    let asked = client
        .client
        .query_typed("SELECT pg_notify($1, $2)", &params);
    client.answered(asked).await.map(drop)
}

async fn look_at_clock(client: &Client<'_>, shared: &Shared) -> Result<(), DbError> {
    let asked = Instant::now();
    let text = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)";
    let answer = client
        .answered(client.client.query_typed(text, &[]))
        .await?;
    if let Some(row) = answer.first()
        && let Ok(told) = row.try_get(0)
        && let Ok(time) = Timestamp::from_microsecond(told)
    {
        shared.clock.set(time, asked);
    }
    let skew = shared.clock.skew();
    if skew.abs() > SKEW {
        tracing::warn!(
            ahead_ms = i64::try_from(skew.as_millis()).unwrap_or(i64::MAX),
            "this machine's clock is not the database's; leases go by the database's, but set the clock right"
        );
    }
    Ok(())
}

/// News that wait for their turn.
#[derive(Debug, Default)]
struct Waiting {
    hints: Vec<Hint>,
    changed: Vec<Topic>,
    all: bool,
}

impl Waiting {
    const fn is_empty(&self) -> bool {
        self.hints.is_empty() && self.changed.is_empty() && !self.all
    }

    fn add(&mut self, news: News) {
        match news {
            News::Hints(hints) => {
                for hint in hints {
                    if !self.hints.contains(&hint) {
                        self.hints.push(hint);
                    }
                }
                if self.hints.len() > MANY {
                    self.hints.clear();
                    self.all = true;
                }
            }
            News::Changed(topic) if !self.changed.contains(&topic) => self.changed.push(topic),
            News::Changed(_) => {}
        }
    }

    fn take(&mut self, me: Uuid) -> Vec<Message> {
        let taken = std::mem::take(self);
        let message = |hints: &[Hint]| Message {
            v: 1,
            src: me,
            hints: hints
                .iter()
                .map(|it| (it.pipeline.name().to_owned(), it.id))
                .collect(),
            changed: Vec::new(),
            all: false,
        };
        let mut messages: Vec<Message> = taken.hints.chunks(HINTS).map(message).collect();
        if taken.all || !taken.changed.is_empty() {
            messages.push(Message {
                changed: taken
                    .changed
                    .iter()
                    .map(|it| it.name().to_owned())
                    .collect(),
                all: taken.all,
                ..message(&[])
            });
        }
        messages
    }
}

/// Tells what a notification says, unless it is our own. What is not understood comes from a newer release: look at everything.
fn hear(payload: &str, me: Uuid, ears: &Ears) {
    let Ok(message) = serde_json::from_str::<Message>(payload) else {
        ears.tell(Heard::Everything);
        return;
    };
    if message.src == me {
        return;
    }
    let (mut hints, mut is_known) = (Vec::new(), message.v == 1 && !message.all);
    for (name, id) in &message.hints {
        match Pipeline::ALL.into_iter().find(|it| it.name() == name) {
            Some(pipeline) => hints.push(Hint { pipeline, id: *id }),
            None => is_known = false,
        }
    }
    for name in &message.changed {
        match Topic::ALL.into_iter().find(|it| it.name() == name) {
            Some(topic) => ears.tell(Heard::News(News::Changed(topic))),
            None => is_known = false,
        }
    }
    if !hints.is_empty() {
        ears.tell(Heard::News(News::Hints(hints)));
    }
    if !is_known {
        ears.tell(Heard::Everything);
    }
}
