//! Who is at the other end of a connection on the loopback.
//!
//! A container with the machine's network reaches ports of the machine's loopback, and the kernel does not tell who
//! connects there. The tables of the process file system do: connection, number of the other end's socket, process that
//! has it open, PID namespace of that process. Containers have a namespace of their own, and so have tasks without one;
//! SSH servers, through which servers come, do not.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Where the kernel's own, first PID namespace leads; the number is the same on all machines.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// Column of the socket's number in the kernel's tables of connections, counted from 0.
const INODE_COLUMN: usize = 9;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) own: SocketAddr,
}

/// Whether the other end may be a process in a container, or of a task that has its processes for itself. Without root,
/// and in a container of its own, a process does not see enough to tell: then nobody is refused. Blocks the thread.
pub(super) fn may_be_in_container(ends: Ends) -> bool {
    let own = pid_namespace("self");
    if !nix::unistd::geteuid().is_root() || own.as_deref() != Some(FIRST_PID_NAMESPACE) {
        return false;
    }
    let Some(inode) = inode(ends) else {
        // It has gone again: there is nobody to answer.
        return true;
    };
    holder(&inode).and_then(|pid| pid_namespace(&pid)) != own
}

fn pid_namespace(pid: &str) -> Option<String> {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// The number of the other end's socket.
fn inode(ends: Ends) -> Option<String> {
    let table = match ends.peer {
        SocketAddr::V4(_) => "/proc/net/tcp",
        SocketAddr::V6(_) => "/proc/net/tcp6",
    };
    inode_in(&fs::read_to_string(table).ok()?, ends)
}

fn inode_in(table: &str, ends: Ends) -> Option<String> {
    let (local, remote) = (column(ends.peer), column(ends.own));
    table.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let is_it = columns.get(1) == Some(&&*local) && columns.get(2) == Some(&&*remote);
        let inode = is_it.then(|| columns.get(INODE_COLUMN)).flatten()?;
        // A socket that nobody has open any more has no number.
        (*inode != "0").then(|| (*inode).to_owned())
    })
}

/// An address as the tables have it: words of 32 bits in the machine's byte order.
fn column(address: SocketAddr) -> String {
    let bytes = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = bytes.as_chunks::<4>().0.iter();
    let hex: String = words
        .map(|word| format!("{:08X}", u32::from_ne_bytes(*word)))
        .collect();
    format!("{hex}:{:04X}", address.port())
}

/// A process that has the socket open.
fn holder(inode: &str) -> Option<String> {
    let wanted = format!("socket:[{inode}]");
    let has_it = |fd: fs::DirEntry| {
        fs::read_link(fd.path()).is_ok_and(|target| target == Path::new(&wanted))
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then_some(name)
    });
    pids.find(|pid| {
        // One that has ended meanwhile has none.
        let open = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        open.flatten().any(has_it)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2AF6 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:2AF6 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 22 1 0 20 4 30 10 -1
   2: 0100007F:C350 0100007F:2AF6 01 00000000:00000000 00:00000000 00000000  1000        0 33 1 0 20 4 30 10 -1
   3: 0100007F:C351 0100007F:2AF6 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0\n";

    fn ends(peer: &str, own: &str) -> Ends {
        Ends {
            peer: peer.parse().unwrap(),
            own: own.parse().unwrap(),
        }
    }

    #[test]
    fn the_other_ends_socket_is_found_and_not_ones_own() {
        let find = |peer| inode_in(TABLE, ends(peer, "127.0.0.1:10998"));
        assert_eq!(find("127.0.0.1:50000").as_deref(), Some("33"));
        // Closed already, or not there.
        assert_eq!(find("127.0.0.1:50001"), None);
        assert_eq!(find("127.0.0.1:50002"), None);
        let six = "[::1]:80".parse().unwrap();
        assert_eq!(column(six), "00000000000000000000000001000000:0050");
    }

    #[test]
    fn a_connection_of_this_process_is_found_in_the_kernels_tables() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let stream = std::net::TcpStream::connect(own).unwrap();
        let peer = stream.local_addr().unwrap();
        let inode = inode(Ends { peer, own }).unwrap();
        assert_eq!(holder(&inode), Some(std::process::id().to_string()));
    }
}
