//! A circuit breaker: a backend that times out or dies again and again is left alone for a while.

use std::time::{Duration, Instant};

const FAILURES: u32 = 3;
const WINDOW: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Counts failures that follow each other; the caller brings the time.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    first_failure: Option<Instant>,
    open_until: Option<Instant>,
    pause: Duration,
}

impl Breaker {
    /// How long to wait before the next call, or `None` if calls may pass.
    pub(crate) fn closed_for(&self, now: Instant) -> Option<Duration> {
        self.open_until
            .and_then(|until| until.checked_duration_since(now))
            .filter(|left| !left.is_zero())
    }

    /// Whether the last calls failed and no call has succeeded since.
    pub(crate) fn is_open(&self) -> bool {
        self.open_until.is_some()
    }

    /// The backend answered, well or badly: it is alive.
    pub(crate) fn answered(&mut self) {
        *self = Self::default();
    }

    /// A call was not answered in time, or its process died. After a pause one more failure opens it again, for twice as long;
    /// `jitter` in 0..1 spreads the moments at which several hosts try again. Answers for how long it is open from now on.
    pub(crate) fn failed(&mut self, now: Instant, jitter: f64) -> Option<Duration> {
        if self.closed_for(now).is_some() {
            // A call that was let in before.
            return None;
        }
        if self.open_until.is_none() {
            let is_old = self
                .first_failure
                .is_none_or(|first| now.saturating_duration_since(first) > WINDOW);
            if is_old {
                self.failures = 0;
                self.first_failure = Some(now);
            }
            self.failures += 1;
            if self.failures < FAILURES {
                return None;
            }
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        let pause = self.pause.mul_f64(0.75 + jitter.clamp(0.0, 1.0) / 2.0);
        self.open_until = Some(now + pause);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::Breaker;
    use std::time::{Duration, Instant};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn three_timeouts_in_a_row_open_it_and_an_answer_closes_it() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.failed(now, 0.5);
        breaker.failed(now, 0.5);
        assert_eq!(breaker.closed_for(now), None);
        breaker.failed(now, 0.5);
        assert_eq!(breaker.closed_for(now), Some(SECOND));
        assert_eq!(breaker.closed_for(now + SECOND), None);
        assert!(breaker.is_open());
        breaker.answered();
        assert!(!breaker.is_open());
    }

    #[test]
    fn each_further_timeout_doubles_the_pause_up_to_a_minute() {
        let (mut breaker, mut now) = (Breaker::default(), Instant::now());
        breaker.failed(now, 0.5);
        breaker.failed(now, 0.5);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            breaker.failed(now, 0.5);
            let pause = breaker.closed_for(now).unwrap();
            assert_eq!(pause, Duration::from_secs(seconds));
            now += pause;
        }
    }

    #[test]
    fn timeouts_far_apart_do_not_add_up() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        for minutes in 0..10 {
            let at = now + Duration::from_secs(61 * minutes);
            breaker.failed(at, 0.5);
            assert_eq!(breaker.closed_for(at), None);
        }
    }
}
