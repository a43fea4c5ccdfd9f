//! A log file that does not grow for ever.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is renamed to `<name>.1` once it is too large, and an older `<name>.1` to `<name>.2`, and so on.
#[derive(Debug)]
pub struct RotatingFile {
    path: PathBuf,
    file: File,
    len: u64,
    limit: u64,
    kept: u32,
}

impl RotatingFile {
    /// Opens `path` for appending. It is put aside before it would have more than `limit` bytes; `kept` old files stay.
    ///
    /// # Errors
    /// If the file cannot be opened or made.
    pub fn open(path: &Path, limit: u64, kept: u32) -> io::Result<Self> {
        let file = append_to(path)?;
        let len = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            len,
            limit,
            kept,
        })
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        name.into()
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.kept).rev() {
            // There may be fewer old files than are kept.
            drop(std::fs::rename(
                self.numbered(number),
                self.numbered(number + 1),
            ));
        }
        if self.kept == 0 {
            self.file.set_len(0)?;
        } else {
            std::fs::rename(&self.path, self.numbered(1))?;
            self.file = append_to(&self.path)?;
        }
        self.len = 0;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let added = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.len > 0 && self.len.saturating_add(added) > self.limit && self.rotate().is_err() {
            // The line is worth more than the limit; the next one tries again.
            self.len = 0;
        }
        let written = self.file.write(line)?;
        self.len += u64::try_from(written).unwrap_or_default();
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_lines_move_on_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        std::fs::write(&path, "old\n").unwrap();
        let mut log = RotatingFile::open(&path, 8, 2).unwrap();
        for line in [
            "one\n",
            "two\n",
            "three\n",
            "a long line of its own\n",
            "x\n",
        ] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(
            (
                read("a.log").as_str(),
                read("a.log.1").as_str(),
                read("a.log.2").as_str()
            ),
            ("x\n", "a long line of its own\n", "three\n")
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
