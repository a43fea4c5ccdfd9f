//! The worker's side: loads one plugin and runs what the host sends. Blocking, without a runtime, to be small and quick.

mod services;
mod setup;
mod threads;

use super::frame::{self, HEADER, Header, Hello, Kind, PROTOCOL, Ready};
use crate::backend::MAX_REPLY_BYTES;
use dstack_backend_loader::{Inspected, OpenedBackend, Plugin, ReplyBytes};
use dstack_backend_types::BackendError;
use services::Host;
use std::{
    collections::HashMap,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use threads::Threads;

/// The socket's other half; frames go out whole.
pub(super) struct Wire(Mutex<UnixStream>);

impl Wire {
    /// Sends a frame. If the host is gone, the process ends.
    pub(super) fn send(&self, kind: Kind, id: u64, parts: &[&[u8]]) {
        let header = Header::write(kind, id, parts);
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = || {
            if parts.iter().map(|part| part.len()).sum::<usize>() < 4096 {
                let mut frame = header.to_vec();
                parts.iter().for_each(|part| frame.extend_from_slice(part));
                return socket.write_all(&frame);
            }
            socket.write_all(&header)?;
            parts.iter().try_for_each(|part| socket.write_all(part))
        };
        if all().is_err() {
            end(0);
        }
    }
}

/// Ends at once. Whatever the plugin has registered for the exit is not run: it may hang or crash.
fn end(code: i32) -> ! {
    // SAFETY: it ends the process, as is meant.
    unsafe { nix::libc::_exit(code) }
}

pub(super) fn run() -> ExitCode {
    match serve() {
        Ok(()) => end(0),
        Err(error) => {
            // Only a person who starts it by hand sees this.
            drop(writeln!(
                io::stderr(),
                "this command is for the dstack server, which starts it with a socket: {error}"
            ));
            ExitCode::from(2)
        }
    }
}

/// One frame; `None` at the end of the socket.
fn receive(socket: &mut UnixStream) -> io::Result<Option<(Header, Vec<u8>)>> {
    let mut header = [0; HEADER];
    match socket.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let header = Header::read(&header).map_err(io::Error::other)?;
    let mut body = Vec::with_capacity(header.length);
    let wanted = u64::try_from(header.length).unwrap_or(u64::MAX);
    let read = io::Read::by_ref(socket)
        .take(wanted)
        .read_to_end(&mut body)?;
    Ok((read == header.length).then_some((header, body)))
}

fn serve() -> io::Result<()> {
    let mut socket = setup::take_stdin()?;
    let descriptor = setup::receive_descriptor(&socket)?;
    let Some((header, body)) = receive(&mut socket)? else {
        return Ok(());
    };
    if header.kind != Kind::Hello {
        return Err(io::Error::other("the host did not say hello"));
    }
    let hello: Hello = serde_json::from_slice(&body).map_err(io::Error::other)?;
    let wire = Arc::new(Wire(Mutex::new(socket.try_clone()?)));
    let failed = |reason: String| {
        wire.send(Kind::Failed, 0, &[reason.as_bytes()]);
        end(1)
    };
    if hello.protocol != PROTOCOL {
        failed(format!(
            "the host speaks worker protocol {}, this program {PROTOCOL}; was it replaced? restart the server",
            hello.protocol
        ));
    }
    if let Err(error) = setup::confine(&hello) {
        failed(format!("its limits cannot be set: {error}"));
    }
    let host = Host::new(Arc::clone(&wire));
    // Frames are read from here on: a constructor or `init` may ask the host already.
    let loading = Arc::clone(&host);
    let (sender, loaded) = std::sync::mpsc::channel();
    let answering = Arc::clone(&wire);
    let started = std::thread::Builder::new()
        .name("be-load".to_owned())
        .spawn(move || {
            let file = Inspected::handed_over(descriptor, hello.path, hello.manifest, hello.sha256);
            let plugin = file
                .map_err(|error| error.to_string())
                .and_then(|file| file.open(loading.border()).map_err(|e| e.to_string()));
            match plugin {
                Ok(plugin) => {
                    let ready = Ready {
                        protocol: PROTOCOL,
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                    };
                    // First the plugin, then the word that it is there: calls follow at once.
                    let is_read = sender.send(plugin).is_ok();
                    let ready = serde_json::to_vec(&ready).unwrap_or_default();
                    if is_read {
                        answering.send(Kind::Ready, 0, &[&ready]);
                    }
                }
                Err(reason) => {
                    answering.send(Kind::Failed, 0, &[reason.as_bytes()]);
                    end(1);
                }
            }
        });
    if let Err(error) = started {
        failed(format!("no thread to load it on: {error}"));
    }
    Worker {
        host,
        wire,
        loaded,
        plugin: None,
        backends: Arc::default(),
        threads: Threads::default(),
    }
    .listen(&mut socket)
}

type Backends = Arc<Mutex<HashMap<u64, Arc<OpenedBackend>>>>;

struct Worker {
    host: Arc<Host>,
    wire: Arc<Wire>,
    loaded: std::sync::mpsc::Receiver<Plugin>,
    plugin: Option<Plugin>,
    backends: Backends,
    threads: Threads,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    /// Reads frames until the host is gone.
    fn listen(mut self, socket: &mut UnixStream) -> io::Result<()> {
        while let Some((header, body)) = receive(socket)? {
            let id = header.id;
            match header.kind {
                Kind::Served => self.host.answered(id, Ok(body)),
                Kind::Refused => self.host.answered(id, Err(body)),
                Kind::Cancel => self.host.cancel(id),
                Kind::Open => self.open(id, body),
                Kind::Call => self.call(id, body),
                Kind::Close => {
                    let closed = lock(&self.backends).remove(&id);
                    // Closing is the plugin's code; calls that still run keep the backend until they end.
                    self.threads.run(move || drop(closed));
                }
                Kind::Stop => self.stop(),
                Kind::Hello
                | Kind::Ready
                | Kind::Failed
                | Kind::Opened
                | Kind::NotOpened
                | Kind::Reply
                | Kind::Error
                | Kind::Ask
                | Kind::Log => {
                    return Err(io::Error::other("a frame that the host does not send"));
                }
            }
        }
        Ok(())
    }

    fn plugin(&mut self) -> Option<Plugin> {
        if self.plugin.is_none() {
            self.plugin = self.loaded.try_recv().ok();
        }
        self.plugin.clone()
    }

    fn open(&mut self, id: u64, config: Vec<u8>) {
        let (wire, backends) = (Arc::clone(&self.wire), Arc::clone(&self.backends));
        let Some(plugin) = self.plugin() else {
            return refuse(&wire, Kind::NotOpened, id, "the plugin is not loaded yet");
        };
        self.threads
            .run(move || match plugin.open_backend(&config) {
                Ok(backend) => {
                    lock(&backends).insert(id, Arc::new(backend));
                    wire.send(Kind::Opened, id, &[]);
                }
                Err(error) => answer(&wire, Kind::NotOpened, id, &error),
            });
    }

    fn call(&self, id: u64, body: Vec<u8>) {
        let wire = Arc::clone(&self.wire);
        let Some((backend, method, _)) = frame::split_numbered(&body) else {
            return refuse(&wire, Kind::Error, id, "a call that is not understood");
        };
        let Some(backend) = lock(&self.backends).get(&backend).cloned() else {
            return refuse(&wire, Kind::Error, id, "the backend is not open");
        };
        let host = Arc::clone(&self.host);
        self.threads.run(move || {
            let request = frame::split_numbered(&body).map_or(&[][..], |(.., request)| request);
            let result = backend.call(method, id, request);
            host.over(id);
            drop(backend);
            match result {
                Ok(reply) => answer(&wire, Kind::Reply, id, &reply),
                Err(error) => answer(&wire, Kind::Error, id, &error),
            }
        });
    }

    /// Closes what is open and ends; the host kills a process that takes too long.
    fn stop(&self) {
        let all = std::mem::take(&mut *lock(&self.backends));
        self.threads.run(move || {
            drop(all);
            end(0);
        });
    }
}

/// Sends the plugin's bytes, if they are not too many.
fn answer(wire: &Wire, kind: Kind, id: u64, bytes: &ReplyBytes) {
    if bytes.len() > MAX_REPLY_BYTES {
        let kind = if kind == Kind::Reply {
            Kind::Error
        } else {
            kind
        };
        let text = format!(
            "the reply has {} bytes, at most {MAX_REPLY_BYTES}",
            bytes.len()
        );
        return refuse(wire, kind, id, &text);
    }
    wire.send(kind, id, &[bytes]);
}

fn refuse(wire: &Wire, kind: Kind, id: u64, reason: &str) {
    let error = serde_json::to_vec(&BackendError::internal(reason)).unwrap_or_default();
    wire.send(kind, id, &[&error]);
}
