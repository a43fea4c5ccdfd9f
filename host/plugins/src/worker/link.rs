//! The host's side of one running worker.

use super::{
    WorkerLimits, WorkerProgram,
    death::Death,
    frame::{self, HEADER, Header, Hello, Kind, MAX_BODY, PROTOCOL, Ready},
    gate::Permit,
    output, spawn,
};
use crate::{call::CallState, health::Health, services::border};
use dstack_backend_loader::Inspected;
use dstack_backend_types::BackendError;
use nix::{
    sys::{
        signal::{Signal, killpg},
        socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg},
    },
    unistd::Pid,
};
use std::{
    collections::HashMap,
    io::{self, IoSlice},
    os::{fd::AsRawFd, unix::net::UnixStream as StdStream},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::Child,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Frames that may wait for the socket.
const OUTGOING: usize = 64;
/// How long a worker whose socket has ended may take to end too.
const TO_END: Duration = Duration::from_millis(250);

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A fresh number for a link or an opened backend.
pub(super) fn next_id() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

type Frame = (Kind, u64, Vec<u8>);

/// Boxed, for it is large, and the compiler cannot see through it otherwise.
type Answering<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, BackendError>> + Send + 'a>>;

/// Why a call has no reply.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The plugin's error.
    Plugin(Vec<u8>),
    /// The worker ended while the call ran.
    Died(Death),
    /// The worker was gone before the call was sent: it did not run.
    NotSent,
}

struct Running {
    call: Arc<CallState>,
    answer: oneshot::Sender<Result<Vec<u8>, Failure>>,
    is_lost: bool,
    _permit: Permit,
}

#[derive(Default)]
struct Pending {
    calls: HashMap<u64, Running>,
    opens: HashMap<u64, oneshot::Sender<Result<(), Failure>>>,
    /// No frame is taken any more.
    is_closed: bool,
}

/// A running worker.
pub(crate) struct Link {
    pub(super) id: u64,
    pid: Pid,
    health: Arc<Health>,
    outgoing: mpsc::Sender<Frame>,
    pending: Mutex<Pending>,
    ready: Mutex<Option<oneshot::Sender<Result<Ready, String>>>>,
    /// No new calls; ends when those that run are over.
    is_retired: AtomicBool,
    is_stopping: AtomicBool,
    /// Whether its plugin was loaded.
    is_loaded: AtomicBool,
    ended: OnceLock<&'static str>,
    death: OnceLock<Death>,
    pub(super) gone: CancellationToken,
    close_limit: Duration,
}

/// What a worker is started with.
pub(super) struct Start<'a> {
    pub(super) program: &'a WorkerProgram,
    pub(super) limits: &'a WorkerLimits,
    pub(super) file: &'a Inspected,
    pub(super) health: &'a Arc<Health>,
}

impl Link {
    /// Starts a worker and waits until its plugin is loaded.
    pub(super) async fn start(start: Start<'_>) -> Result<Arc<Self>, String> {
        let Start {
            program,
            limits,
            file,
            health,
        } = start;
        let (ours, theirs) = StdStream::pair().map_err(|error| format!("no socket: {error}"))?;
        hand_over(&ours, file)
            .map_err(|error| format!("the file cannot be handed over: {error}"))?;
        let mut child = spawn::spawn(program, theirs)
            .await
            .map_err(|error| format!("cannot start {}: {error}", program.program.display()))?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.ok_or("it ended before it began")?;
        let socket = tokio_socket(ours).map_err(|error| format!("no socket: {error}"))?;
        let (from, to) = socket.into_split();
        let (outgoing, frames) = mpsc::channel(OUTGOING);
        let (ready, loaded) = oneshot::channel();
        let link = Arc::new(Self {
            id: next_id(),
            pid: Pid::from_raw(pid),
            health: Arc::clone(health),
            outgoing,
            pending: Mutex::default(),
            ready: Mutex::new(Some(ready)),
            is_retired: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            is_loaded: AtomicBool::new(false),
            ended: OnceLock::new(),
            death: OnceLock::new(),
            gone: CancellationToken::new(),
            close_limit: limits.close,
        });
        let prints = [
            child
                .stdout
                .take()
                .map(|from| tokio::spawn(output::capture(health.name.clone(), "stdout", from))),
            child
                .stderr
                .take()
                .map(|from| tokio::spawn(output::capture(health.name.clone(), "stderr", from))),
        ];
        tokio::spawn(write_frames(to, frames));
        let reader = tokio::spawn(Arc::clone(&link).read_frames(from));
        tokio::spawn(Arc::clone(&link).watch(child, reader, prints));
        let hello = Hello {
            protocol: PROTOCOL,
            host_version: health.host.version().to_owned(),
            path: file.path.clone(),
            manifest: file.manifest_text().to_owned(),
            sha256: file.sha256.clone(),
            memory_bytes: limits.memory_bytes,
            open_files: limits.open_files,
            host_pid: std::process::id(),
        };
        let hello = serde_json::to_vec(&hello).map_err(|error| error.to_string())?;
        link.send(Kind::Hello, 0, hello);
        match tokio::time::timeout(limits.start, loaded).await {
            Ok(Ok(Ok(ready))) if ready.protocol == PROTOCOL => {
                link.is_loaded.store(true, Ordering::Release);
                Ok(link)
            }
            Ok(Ok(Ok(ready))) => {
                link.end("it speaks another worker protocol");
                Err(format!(
                    "its program is dstack {} with worker protocol {}, this host has {PROTOCOL}; restart the server",
                    ready.version, ready.protocol
                ))
            }
            Ok(Ok(Err(reason))) => Err(reason),
            Ok(Err(_)) => {
                link.gone.cancelled().await;
                let death = link.death.get();
                Err(format!(
                    "its process {} while it was loaded",
                    death.map_or_else(|| "ended".to_owned(), ToString::to_string)
                ))
            }
            Err(_) => {
                link.end("it was not loaded in time");
                Err(format!(
                    "it was not loaded within {} s",
                    limits.start.as_secs()
                ))
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether new calls may go to it.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_retired.load(Ordering::Acquire) && self.death.get().is_none()
    }

    /// Sends without waiting; if many frames wait already, a task waits instead.
    fn send(&self, kind: Kind, id: u64, body: Vec<u8>) {
        if let Err(mpsc::error::TrySendError::Full(frame)) =
            self.outgoing.try_send((kind, id, body))
        {
            let outgoing = self.outgoing.clone();
            // Gone is gone: whoever waits for an answer is told by `watch`.
            self.health
                .host
                .runtime
                .spawn(async move { drop(outgoing.send(frame).await) });
        }
    }

    /// Opens a backend under a number of its own.
    pub(super) async fn open(&self, config: &[u8]) -> Result<u64, Failure> {
        let (id, (sender, opened)) = (next_id(), oneshot::channel());
        {
            let mut pending = self.pending();
            if pending.is_closed {
                return Err(Failure::NotSent);
            }
            pending.opens.insert(id, sender);
        }
        self.send(Kind::Open, id, config.to_vec());
        match opened.await {
            Ok(result) => result.map(|()| id),
            Err(_) => Err(Failure::NotSent),
        }
    }

    /// Closes a backend when its calls are over.
    pub(super) fn close(&self, backend: u64) {
        self.send(Kind::Close, backend, Vec::new());
    }

    /// Sends a call. What it answers comes through the channel.
    pub(crate) fn call(
        &self,
        backend: u64,
        method: u32,
        call: &Arc<CallState>,
        request: &[u8],
        permit: Permit,
    ) -> Result<oneshot::Receiver<Result<Vec<u8>, Failure>>, Permit> {
        let (answer, answered) = oneshot::channel();
        let mut body = Vec::with_capacity(12 + request.len());
        body.extend_from_slice(&frame::numbered(backend, method));
        body.extend_from_slice(request);
        {
            let mut pending = self.pending();
            if pending.is_closed {
                return Err(permit);
            }
            let running = Running {
                call: Arc::clone(call),
                answer,
                is_lost: false,
                _permit: permit,
            };
            pending.calls.insert(call.id, running);
        }
        self.send(Kind::Call, call.id, body);
        Ok(answered)
    }

    /// Tells a call to end.
    pub(crate) fn cancel(&self, call: u64) {
        if self.pending().calls.contains_key(&call) {
            self.send(Kind::Cancel, call, Vec::new());
        }
    }

    /// A call did not end when it was told to: no new call goes to this worker, and it is killed when only such are left.
    pub(crate) fn lose(&self, call: u64) {
        {
            let mut pending = self.pending();
            let Some(running) = pending.calls.get_mut(&call) else {
                return;
            };
            running.is_lost = true;
        }
        tracing::error!(
            backend = self.health.name,
            call,
            "a call does not come back; its process is replaced"
        );
        self.retire();
    }

    /// No new calls; it ends when those that run are over.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
        self.end_if_drained();
    }

    fn end_if_drained(&self) {
        if !self.is_retired.load(Ordering::Acquire) {
            return;
        }
        let (runs, hangs) = {
            let pending = self.pending();
            let hangs = pending.calls.values().filter(|call| call.is_lost).count();
            (pending.calls.len() - hangs + pending.opens.len(), hangs)
        };
        if runs > 0 {
            return;
        }
        if hangs > 0 {
            return self.end("a call did not come back");
        }
        if self.is_stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        self.send(Kind::Stop, 0, Vec::new());
        let (gone, pid, limit) = (self.gone.clone(), self.pid, self.close_limit);
        self.health.host.runtime.spawn(async move {
            if tokio::time::timeout(limit, gone.cancelled()).await.is_err() {
                kill(pid);
            }
        });
    }

    /// Kills it with all its children.
    pub(super) fn end(&self, reason: &'static str) {
        self.is_retired.store(true, Ordering::Release);
        if self.death.get().is_none() {
            self.ended.get_or_init(|| reason);
            kill(self.pid);
        }
    }

    /// Reads until the end of the socket; the reason if the worker sends what makes no sense.
    async fn read_frames(self: Arc<Self>, from: OwnedReadHalf) -> Option<String> {
        let mut from = BufReader::with_capacity(64 << 10, from);
        loop {
            let mut header = [0; HEADER];
            if from.read_exact(&mut header).await.is_err() {
                return None;
            }
            let header = match Header::read(&header) {
                Ok(header) => header,
                Err(reason) => return Some(reason),
            };
            let mut body = Vec::with_capacity(header.length);
            let wanted = u64::try_from(header.length).unwrap_or(u64::MAX);
            match (&mut from).take(wanted).read_to_end(&mut body).await {
                Ok(read) if read == header.length => {}
                Ok(_) | Err(_) => return None,
            }
            if let Err(reason) = self.take(header, body) {
                return Some(reason);
            }
        }
    }

    fn take(self: &Arc<Self>, header: Header, body: Vec<u8>) -> Result<(), String> {
        let id = header.id;
        match header.kind {
            Kind::Reply => self.finish(id, Ok(body)),
            Kind::Error => self.finish(id, Err(Failure::Plugin(body))),
            Kind::Opened => self.opened(id, Ok(())),
            Kind::NotOpened => self.opened(id, Err(Failure::Plugin(body))),
            Kind::Ask => self.ask(id, body)?,
            Kind::Log => {
                let (level, texts) = frame::split_log(&body).ok_or("a broken log line")?;
                let [target, message, fields] = &texts;
                border::write(&self.health.name, id, level, [target, message, fields]);
            }
            Kind::Ready => {
                let ready =
                    serde_json::from_slice(&body).map_err(|e| format!("a broken frame: {e}"))?;
                self.loaded(Ok(ready));
            }
            Kind::Failed => self.loaded(Err(String::from_utf8_lossy(&body).into_owned())),
            Kind::Hello
            | Kind::Open
            | Kind::Close
            | Kind::Call
            | Kind::Cancel
            | Kind::Served
            | Kind::Refused
            | Kind::Stop => {
                return Err(format!(
                    "a frame of kind {:?}, which only a host sends",
                    header.kind
                ));
            }
        }
        Ok(())
    }

    fn loaded(&self, result: Result<Ready, String>) {
        let ready = self
            .ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(ready) = ready {
            drop(ready.send(result));
        }
    }

    fn finish(&self, id: u64, result: Result<Vec<u8>, Failure>) {
        let running = self.pending().calls.remove(&id);
        if let Some(running) = running {
            self.over(running, result);
            self.end_if_drained();
        }
    }

    fn over(&self, running: Running, result: Result<Vec<u8>, Failure>) {
        running.call.finish();
        running.call.finished.cancel();
        self.health.host.call_ended(&running.call);
        // The caller may be gone.
        drop(running.answer.send(result));
    }

    fn opened(&self, id: u64, result: Result<(), Failure>) {
        let sender = self.pending().opens.remove(&id);
        if let Some(sender) = sender {
            drop(sender.send(result));
            self.end_if_drained();
        }
    }

    /// A host service, as a task of its own: a request that waits holds up nothing but its call.
    fn ask(self: &Arc<Self>, id: u64, body: Vec<u8>) -> Result<(), String> {
        let (call, service) = match frame::split_numbered(&body) {
            Some((call, service, _)) => (call, service),
            None => return Err("a broken request to the host".to_owned()),
        };
        tokio::spawn(Arc::clone(self).serve(id, call, service, body));
        Ok(())
    }

    async fn serve(self: Arc<Self>, id: u64, call: u64, service: u32, body: Vec<u8>) {
        let request = body.get(12..).unwrap_or_default();
        let host = &self.health.host;
        let answering: Answering<'_> =
            Box::pin(host.answer_waiting(&self.health.name, call, service, request));
        let answer = tokio::select! {
            answer = answering => answer,
            () = self.gone.cancelled() => return,
        };
        let answer = match answer {
            Ok(bytes) if bytes.len() > MAX_BODY => Err(BackendError::internal(format!(
                "the host's answer has {} bytes, at most {MAX_BODY}",
                bytes.len()
            ))),
            answer => answer,
        };
        let (kind, bytes) = match answer {
            Ok(bytes) => (Kind::Served, bytes),
            Err(error) => (
                Kind::Refused,
                serde_json::to_vec(&error).unwrap_or_default(),
            ),
        };
        drop(self.outgoing.send((kind, id, bytes)).await);
    }

    /// Waits for its end, however it comes, and tells everybody who waits for it.
    async fn watch(
        self: Arc<Self>,
        mut child: Child,
        mut reader: JoinHandle<Option<String>>,
        prints: [Option<JoinHandle<()>>; 2],
    ) {
        let (status, babble) = tokio::select! {
            status = child.wait() => {
                // What it sent before it ended is still there to read.
                let read = tokio::time::timeout(TO_END, &mut reader).await;
                reader.abort();
                (status, read.ok().and_then(Result::ok).flatten())
            }
            read = &mut reader => {
                let babble = read.ok().flatten();
                if babble.is_some() {
                    kill(self.pid);
                }
                let status = match tokio::time::timeout(TO_END, child.wait()).await {
                    Ok(status) => status,
                    Err(_) => {
                        kill(self.pid);
                        child.wait().await
                    }
                };
                (status, babble)
            }
        };
        // Its children go with it.
        kill(self.pid);
        let death = Death::of(status, babble, self.ended.get().copied());
        let is_stopping = self.is_stopping.load(Ordering::Acquire);
        // Who started it is told if it ended before it was loaded.
        let is_expected =
            is_stopping || !self.is_loaded.load(Ordering::Acquire) || !death.is_unwanted();
        self.death.get_or_init(|| death.clone());
        let (calls, opens) = {
            let mut pending = self.pending();
            pending.is_closed = true;
            (
                std::mem::take(&mut pending.calls),
                std::mem::take(&mut pending.opens),
            )
        };
        if !is_expected {
            self.health.died(&death, calls.len());
        }
        for running in calls.into_values() {
            self.over(running, Err(Failure::Died(death.clone())));
        }
        for opening in opens.into_values() {
            drop(opening.send(Err(Failure::Died(death.clone()))));
        }
        drop(
            self.ready
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        self.gone.cancel();
        for print in prints.into_iter().flatten() {
            let abort = print.abort_handle();
            if tokio::time::timeout(output::LAST_LINES, print)
                .await
                .is_err()
            {
                abort.abort();
            }
        }
    }
}

/// Kills the worker and whatever it has started. Its process group is named after it.
fn kill(pid: Pid) {
    if let Err(error) = killpg(pid, Signal::SIGKILL)
        && error != nix::errno::Errno::ESRCH
    {
        tracing::warn!(pid = pid.as_raw(), %error, "cannot kill the process of a backend");
    }
}

/// Sends the descriptor that was inspected, with one byte. The other end is not even there yet, so it cannot be full.
fn hand_over(socket: &StdStream, file: &Inspected) -> nix::Result<()> {
    let descriptors = [file.descriptor().as_raw_fd()];
    sendmsg::<UnixAddr>(
        socket.as_raw_fd(),
        &[IoSlice::new(&[0])],
        &[ControlMessage::ScmRights(&descriptors)],
        MsgFlags::empty(),
        None,
    )
    .map(|_| ())
}

fn tokio_socket(socket: StdStream) -> io::Result<UnixStream> {
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

async fn write_frames(mut to: OwnedWriteHalf, mut frames: mpsc::Receiver<Frame>) {
    while let Some((kind, id, body)) = frames.recv().await {
        let header = Header::write(kind, id, &[&body]);
        let written = if body.len() < 4096 {
            to.write_all(&[&header, body.as_slice()].concat()).await
        } else {
            match to.write_all(&header).await {
                Ok(()) => to.write_all(&body).await,
                Err(error) => Err(error),
            }
        };
        if written.is_err() {
            // The reader's end says why.
            return;
        }
    }
}
