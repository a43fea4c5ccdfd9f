//! The job's output as it came: kept in a file, replayed to WebSocket clients.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// Bytes in one message to a client.
const CHUNK: usize = 64 * 1024;

/// How much there is, and whether more will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extent {
    pub(crate) len: u64,
    pub(crate) is_ended: bool,
}

#[derive(Debug)]
pub(crate) struct RawLog {
    file: File,
    /// First offset of each second in which something was written.
    seconds: Mutex<Vec<(i64, u64)>>,
    extent: watch::Sender<Extent>,
}

impl RawLog {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        // Appended to what a predecessor left, which is not this job's.
        file.set_len(0)?;
        Ok(Self {
            file,
            seconds: Mutex::default(),
            extent: watch::Sender::default(),
        })
    }

    /// Records bytes written at `second` since 1970.
    pub(crate) fn append(&self, second: i64, bytes: &[u8]) -> io::Result<()> {
        (&self.file).write_all(bytes)?;
        let len = self.extent.borrow().len;
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        if seconds.last().is_none_or(|(last, _)| *last < second) {
            seconds.push((second, len));
        }
        drop(seconds);
        let added = u64::try_from(bytes.len()).unwrap_or_default();
        self.extent.send_modify(|extent| extent.len += added);
        Ok(())
    }

    /// Says that nothing more will come.
    pub(crate) fn end(&self) {
        self.extent.send_modify(|extent| extent.is_ended = true);
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Extent> {
        self.extent.subscribe()
    }

    /// Where the output of `second` and later begins.
    pub(crate) fn offset_of(&self, second: i64) -> u64 {
        let seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let at = seconds.partition_point(|(known, _)| *known < second);
        seconds
            .get(at)
            .map_or(self.extent.borrow().len, |(_, offset)| *offset)
    }

    /// The next bytes at `offset`, none at the end.
    pub(crate) fn read(&self, offset: u64) -> io::Result<Vec<u8>> {
        let left = self.extent.borrow().len.saturating_sub(offset);
        let mut bytes = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_time_skips_earlier_output() {
        let dir = tempfile::tempdir().unwrap();
        let log = RawLog::create(&dir.path().join("job.log")).unwrap();
        for (second, text) in [(10, "a"), (10, "b"), (12, "c"), (15, "d")] {
            log.append(second, text.as_bytes()).unwrap();
        }
        for (second, text) in [
            (0, "abcd"),
            (10, "abcd"),
            (11, "cd"),
            (12, "cd"),
            (13, "d"),
            (16, ""),
        ] {
            assert_eq!(
                log.read(log.offset_of(second)).unwrap(),
                text.as_bytes(),
                "{second}"
            );
        }
    }
}
