//! Log bytes kept on disk: a job may write more than the container has memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Most bytes of log that are kept in memory while the disk is full: the job needs its memory itself.
const MOST_IN_MEMORY: usize = 32 * 1024 * 1024;
/// Stands for what was lost.
const LOST: &str = "\n[some bytes of log were lost: the disk is full]\n";

/// An append-only file without a name.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
    len: u64,
    in_memory: usize,
}

/// Where a piece is.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Disk {
        offset: u64,
        len: u32,
    },
    /// Kept here because the disk was full.
    Memory(Arc<[u8]>),
    /// Neither disk nor memory would take it.
    Lost(usize),
}

impl Piece {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Disk { len, .. } => usize::try_from(*len).unwrap_or(usize::MAX),
            Self::Memory(bytes) => bytes.len(),
            Self::Lost(_) => LOST.len(),
        }
    }
}

impl Spool {
    /// Makes the file in `dir` and takes its name away, so that it goes with the process.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!(".pull-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self {
            file,
            len: 0,
            in_memory: 0,
        })
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Piece {
        let written = u32::try_from(bytes.len())
            .map_err(io::Error::other)
            .and_then(|len| self.file.write_all_at(bytes, self.len).map(|()| len));
        match written {
            Ok(len) => {
                let offset = self.len;
                self.len += u64::from(len);
                Piece::Disk { offset, len }
            }
            Err(_) if self.in_memory.saturating_add(bytes.len()) <= MOST_IN_MEMORY => {
                self.in_memory += bytes.len();
                Piece::Memory(Arc::from(bytes))
            }
            Err(_) => Piece::Lost(bytes.len()),
        }
    }

    /// A second handle for reading, outside any lock.
    pub(crate) fn reader(&self) -> io::Result<Reader> {
        Ok(Reader(self.file.try_clone()?))
    }
}

/// Reads pieces.
#[derive(Debug)]
pub(crate) struct Reader(File);

impl Reader {
    /// Puts the bytes of a piece into `bytes`, in place of what was there.
    pub(crate) fn read(&self, piece: &Piece, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.clear();
        match piece {
            Piece::Memory(kept) => bytes.extend_from_slice(kept),
            Piece::Lost(len) => {
                bytes.extend_from_slice(LOST.replace("some", &len.to_string()).as_bytes());
            }
            Piece::Disk { offset, len } => {
                bytes.resize(usize::try_from(*len).map_err(io::Error::other)?, 0);
                self.0.read_exact_at(bytes, *offset)?;
            }
        }
        Ok(())
    }
}
