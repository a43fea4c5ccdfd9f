//! Where the server listens: a TCP port or a Unix socket.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

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

/// An open port or socket. The socket's file is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    pub(super) kind: Kind,
    port: Option<u16>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Tcp(TcpListener, Option<TcpListener>),
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
        match listen {
            Listen::Tcp { host, port } => Self::bind_tcp(host, *port).await,
            Listen::Unix(path) => {
                let short = ShortPath::of(path)?;
                if UnixStream::connect(&short.path).await.is_ok() {
                    return Err(io::Error::new(
                        io::ErrorKind::AddrInUse,
                        format!("{} is served by another process", path.display()),
                    ));
                }
                match std::fs::remove_file(path) {
                    Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                    _ => {}
                }
                let listener = UnixListener::bind(&short.path)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
                Ok(Self {
                    kind: Kind::Unix {
                        listener,
                        path: path.clone(),
                    },
                    port: None,
                })
            }
        }
    }

    async fn bind_tcp(host: &str, port: u16) -> io::Result<Self> {
        let (first, second) = match host {
            "localhost" => {
                let first = TcpListener::bind(("127.0.0.1", port)).await?;
                // Machines without IPv6 are common; 127.0.0.1 alone serves them.
                let second = match first.local_addr() {
                    Ok(address) => TcpListener::bind(("::1", address.port())).await.ok(),
                    Err(_) => None,
                };
                (first, second)
            }
            "" => match TcpListener::bind(("::", port)).await {
                Ok(both_families) => (both_families, None),
                Err(_) => (TcpListener::bind(("0.0.0.0", port)).await?, None),
            },
            host => (TcpListener::bind((host, port)).await?, None),
        };
        let port = first.local_addr()?.port();
        Ok(Self {
            kind: Kind::Tcp(first, second),
            port: Some(port),
        })
    }

    /// The TCP port; `None` for a Unix socket.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match &self.kind {
            Kind::Tcp(first, None) => Stream::tcp(first.accept().await?.0),
            Kind::Tcp(first, Some(second)) => {
                let (stream, _) = tokio::select! {
                    accepted = first.accept() => accepted?,
                    accepted = second.accept() => accepted?,
                };
                Stream::tcp(stream)
            }
            Kind::Unix { listener, .. } => {
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

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix { path, .. } = &self.kind {
            // Somebody else may have removed it: then there is nothing left to do.
            drop(std::fs::remove_file(path));
        }
    }
}

#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TokioIo<TcpStream>),
    Unix(TokioIo<UnixStream>),
}

impl Stream {
    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(TokioIo::new(stream)))
    }
}
