//! Watches the plugin folders, so that a new `.so` is used without anybody saying so.

use crate::plugins::Plugins;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::io::{Interest, unix::AsyncFd};

/// After the last change the folders are left alone for so long, since several files are often copied at once.
const QUIET: Duration = Duration::from_millis(300);
/// Changes without end are looked at nevertheless.
const LONGEST: Duration = Duration::from_secs(3);
/// When a file is only half there.
const AGAIN: Duration = Duration::from_secs(1);

struct Watch(Inotify);

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Plugins {
    /// Reloads whenever a folder has changed; ends only if the system gives no watch. A file that is still being copied is
    /// looked at again until it is whole. A folder that does not exist yet is waited for.
    ///
    /// # Errors
    /// If the system gives no watch.
    pub async fn watch(&self) -> io::Result<()> {
        loop {
            let (watch, missing) = self.start_watch()?;
            // What has changed between the last look and the watch.
            self.reload().await;
            loop {
                self.wait(&watch).await?;
                self.reload().await;
                let is_there = |folder: &PathBuf| folder.is_dir();
                if missing.iter().any(is_there) {
                    break;
                }
                if self
                    .folders()
                    .iter()
                    .any(|folder| !folder.is_dir() && !missing.contains(folder))
                {
                    break;
                }
            }
        }
    }

    /// Ends a moment after something has changed, or when it is time to look again at a file that was not whole.
    async fn wait(&self, watch: &AsyncFd<Watch>) -> io::Result<()> {
        if self.is_settling() {
            if let Ok(read) = tokio::time::timeout(AGAIN, drain(watch)).await {
                read?;
            }
            return Ok(());
        }
        drain(watch).await?;
        let began = tokio::time::Instant::now();
        while began.elapsed() < LONGEST {
            match tokio::time::timeout(QUIET, drain(watch)).await {
                Ok(read) => read?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// A watch over all folders; for those that do not exist over the nearest folder above.
    fn start_watch(&self) -> io::Result<(AsyncFd<Watch>, BTreeSet<PathBuf>)> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let mut missing = BTreeSet::new();
        let mut wanted: BTreeMap<PathBuf, AddWatchFlags> = BTreeMap::new();
        for folder in self.folders() {
            let there = nearest(folder);
            let mut flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
            if there == *folder {
                flags |= AddWatchFlags::IN_CLOSE_WRITE
                    | AddWatchFlags::IN_MOVED_FROM
                    | AddWatchFlags::IN_DELETE
                    | AddWatchFlags::IN_ATTRIB
                    | AddWatchFlags::IN_DELETE_SELF
                    | AddWatchFlags::IN_MOVE_SELF;
            } else {
                missing.insert(folder.clone());
            }
            *wanted.entry(there).or_insert(flags) |= flags;
        }
        for (there, flags) in wanted {
            if let Err(error) = inotify.add_watch(&there, flags) {
                tracing::warn!(folder = %there.display(), %error, "a plugin folder cannot be watched; use `dstack backend reload` after a change");
            }
        }
        // SAFETY: the descriptor is owned by the value and stays the same one until both are dropped.
        let watch = unsafe { AsyncFd::register_with_interest(Watch(inotify), Interest::READABLE) }?;
        Ok((watch, missing))
    }
}

/// The folder, or the nearest one above it that exists.
fn nearest(folder: &Path) -> PathBuf {
    let there = folder.ancestors().find(|above| above.is_dir());
    let there = there.filter(|above| !above.as_os_str().is_empty());
    there.unwrap_or(Path::new("/")).to_owned()
}

/// Waits for events and takes them all. What they say does not matter: the folders are looked through.
async fn drain(watch: &AsyncFd<Watch>) -> io::Result<()> {
    let mut ready = watch.readable().await?;
    loop {
        match watch.get_ref().0.read_events() {
            Ok(_) => {}
            Err(nix::errno::Errno::EAGAIN) => {
                ready.clear_ready();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}
