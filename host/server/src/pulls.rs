//! How far images are, job by job, as the shims last said. Kept in memory only: a restarted server asks again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dstack_agent_protocol::shim::{TaskInfo, TaskStatus};
use dstack_api::jobs::ImagePullProgress;
use dstack_engine::ids::JobId;

/// The pulls that are going on.
#[derive(Debug, Default)]
pub(crate) struct Pulls(Mutex<HashMap<JobId, ImagePullProgress>>);

impl Pulls {
    fn all(&self) -> MutexGuard<'_, HashMap<JobId, ImagePullProgress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a shim says of a job's task.
    pub(crate) fn note(&self, job: JobId, task: &TaskInfo) {
        match task.image_pull_progress {
            Some(progress) if task.status == TaskStatus::Pulling => {
                self.all().insert(
                    job,
                    ImagePullProgress {
                        downloaded_bytes: progress.downloaded_bytes,
                        extracted_bytes: progress.extracted_bytes,
                        total_bytes: progress.total_bytes,
                        is_total_bytes_final: progress.is_total_bytes_final,
                    },
                );
            }
            _ => self.forget(job),
        }
    }

    /// The job pulls nothing any more.
    pub(crate) fn forget(&self, job: JobId) {
        self.all().remove(&job);
    }

    /// How far the image of a job is; `None` if it pulls none.
    pub(crate) fn of(&self, job: JobId) -> Option<ImagePullProgress> {
        self.all().get(&job).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Pulls;
    use dstack_agent_protocol::shim::TaskInfo;
    use dstack_engine::ids::JobId;
    use serde_json::json;
    use uuid::Uuid;

    #[test]
    fn progress_is_known_while_the_image_is_pulled() {
        let pulls = Pulls::default();
        let job = JobId(Uuid::from_u128(1));
        let task = |status: &str| -> TaskInfo {
            serde_json::from_value(json!({
                "id": "1",
                "status": status,
                "image_pull_progress": {
                    "downloaded_bytes": 5, "extracted_bytes": 1, "total_bytes": 10, "is_total_bytes_final": true,
                },
            }))
            .unwrap()
        };
        pulls.note(job, &task("pulling"));
        let known = pulls.of(job).unwrap();
        assert_eq!((known.downloaded_bytes, known.extracted_bytes), (5, 1));
        assert_eq!((known.total_bytes, known.is_total_bytes_final), (10, true));
        pulls.note(job, &task("running"));
        assert_eq!(pulls.of(job), None);
        pulls.note(job, &task("pulling"));
        pulls.forget(job);
        assert_eq!(pulls.of(job), None);
    }
}
