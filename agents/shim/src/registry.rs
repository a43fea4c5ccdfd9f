//! All tasks of the shim, and how several parts work on one of them without getting into each other's way.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dstack_agent_protocol::shim::{TaskInfo, TaskStatus};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::state_file;
use crate::task::{Rejected, Task};

/// One task and its locks.
#[derive(Debug)]
pub(crate) struct Slot {
    task: Mutex<Task>,
    /// Held by whoever starts, stops, cleans up or removes the task.
    pub(crate) operation: tokio::sync::Mutex<()>,
    /// Keeps two writers of the state file apart; whether the last of them failed.
    saving: Mutex<bool>,
    /// Ends a pull that is under way.
    pub(crate) cancel_pull: CancellationToken,
    status: watch::Sender<TaskStatus>,
}

impl Slot {
    fn new(task: Task) -> Self {
        Self {
            status: watch::Sender::new(task.status),
            task: Mutex::new(task),
            operation: tokio::sync::Mutex::new(()),
            saving: Mutex::new(false),
            cancel_pull: CancellationToken::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the task.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Task) -> T) -> T {
        look(&self.lock())
    }

    /// Changes the task in one step and tells those who wait for its status.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Task) -> T) -> T {
        let mut task = self.lock();
        let result = change(&mut task);
        let status = task.status;
        // Told under the lock, so that two changes are told in their order.
        self.status
            .send_if_modified(|told| std::mem::replace(told, status) != status);
        result
    }

    /// Goes to `to` if the task's state allows it.
    pub(crate) fn advance(&self, to: TaskStatus) -> Result<(), Rejected> {
        self.update(|task| task.advance(to))
    }

    pub(crate) fn status(&self) -> TaskStatus {
        self.read(|task| task.status)
    }

    pub(crate) fn info(&self) -> TaskInfo {
        self.read(Task::info)
    }

    /// Waits until the status is another than `from`.
    pub(crate) async fn left(&self, from: TaskStatus) {
        // The sender lives in `self`, so the error "sender gone" cannot come.
        drop(
            self.status
                .subscribe()
                .wait_for(|status| *status != from)
                .await,
        );
    }

    /// Writes the state file; before there is a task directory this does nothing. A failure is logged: the task goes on,
    /// but a restarted shim would know less about it, so it is tried again by [`Slot::save_again`].
    pub(crate) fn save(&self) {
        if let Err(err) = self.try_save() {
            let id = self.read(|task| task.config.id.clone());
            tracing::error!(task.id = id, error = %err, "the state file could not be written");
        }
    }

    /// The same for a task that must not go on without.
    pub(crate) fn try_save(&self) -> io::Result<()> {
        let mut is_unsaved = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let (dir, state) = {
            let task = self.lock();
            let Some(dir) = task.dir.clone() else {
                return Ok(());
            };
            (dir, state_file::State::of(&task))
        };
        let written = state.write(&dir);
        *is_unsaved = written.is_err();
        written
    }

    /// Writes the state file if that failed the last time, for example because the disk was full.
    pub(crate) fn save_again(&self) {
        let is_unsaved = *self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        if is_unsaved {
            self.save();
        }
    }
}

/// The tasks by id.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<BTreeMap<String, Arc<Slot>>>);

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task; `None` if its id is taken.
    pub(crate) fn add(&self, task: Task) -> Option<Arc<Slot>> {
        match self.lock().entry(task.config.id.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(entry) => Some(Arc::clone(entry.insert(Arc::new(Slot::new(task))))),
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Slot>> {
        self.lock().get(id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Slot>> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }
}
