//! Before a plugin is loaded: the socket, the descriptor of the `.so`, and the limits.

use crate::worker::frame::Hello;
use nix::{
    sys::{
        prctl,
        resource::{Resource, setrlimit},
        signal::Signal,
        socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg},
    },
    unistd::{dup2_stdin, getppid},
};
use std::{
    fs,
    io::{self, IoSliceMut},
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
};

/// The socket, which is no child's business and no longer the standard input: a plugin that reads that reads nothing.
pub(super) fn take_stdin() -> io::Result<UnixStream> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.peer_addr()?;
    dup2_stdin(fs::File::open("/dev/null")?)?;
    Ok(socket)
}

/// The descriptor that comes with the first byte.
pub(super) fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = nix::cmsg_space!(std::os::fd::RawFd);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let message = recvmsg::<UnixAddr>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = part
            && let [descriptor] = descriptors.as_slice()
        {
            // SAFETY: the system has just made it for this process, and nobody else knows it.
            return Ok(unsafe { OwnedFd::from_raw_fd(*descriptor) });
        }
    }
    Err(io::Error::other("no plugin came with it"))
}

/// Limits of this process. Whatever the plugin does, it ends with the host and leaves no core file.
pub(super) fn confine(hello: &Hello) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if u32::try_from(getppid().as_raw()) != Ok(hello.host_pid) {
        return Err(io::Error::other("the host is gone"));
    }
    prctl::set_no_new_privs()?;
    limit(Resource::RLIMIT_CORE, 0)?;
    limit(Resource::RLIMIT_NOFILE, hello.open_files)?;
    limit(Resource::RLIMIT_AS, hello.memory_bytes)?;
    // When the machine has no memory left, the kernel shall take this process and not the server. Not everywhere allowed.
    drop(fs::write("/proc/self/oom_score_adj", "500"));
    Ok(())
}

fn limit(what: Resource, wanted: u64) -> io::Result<()> {
    let (_, most) = nix::sys::resource::getrlimit(what)?;
    let limit = wanted.min(most);
    setrlimit(what, limit, limit).map_err(io::Error::from)
}
