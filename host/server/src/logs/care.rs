//! Keeps a provider that does not answer from holding up the steps of jobs: each of them would wait for it in turn.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::LogError;

/// All of one call, whatever it takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it is left alone after the first silence, and at most.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// Whether the provider answers.
#[derive(Debug)]
pub(super) struct Care {
    patience: Duration,
    rest: Mutex<Option<Rest>>,
}

impl Default for Care {
    fn default() -> Self {
        Self {
            patience: PATIENCE,
            rest: Mutex::default(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Instant,
    length: Duration,
}

impl Care {
    fn rest(&self) -> MutexGuard<'_, Option<Rest>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a call unless the provider rests, and has it rest if it stays silent.
    pub(super) async fn over<T>(
        &self,
        call: impl Future<Output = Result<T, LogError>>,
    ) -> Result<T, LogError> {
        if self.rest().is_some_and(|rest| rest.until > Instant::now()) {
            return Err(LogError::Resting);
        }
        let done = tokio::time::timeout(self.patience, call).await;
        match &done {
            Err(_) | Ok(Err(LogError::Outside { is_gone: true, .. })) => {
                let mut rest = self.rest();
                let length = rest.map_or(FIRST_REST, |it| (it.length * 2).min(LONGEST_REST));
                let until = Instant::now() + length;
                *rest = Some(Rest { until, length });
            }
            _ => *self.rest() = None,
        }
        done.unwrap_or_else(|_| {
            Err(LogError::Outside {
                store: "the provider of logs",
                why: format!("it took more than {} s", self.patience.as_secs()),
                is_gone: true,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::{Care, Instant, LogError};

    #[tokio::test]
    async fn who_does_not_answer_is_left_alone() {
        let asked = AtomicU32::new(0);
        let care = Care {
            patience: Duration::from_millis(20),
            ..Care::default()
        };
        let silent = || async {
            asked.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<(), LogError>>().await
        };
        assert!(matches!(
            care.over(silent()).await,
            Err(LogError::Outside { is_gone: true, .. })
        ));
        let later = Instant::now() + Duration::from_secs(3600);
        care.rest().as_mut().unwrap().until = later;
        for _ in 0..100 {
            assert!(matches!(care.over(silent()).await, Err(LogError::Resting)));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1, "nobody waited again");
        care.rest().as_mut().unwrap().until = Instant::now();
        let answer = care.over(async { Ok(5) }).await;
        assert_eq!(answer.unwrap(), 5);
        let refused = || async {
            Err::<(), _>(LogError::Outside {
                store: "x",
                why: String::new(),
                is_gone: false,
            })
        };
        assert!(care.over(refused()).await.is_err());
        assert_eq!(
            care.over(async { Ok(6) }).await.unwrap(),
            6,
            "a refusal is an answer"
        );
    }
}
