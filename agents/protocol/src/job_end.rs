//! The word that a runner leaves when it has ended in order; the contract between our two agents.
//!
//! A runner ends with code 0 whatever its job came to, and also when an engine that comes back ends its container, if
//! the server has asked how the job ended. A server that lost that answer asks the shim, which must not take the code for
//! the job's; nor can it be sure of the code of a container that ended while the engine was away. Hence the runner makes
//! [`MARK_FILE`] in its temp dir before anything else there, filled with blanks, and as its very last act before it ends
//! with code 0 writes the job's last state into it ([`JobState::word`]) and a newline.
//!
//! | in the temp dir | what it says |
//! |---|---|
//! | the file with `done` | the job was done |
//! | the file with another state | the runner ended in order, the job did not |
//! | the file with blanks | the runner was killed, or ended with another code |
//! | no such file, but [`LOG_FILE`] | a runner that knows nothing of the file |
//! | neither | no runner ever began |

use crate::runner::JobState;

/// Name of the file.
pub const MARK_FILE: &str = "job.end";
/// Width of the word in the file, with blanks and newline.
pub const MARK_WIDTH: u8 = 16;
/// The runner's own log, which every runner begins at once.
pub const LOG_FILE: &str = "default.log";

impl JobState {
    /// The state as it stands on the wire and in [`MARK_FILE`].
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Terminated => "terminated",
            Self::Terminating => "terminating",
        }
    }

    /// The state of a word; `None` for every other text.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        [
            Self::Running,
            Self::Done,
            Self::Failed,
            Self::Terminated,
            Self::Terminating,
        ]
        .into_iter()
        .find(|state| state.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_wire() {
        for word in ["running", "done", "failed", "terminated", "terminating"] {
            let state = JobState::of_word(word).unwrap();
            assert_eq!(
                serde_json::to_string(&state).unwrap(),
                format!("\"{word}\"")
            );
            assert!(word.len() < usize::from(MARK_WIDTH));
        }
        assert_eq!(JobState::of_word(""), None);
    }
}
