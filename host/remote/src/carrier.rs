//! The one thing both ways to a machine have in common: opening a byte stream to an endpoint.

use std::{
    fmt,
    fs::File,
    future::Future,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    pin::Pin,
};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::RemoteError;

/// A two-way byte stream to an agent.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// The future [`Carrier::open`] gives.
pub type Opening<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, RemoteError>> + Send + 'a>>;

/// Where an agent listens, as seen from its own machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A TCP port on loopback.
    Port(u16),
    /// A Unix socket's path.
    Socket(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "localhost:{port}"),
            Self::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A way to one machine.
pub trait Carrier: Send + Sync {
    /// Opens a stream to `to` on the machine.
    ///
    /// Errors are [`RemoteError::Refused`] when the machine is there and nobody listens,
    /// [`RemoteError::Unreachable`] and its kin when the machine is not there.
    fn open<'a>(&'a self, to: &'a Endpoint) -> Opening<'a>;

    /// A call over a stream of this carrier ran into its time limit: look whether the way is dead.
    fn suspect(&self) {}

    /// Names the machine in errors.
    fn name(&self) -> String;
}

/// This machine, without SSH.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loopback;

impl Carrier for Loopback {
    fn open<'a>(&'a self, to: &'a Endpoint) -> Opening<'a> {
        Box::pin(async move {
            let opened: std::io::Result<Box<dyn Stream>> = match to {
                Endpoint::Port(port) => TcpStream::connect(("127.0.0.1", *port)).await.map(|s| {
                    // Small requests wait for answers: without this each costs 40 ms.
                    if let Err(error) = s.set_nodelay(true) {
                        tracing::debug!(%error, "cannot switch off Nagle's algorithm");
                    }
                    Box::new(s) as Box<dyn Stream>
                }),
                Endpoint::Socket(path) => {
                    connect(path).await.map(|s| Box::new(s) as Box<dyn Stream>)
                }
            };
            // This machine is always there: whatever fails, it is the agent that is missing.
            opened.map_err(|e| RemoteError::Refused {
                at: to.to_string(),
                reason: e.to_string(),
            })
        })
    }

    fn name(&self) -> String {
        "this machine".to_owned()
    }
}

/// The longest path that fits into a socket's address beside its closing zero.
const MAX_ADDRESS_BYTES: usize = 107;

/// Connects to a socket, however long its path is.
async fn connect(path: &Path) -> io::Result<UnixStream> {
    if path.as_os_str().len() <= MAX_ADDRESS_BYTES {
        return UnixStream::connect(path).await;
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // The open folder is a short name for itself, for as long as it is open.
    let folder = File::open(folder)?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    UnixStream::connect(short.join(name)).await
}
