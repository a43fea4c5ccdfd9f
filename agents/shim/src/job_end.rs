//! What is believed of a runner that ended with code 0: see [`dstack_agent_protocol::job_end`].

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dstack_agent_protocol::job_end::{LOG_FILE, MARK_FILE, MARK_WIDTH};
use dstack_agent_protocol::reason;
use dstack_agent_protocol::runner::JobState;

/// Who says that the code was 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Witness {
    /// An engine, which may have been away when it happened.
    Engine,
    /// Our own keeper, which was there.
    Keeper,
}

/// Reason and message of a task whose runner ended with code 0. `temp` is the runner's temp dir.
pub(crate) fn after_code_0(temp: &Path, witness: Witness) -> (&'static str, String) {
    let done = (reason::DONE_BY_RUNNER, String::new());
    let error = |text: String| (reason::CONTAINER_EXITED_WITH_ERROR, text);
    match mark(temp) {
        Ok(Some(JobState::Done)) => done,
        Ok(Some(state)) => error(format!("the job had ended before: {}", state.word())),
        Ok(None) | Err(_) if witness == Witness::Keeper => done,
        Err(err) if err.kind() == io::ErrorKind::NotFound && is_without_marks(temp) => done,
        Ok(None) => error(
            "the runner was ended while the engine was away, so nobody knows its exit code"
                .to_owned(),
        ),
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            error("the container ended before its runner had begun".to_owned())
        }
        Err(err) => error(format!("how the runner ended cannot be read: {err}")),
    }
}

/// A container of another shim has another temp dir, and one of another runner no mark.
fn is_without_marks(temp: &Path) -> bool {
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    !is_there(temp) || is_there(&temp.join(LOG_FILE))
}

/// The state that the runner left; `None` if it did not come to that.
fn mark(temp: &Path) -> io::Result<Option<JobState>> {
    let path = temp.join(MARK_FILE);
    // The job may have put anything there: a device or a pipe would do something when it is opened.
    if !path.symlink_metadata()?.is_file() {
        return Err(io::Error::other(format!("{MARK_FILE} is no file")));
    }
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(&path)?;
    let mut text = Vec::new();
    file.take(MARK_WIDTH.into()).read_to_end(&mut text)?;
    let word = String::from_utf8_lossy(&text);
    Ok(JobState::of_word(word.trim()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_engine_is_believed_by_what_the_runner_left() {
        let dir = tempfile::tempdir().unwrap();
        let temp = dir.path().join("runner");
        let by = |witness| after_code_0(&temp, witness).0;
        let put = |text: &str| fs::write(temp.join(MARK_FILE), text).unwrap();
        let is_done = |is: bool| {
            let wanted = if is {
                reason::DONE_BY_RUNNER
            } else {
                reason::CONTAINER_EXITED_WITH_ERROR
            };
            assert_eq!(by(Witness::Engine), wanted);
        };
        // The container of a shim that has the directory elsewhere.
        is_done(true);
        fs::create_dir(&temp).unwrap();
        // No runner began.
        is_done(false);
        fs::write(temp.join(LOG_FILE), "").unwrap();
        // One that leaves no marks did.
        is_done(true);
        for (text, is) in [
            ("                ", false),
            ("", false),
            ("done           \n", true),
            ("failed         \n", false),
            ("terminated     \n", false),
            ("done, or so\n", false),
        ] {
            put(text);
            is_done(is);
        }
    }

    #[test]
    fn a_keeper_is_believed_unless_the_runner_knows_better() {
        let dir = tempfile::tempdir().unwrap();
        let by = || after_code_0(dir.path(), Witness::Keeper).0;
        assert_eq!(by(), reason::DONE_BY_RUNNER);
        fs::write(dir.path().join(MARK_FILE), "failed         \n").unwrap();
        assert_eq!(by(), reason::CONTAINER_EXITED_WITH_ERROR);
    }

    #[test]
    fn what_a_job_put_in_the_marks_place_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        fs::write(&secret, "done").unwrap();
        let at = dir.path().join(MARK_FILE);
        std::os::unix::fs::symlink(&secret, &at).unwrap();
        assert_eq!(
            after_code_0(dir.path(), Witness::Engine).0,
            reason::CONTAINER_EXITED_WITH_ERROR
        );
        fs::remove_file(&at).unwrap();
        nix::unistd::mkfifo(&at, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (why, text) = after_code_0(dir.path(), Witness::Engine);
        assert_eq!(why, reason::CONTAINER_EXITED_WITH_ERROR);
        assert!(text.contains("is no file"), "{text}");
    }
}
