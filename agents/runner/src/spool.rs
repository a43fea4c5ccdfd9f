//! Log bytes kept on disk: a job may write more than the container has memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// An append-only file without a name.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
    len: u64,
    is_failing: bool,
}

/// Where a piece is.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Disk {
        offset: u64,
        len: usize,
    },
    /// Kept here because the disk was full.
    Memory(Arc<[u8]>),
}

impl Piece {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Disk { len, .. } => *len,
            Self::Memory(bytes) => bytes.len(),
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
            is_failing: false,
        })
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Piece {
        match self.file.write_all_at(bytes, self.len) {
            Ok(()) => {
                let piece = Piece::Disk {
                    offset: self.len,
                    len: bytes.len(),
                };
                self.len += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                piece
            }
            Err(_) => {
                self.is_failing = true;
                Piece::Memory(Arc::from(bytes))
            }
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
    pub(crate) fn read(&self, piece: &Piece) -> io::Result<Vec<u8>> {
        match piece {
            Piece::Memory(bytes) => Ok(bytes.to_vec()),
            Piece::Disk { offset, len } => {
                let mut bytes = vec![0; *len];
                self.0.read_exact_at(&mut bytes, *offset)?;
                Ok(bytes)
            }
        }
    }
}
