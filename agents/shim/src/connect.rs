//! A way to the API for those who may run commands as root over SSH but log in as somebody else.
//!
//! The API's socket is root's alone. `sudo dstack-shim connect SOCKET` joins it to standard input and output, which an
//! SSH connection carries.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// First argument that makes the shim's binary such a way.
pub const CONNECT_COMMAND: &str = "connect";

const PIECE: usize = 64 * 1024;

/// Passes bytes on in both directions until the shim closes the connection.
///
/// # Errors
/// If nobody serves the socket, or it may not be used.
pub fn connect(socket: &Path) -> io::Result<()> {
    let stream = UnixStream::connect(socket)
        .map_err(|err| io::Error::new(err.kind(), format!("{}: {err}", socket.display())))?;
    let to_shim = stream.try_clone()?;
    // Left behind when the shim hangs up first: it waits for input that nobody wants any more.
    std::thread::spawn(move || {
        if pass_on(io::stdin().lock(), &to_shim).is_ok() {
            drop(to_shim.shutdown(Shutdown::Write));
        }
    });
    pass_on(&stream, io::stdout().lock())
}

fn pass_on(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) => return Err(err),
        };
        to.write_all(piece.get(..length).unwrap_or_default())?;
        // What has come is told at once, whether or not it ends a line.
        to.flush()?;
    }
}
