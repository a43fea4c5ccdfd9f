//! The word that the runner leaves when it ends in order: see [`dstack_agent_protocol::job_end`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dstack_agent_protocol::job_end::{MARK_FILE, MARK_WIDTH};
use dstack_agent_protocol::runner::JobState;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

/// The place of the word, taken before the job: a disk that is full when the job ends must not hide how it did.
#[derive(Debug)]
pub(crate) struct EndMark {
    file: File,
    path: PathBuf,
}

impl EndMark {
    pub(crate) fn reserve(temp: &Path) -> io::Result<Self> {
        let path = temp.join(MARK_FILE);
        let file = open(&path)?;
        Ok(Self { file, path })
    }

    pub(crate) fn write(&self, state: JobState) -> io::Result<()> {
        let width = usize::from(MARK_WIDTH - 1);
        let text = format!("{:<width$}\n", state.word());
        // Jobs that tidy up take it away too.
        let is_there = |found: fs::Metadata| {
            let own = self.file.metadata()?;
            Ok((own.dev(), own.ino()) == (found.dev(), found.ino()))
        };
        let is_there = self.path.symlink_metadata().and_then(is_there);
        let made = match is_there {
            Ok(true) => None,
            _ => {
                fs::remove_file(&self.path).or_else(absent_is_fine)?;
                Some(open(&self.path)?)
            }
        };
        let file = made.as_ref().unwrap_or(&self.file);
        file.write_all_at(text.as_bytes(), 0)?;
        file.sync_data()
    }
}

fn absent_is_fine(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.custom_flags(nix::libc::O_NOFOLLOW).open(path)?;
    // Blocks that are only promised might be missing in the end; not every file system can take them at once.
    match fallocate(&file, FallocateFlags::empty(), 0, MARK_WIDTH.into()) {
        Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    file.write_all_at(&vec![b' '; MARK_WIDTH.into()], 0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(dir: &Path) -> String {
        fs::read_to_string(dir.join(MARK_FILE)).unwrap()
    }

    #[test]
    fn the_mark_is_blank_until_the_end() {
        let dir = tempfile::tempdir().unwrap();
        // What an earlier runner left says nothing about this one.
        fs::write(dir.path().join(MARK_FILE), "done").unwrap();
        let mark = EndMark::reserve(dir.path()).unwrap();
        assert_eq!(text(dir.path()), " ".repeat(MARK_WIDTH.into()));
        mark.write(JobState::Terminated).unwrap();
        assert_eq!(text(dir.path()), "terminated     \n");
    }

    #[test]
    fn a_job_that_tidies_up_does_not_take_the_end_along() {
        let dir = tempfile::tempdir().unwrap();
        let mark = EndMark::reserve(dir.path()).unwrap();
        fs::remove_file(dir.path().join(MARK_FILE)).unwrap();
        mark.write(JobState::Done).unwrap();
        assert_eq!(text(dir.path()).trim(), "done");
        // Nor does one that puts a link there lead the runner elsewhere.
        let other = dir.path().join("other");
        fs::write(&other, "mine").unwrap();
        fs::remove_file(dir.path().join(MARK_FILE)).unwrap();
        std::os::unix::fs::symlink(&other, dir.path().join(MARK_FILE)).unwrap();
        mark.write(JobState::Done).unwrap();
        assert_eq!(text(dir.path()).trim(), "done");
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
    }
}
