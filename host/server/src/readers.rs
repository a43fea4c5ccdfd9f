//! Short jobs of official clients end a little later, so that their logs find their readers.
//!
//! That client looks at a new run every second, later every five. When it runs, the client goes to the job itself over
//! SSH, reads the log there, and calls it a failure if the job is no more. So a job that was done before anybody could
//! come stays up for some seconds; it ends at once when its log was read. Our own client reads from the server and
//! needs none of this. Kept in memory only: after a restart, jobs end as soon as they are done.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dstack_engine::ids::{JobId, RunId};
use dstack_engine::job_running::Pulled;
use jiff::{SignedDuration, Timestamp};

/// A job stays up at least this long after its start. By then the client has looked twice and opened its connection.
const STAY: SignedDuration = SignedDuration::from_secs(10);
/// How often a job that stays is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(400);
/// Runs are remembered this long: their jobs may wait for machines.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);
/// More runs than this are not remembered.
const MOST: usize = 4096;

/// Runs whose readers may come, and jobs that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    expected: HashMap<RunId, Timestamp>,
    held: HashMap<JobId, Held>,
}

/// How a job ended, and until when nobody is told.
#[derive(Debug, Clone)]
struct Held {
    until: Timestamp,
    end: Pulled,
}

impl Readers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client that reads logs at the job has submitted this run.
    pub(crate) fn expect(&self, run: RunId, now: Timestamp) {
        let mut state = self.state();
        if state.expected.len() >= MOST {
            state
                .expected
                .retain(|_, at| now.duration_since(*at) < REMEMBERED);
        }
        if state.expected.len() < MOST {
            state.expected.insert(run, now);
        }
    }

    /// Whether the end of a job waits for a reader. It is kept until [`Readers::release`].
    pub(crate) fn hold(
        &self,
        run: RunId,
        job: JobId,
        started: Option<Timestamp>,
        end: &Pulled,
        now: Timestamp,
    ) -> bool {
        let is_good = end.stored && end.ended.as_ref().is_some_and(|ended| ended.done);
        let Some(until) = started.and_then(|at| at.checked_add(STAY).ok()) else {
            return false;
        };
        let mut state = self.state();
        let is_wanted = is_good && now < until && state.expected.contains_key(&run);
        if is_wanted {
            let end = end.clone();
            state.held.insert(job, Held { until, end });
        }
        is_wanted
    }

    /// Whether the end of this job waits for a reader.
    pub(crate) fn is_held(&self, job: JobId) -> bool {
        self.state().held.contains_key(&job)
    }

    /// The job's end, if its time is over or its log was read.
    pub(crate) fn release(&self, job: JobId, is_read: bool, now: Timestamp) -> Option<Pulled> {
        let mut state = self.state();
        let is_due = state
            .held
            .get(&job)
            .is_some_and(|held| is_read || now >= held.until);
        is_due
            .then(|| state.held.remove(&job))?
            .map(|held| held.end)
    }

    /// The job ends for another reason.
    pub(crate) fn forget(&self, job: JobId) {
        self.state().held.remove(&job);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, REMEMBERED, Readers};
    use dstack_engine::ids::{JobId, RunId};
    use dstack_engine::job_running::{Ended, Pulled};
    use jiff::{SignedDuration, Timestamp};
    use uuid::Uuid;

    const RUN: RunId = RunId(Uuid::from_u128(1));
    const JOB: JobId = JobId(Uuid::from_u128(2));

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(1000 + secs).unwrap()
    }

    fn end(done: bool) -> Pulled {
        Pulled {
            stored: true,
            news: true,
            last_updated: 5,
            no_connections_secs: None,
            ended: Some(Ended {
                done,
                reason: String::new(),
                message: String::new(),
                exit_status: Some(0),
            }),
        }
    }

    #[test]
    fn only_short_good_jobs_of_such_clients_wait() {
        let readers = Readers::default();
        let hold = |end: &Pulled, secs| readers.hold(RUN, JOB, Some(at(0)), end, at(secs));
        assert!(!hold(&end(true), 1), "of another client");
        readers.expect(RUN, at(0));
        assert!(!hold(&end(false), 1), "a failure");
        assert!(!hold(&end(true), 10), "long enough");
        assert!(
            !hold(
                &Pulled {
                    stored: false,
                    ..end(true)
                },
                1
            ),
            "to be read again"
        );
        assert!(
            !readers.hold(RUN, JOB, None, &end(true), at(1)),
            "never started"
        );
        assert!(!readers.is_held(JOB));
        assert!(hold(&end(true), 1));
        assert!(readers.is_held(JOB));
    }

    #[test]
    fn it_ends_when_its_log_was_read_or_nobody_came() {
        let readers = Readers::default();
        readers.expect(RUN, at(0));
        let hold = || readers.hold(RUN, JOB, Some(at(0)), &end(true), at(1));
        assert!(hold());
        assert_eq!(readers.release(JOB, false, at(9)), None);
        assert_eq!(readers.release(JOB, false, at(10)), Some(end(true)));
        assert_eq!(readers.release(JOB, true, at(10)), None, "told once");
        assert!(hold());
        assert_eq!(readers.release(JOB, true, at(2)), Some(end(true)));
        assert!(hold());
        readers.forget(JOB);
        assert!(!readers.is_held(JOB));
    }

    #[test]
    fn runs_are_not_remembered_without_limit() {
        let readers = Readers::default();
        for number in 0..=MOST {
            readers.expect(RunId(Uuid::from_u128(number as u128)), at(0));
        }
        assert_eq!(readers.state().expected.len(), MOST);
        let later = at(0) + REMEMBERED + SignedDuration::from_secs(1);
        readers.expect(RUN, later);
        assert_eq!(readers.state().expected.len(), 1);
    }
}
