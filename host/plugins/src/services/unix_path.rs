//! Unix sockets under paths that are longer than the kernel takes in a socket's address.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};
use tokio::net::UnixStream;

/// The longest path that fits into a socket's address beside its closing zero.
const MAX_BYTES: usize = 107;

/// Connects to the socket at `path`, however long it is.
pub(super) async fn connect(path: &Path) -> io::Result<UnixStream> {
    if path.as_os_str().len() <= MAX_BYTES {
        return UnixStream::connect(path).await;
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // The open folder is a short name for itself, for as long as it is open.
    let folder = File::open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    UnixStream::connect(short).await
}
