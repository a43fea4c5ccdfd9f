//! Where the server listens: a TCP port or a Unix socket.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::sys::stat::{Mode, fchmod};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::peer::Ends;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A TCP port. `localhost` means 127.0.0.1 and, where the machine has it, ::1; an empty host all interfaces; port 0
    /// any free port.
    Tcp {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix socket, which only its owner may use. A file left over by a process that died is replaced.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.is_empty() => write!(f, "port {port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Open ports and sockets. The files of sockets are removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<Socket>,
    /// Whether connections out of containers are refused at TCP ports.
    is_guarded: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        path: PathBuf,
    },
}

impl Listener {
    /// Opens `listen`.
    ///
    /// # Errors
    /// If the address is in use or not ours, or the socket cannot be made.
    pub async fn bind(listen: &Listen) -> io::Result<Self> {
        Self::bind_all(std::slice::from_ref(listen)).await
    }

    /// Opens several places that serve the same.
    ///
    /// # Errors
    /// As [`Listener::bind`]; the error names the place.
    pub async fn bind_all(places: &[Listen]) -> io::Result<Self> {
        let mut listener = Self {
            sockets: Vec::new(),
            is_guarded: false,
        };
        for place in places {
            let bound = match place {
                Listen::Tcp { host, port } => listener.bind_tcp(host, *port).await,
                Listen::Unix(path) => listener.bind_unix(path).await,
            };
            bound.map_err(|err| io::Error::new(err.kind(), format!("{place}: {err}")))?;
        }
        Ok(listener)
    }

    /// Refuses connections to TCP ports that come out of containers with the machine's own network, and of tasks that
    /// have their processes for themselves. A Unix socket is guarded by its mode.
    #[must_use]
    pub fn guarded(mut self) -> Self {
        self.is_guarded = true;
        self
    }

    async fn bind_unix(&mut self, path: &Path) -> io::Result<()> {
        let short = ShortPath::of(path)?;
        if UnixStream::connect(&short.path).await.is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "it is served by another process",
            ));
        }
        match std::fs::remove_file(path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        let listener = bind_private(&short.path)?;
        let path = path.to_owned();
        self.sockets.push(Socket::Unix { listener, path });
        Ok(())
    }

    async fn bind_tcp(&mut self, host: &str, port: u16) -> io::Result<()> {
        match host {
            "localhost" => {
                let first = TcpListener::bind(("127.0.0.1", port)).await?;
                let port = first.local_addr()?.port();
                self.sockets.push(Socket::Tcp(first));
                // Machines without IPv6 are common; 127.0.0.1 alone serves them.
                if let Ok(second) = TcpListener::bind(("::1", port)).await {
                    self.sockets.push(Socket::Tcp(second));
                }
            }
            "" => {
                let all = match TcpListener::bind(("::", port)).await {
                    Ok(both_families) => both_families,
                    Err(_) => TcpListener::bind(("0.0.0.0", port)).await?,
                };
                self.sockets.push(Socket::Tcp(all));
            }
            host => self
                .sockets
                .push(Socket::Tcp(TcpListener::bind((host, port)).await?)),
        }
        Ok(())
    }

    /// The first TCP port; `None` if there are only Unix sockets.
    pub fn port(&self) -> Option<u16> {
        self.sockets.iter().find_map(|socket| match socket {
            Socket::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
            Socket::Unix { .. } => None,
        })
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        let accepts = self
            .sockets
            .iter()
            .map(|socket| Box::pin(socket.accept()))
            .collect::<Vec<_>>();
        if accepts.is_empty() {
            return std::future::pending().await;
        }
        let mut accepted = futures_util::future::select_all(accepts).await.0?;
        if let Stream::Tcp { guard, .. } = &mut accepted
            && !self.is_guarded
        {
            *guard = None;
        }
        Ok(accepted)
    }
}

/// A socket that never was anybody else's: its file has the mode from its first moment on, since Linux takes that of the
/// socket itself.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&socket, Backlog::MAXCONN)?;
    UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))
}

impl Socket {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Stream::tcp(listener.accept().await?.0),
            Self::Unix { listener, .. } => {
                Ok(Stream::Unix(TokioIo::new(listener.accept().await?.0)))
            }
        }
    }
}

/// The kernel's limit for the path in a socket's address, beside its closing zero.
const MAX_ADDRESS_BYTES: usize = 107;

/// A path to a socket that fits into an address.
struct ShortPath {
    path: PathBuf,
    /// An open folder is a short name for itself, for as long as it is open.
    _folder: Option<File>,
}

impl ShortPath {
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= MAX_ADDRESS_BYTES {
            return Ok(Self {
                path: path.to_owned(),
                _folder: None,
            });
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = File::open(folder)?;
        Ok(Self {
            path: PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name),
            _folder: Some(folder),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Self::Unix { path, .. } = self {
            // Somebody else may have removed it: then there is nothing left to do.
            drop(std::fs::remove_file(path));
        }
    }
}

#[derive(Debug)]
pub(super) enum Stream {
    Tcp {
        io: TokioIo<TcpStream>,
        /// What is to be looked at before anything is answered.
        guard: Option<Ends>,
    },
    Unix(TokioIo<UnixStream>),
}

impl Stream {
    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let guard = Some(Ends {
            peer: stream.peer_addr()?,
            own: stream.local_addr()?,
        });
        let io = TokioIo::new(stream);
        Ok(Self::Tcp { io, guard })
    }
}
