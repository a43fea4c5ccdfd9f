//! One SSH connection per machine, shared by all calls, made anew when it broke.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::ssh::{Session, Settings};
use crate::{Carrier, CommandOutput, Endpoint, Opening, RemoteError, SshAddress};

/// How long a suspected machine has to show a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);

/// The connections of this process, by address.
pub(crate) struct Pool {
    settings: Settings,
    idle_timeout: Duration,
    slots: Mutex<HashMap<SshAddress, Arc<Slot>>>,
}

/// The place of one machine's connection. The lock is held while connecting, so that many calls
/// at once make one connection.
#[derive(Default)]
struct Slot {
    state: tokio::sync::Mutex<State>,
    used: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// The last attempt's error and when it ended: calls that queued behind it share it.
    failed: Option<(Instant, RemoteError)>,
}

impl Pool {
    pub(crate) fn new(settings: Settings, idle_timeout: Duration) -> Self {
        Self {
            settings,
            idle_timeout,
            slots: Mutex::default(),
        }
    }

    fn slot(&self, to: &SshAddress) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        slots.retain(|address, slot| {
            let used = *slot.used.lock().unwrap_or_else(PoisonError::into_inner);
            let is_idle = used.is_some_and(|at| now.duration_since(at) > self.idle_timeout);
            // Someone who holds the slot is connecting, someone who holds the session is calling.
            let is_held = Arc::strong_count(slot) > 1
                || slot.state.try_lock().map_or(true, |state| {
                    state
                        .session
                        .as_ref()
                        .is_some_and(|s| Arc::strong_count(s) > 1)
                });
            address == to || !is_idle || is_held
        });
        let slot = slots.entry(to.clone()).or_default();
        *slot.used.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Arc::clone(slot)
    }

    /// The machine's live connection, made if there is none.
    async fn session(&self, to: &SshAddress) -> Result<Arc<Session>, RemoteError> {
        let slot = self.slot(to);
        let asked = Instant::now();
        let mut state = slot.state.lock().await;
        if let Some(session) = state.session.as_ref().filter(|s| !s.is_closed()) {
            return Ok(Arc::clone(session));
        }
        if let Some((at, error)) = &state.failed
            && *at > asked
        {
            return Err(error.clone());
        }
        state.session = None;
        match Session::connect(to, &self.settings).await {
            Ok(session) => {
                let session = Arc::new(session);
                state.session = Some(Arc::clone(&session));
                state.failed = None;
                Ok(session)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Takes `broken` out of the pool, unless somebody already put a new connection there.
    async fn discard(&self, to: &SshAddress, broken: &Arc<Session>) {
        let slot = self.slot(to);
        let mut state = slot.state.lock().await;
        if state
            .session
            .as_ref()
            .is_some_and(|s| Arc::ptr_eq(s, broken))
        {
            state.session = None;
        }
    }

    /// Opens a stream on the machine. A pooled connection that turns out dead is replaced once.
    async fn open(
        &self,
        to: &SshAddress,
        endpoint: &Endpoint,
    ) -> Result<Box<dyn crate::Stream>, RemoteError> {
        let session = self.session(to).await?;
        let error = match self.open_on(&session, to, endpoint).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.is_refused() => return Err(error),
            Err(error) => error,
        };
        tracing::debug!(%error, at = to.target.at(), "pooled ssh connection is dead, reconnecting");
        self.discard(to, &session).await;
        let session = self.session(to).await?;
        self.open_on(&session, to, endpoint).await
    }

    async fn open_on(
        &self,
        session: &Session,
        to: &SshAddress,
        endpoint: &Endpoint,
    ) -> Result<Box<dyn crate::Stream>, RemoteError> {
        let limit = self.settings.connect_timeout;
        let opened = tokio::time::timeout(limit, session.open(endpoint)).await;
        opened.unwrap_or_else(|_| {
            Err(RemoteError::TimedOut {
                at: format!("{} {endpoint}", to.target.at()),
                limit,
            })
        })
    }

    /// Runs a command on the machine, once: what it did before a connection broke is not known.
    pub(crate) async fn run(
        &self,
        to: &SshAddress,
        command: &str,
        input: Bytes,
        limit: Duration,
    ) -> Result<CommandOutput, RemoteError> {
        let mut session = self.session(to).await?;
        if !session.is_alive(SIGN_OF_LIFE).await {
            self.discard(to, &session).await;
            session = self.session(to).await?;
        }
        session.run(command, input, limit).await
    }

    /// Drops the machine's connection if it gives no sign of life.
    async fn verify(&self, to: &SshAddress) {
        let slot = self.slot(to);
        let Some(session) = slot.state.lock().await.session.clone() else {
            return;
        };
        if !session.is_alive(SIGN_OF_LIFE).await {
            self.discard(to, &session).await;
        }
    }

    /// Closes the machine's connection, if there is one.
    pub(crate) async fn forget(&self, to: &SshAddress) {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.remove(to)
        };
        let Some(slot) = slot else { return };
        let session = slot.state.lock().await.session.take();
        if let Some(session) = session {
            session.close().await;
        }
    }

    /// Number of machines with a live connection.
    pub(crate) fn live(&self) -> usize {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let is_live = |slot: &&Arc<Slot>| {
            slot.state
                .try_lock()
                .is_ok_and(|s| s.session.as_ref().is_some_and(|s| !s.is_closed()))
        };
        slots.values().filter(is_live).count()
    }
}

/// The SSH way to one machine.
pub(crate) struct Tunnel {
    pub(crate) pool: Arc<Pool>,
    pub(crate) to: SshAddress,
}

impl Carrier for Tunnel {
    fn open<'a>(&'a self, to: &'a Endpoint) -> Opening<'a> {
        Box::pin(self.pool.open(&self.to, to))
    }

    fn suspect(&self) {
        let (pool, to) = (Arc::clone(&self.pool), self.to.clone());
        tokio::spawn(async move { pool.verify(&to).await });
    }

    fn name(&self) -> String {
        self.to.target.at()
    }
}
