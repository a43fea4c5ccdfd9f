//! Starting the job's command in a pseudo terminal of its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::fcntl::OFlag;
use nix::libc;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::stat::Mode;
use nix::sys::termios::{SpecialCharacterIndices, tcgetattr};
use nix::unistd::{Gid, Uid, fchown};

use crate::children::{Children, Owned};
use crate::users::Account;

/// Flag of `close_range`: close at the next exec instead of now.
const CLOSE_ON_EXEC: u32 = 4;

/// What to start.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    pub(crate) dir: PathBuf,
    pub(crate) env: BTreeMap<OsString, OsString>,
    pub(crate) account: Account,
}

/// A started command.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) child: Owned,
    pub(crate) terminal: Terminal,
}

/// Our end of the pseudo terminal.
#[derive(Debug)]
pub(crate) struct Terminal(File);

impl Terminal {
    /// Types the interrupt character, so that the foreground processes get SIGINT. A plain SIGINT to an interactive
    /// shell would neither end it nor reach its children.
    pub(crate) fn interrupt(&self) {
        let typed = tcgetattr(&self.0)
            .map_err(io::Error::from)
            .and_then(|settings| {
                let index = SpecialCharacterIndices::VINTR as usize;
                let character = settings.control_chars.get(index).copied().unwrap_or(0x03);
                (&self.0).write_all(&[character])
            });
        if let Err(error) = typed {
            tracing::debug!(%error, "no terminal to interrupt the job through");
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<File> {
        self.0.try_clone()
    }
}

/// Starts the program as leader of a new session whose controlling terminal is a new pseudo terminal.
pub(crate) fn start(children: &Children, program: &Program) -> io::Result<Started> {
    let (name, arguments) = program
        .argv
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "there is no command"))?;
    let pty = open_terminal()?;
    let account = &program.account;
    if account.is_switched
        && let Err(error) = fchown(&pty.slave, Some(Uid::from_raw(account.uid)), None)
    {
        tracing::warn!(%error, "the terminal stays ours");
    }
    let mut command = Command::new(name);
    command
        .args(arguments)
        .current_dir(&program.dir)
        .env_clear()
        .envs(&program.env)
        .stdin(stdio(&pty.slave)?)
        .stdout(stdio(&pty.slave)?)
        .stderr(stdio(&pty.slave)?);
    prepare(&mut command, account);
    let child = children.spawn(&mut command)?;
    Ok(Started {
        child,
        terminal: Terminal(File::from(OwnedFd::from(pty.master))),
    })
}

/// Both ends of a new pseudo terminal.
struct Ends {
    master: PtyMaster,
    slave: OwnedFd,
}

/// Opens them so that no child inherits them, also one that another thread starts this moment: whoever has our end
/// keeps the job's terminal open.
fn open_terminal() -> io::Result<Ends> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = nix::fcntl::open(ptsname_r(&master)?.as_str(), flags, Mode::empty())?;
    Ok(Ends { master, slave })
}

fn stdio(slave: &OwnedFd) -> io::Result<Stdio> {
    Ok(Stdio::from(slave.as_fd().try_clone_to_owned()?))
}

#[expect(
    unsafe_code,
    reason = "a session, a terminal and a user are set between fork and exec"
)]
fn prepare(command: &mut Command, account: &Account) {
    let groups: Vec<libc::gid_t> = account.groups.clone();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let is_switched = account.is_switched;
    let between = move || {
        nix::unistd::setsid()?;
        // SAFETY: descriptor 0 is the terminal; the call takes an integer and touches no memory of ours.
        if unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let unlimited = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the pointer is to a live local value. Without the capability the call fails, which is fine.
        unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) };
        // What whoever started the runner left open is not the job's. Kernels before 5.11 do not know the call.
        // SAFETY: the call takes integers and touches no memory of ours; what std needs open until the exec is marked
        // the same way.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, CLOSE_ON_EXEC) };
        if is_switched {
            // SAFETY: pointer and length describe a live vector made before the fork.
            if unsafe { libc::setgroups(groups.len(), groups.as_ptr()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            nix::unistd::setresgid(gid, gid, gid)?;
            nix::unistd::setresuid(uid, uid, uid)?;
            // Becoming another user drops what the process may do, but not what it may inherit by running a file that
            // has capabilities of its own.
            drop_inheritable()?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe system calls are made and nothing is allocated.
    unsafe { command.pre_exec(between) };
}

/// Empties the set of capabilities that survives the start of another program.
#[expect(unsafe_code, reason = "there is no safe call for capability sets")]
fn drop_inheritable() -> io::Result<()> {
    /// Version of the interface with two words a set.
    const VERSION_3: u32 = 0x2008_0522;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Sets {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut sets = [Sets {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    }; 2];
    // SAFETY: both pointers are to live values of the layout that this version of the interface has.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    sets.iter_mut().for_each(|set| set.inheritable = 0);
    // SAFETY: as above.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether this process may become another user.
pub(crate) fn may_switch_user() -> bool {
    const CHOWN: u64 = 0;
    const SETGID: u64 = 6;
    const SETUID: u64 = 7;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    [CHOWN, SETGID, SETUID]
        .iter()
        .all(|bit| mask & (1 << bit) != 0)
}
