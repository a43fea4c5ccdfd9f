//! Logs that nobody has written to for a time go, and so do the folders that are empty then.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// Deletes log files below `projects/<project>/logs/<run>/<submission>` that were last written before `time`; answers how many.
///
/// What cannot be deleted is told and left: the next look tries again.
pub(super) fn drop_before(projects: &Path, time: Timestamp) -> u64 {
    let mut dropped = 0;
    for project in folders(projects) {
        for run in folders(&project.join("logs")) {
            for submission in folders(&run) {
                dropped += files(&submission, time);
                drop_empty(&submission);
            }
            drop_empty(&run);
        }
    }
    dropped
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    let real = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    real.map(|entry| entry.path()).collect()
}

fn files(submission: &Path, time: Timestamp) -> u64 {
    let mut dropped = 0;
    for name in ["job.log", "runner.log"] {
        let path = submission.join(name);
        match drop_old(&path, time) {
            Ok(true) => dropped += 1,
            Ok(false) => {}
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "an old log cannot be deleted")
            }
        }
    }
    dropped
}

fn drop_old(path: &Path, time: Timestamp) -> io::Result<bool> {
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        about => about?,
    };
    let modified = Timestamp::try_from(about.modified()?).map_err(io::Error::other)?;
    if modified >= time {
        return Ok(false);
    }
    fs::remove_file(path).map(|()| true)
}

/// One that is not empty stays.
fn drop_empty(folder: &Path) {
    drop(fs::remove_dir(folder));
}
