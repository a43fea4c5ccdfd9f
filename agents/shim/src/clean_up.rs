//! What a task gives back when it is over: its processes, keys and GPUs.

use std::io;

use dstack_agent_protocol::shim::TaskStatus;

use crate::host_keys;
use crate::lifecycle::stop_work;
use crate::registry::Slot;
use crate::shim::Shim;

/// Gives back what a terminated task still holds, once; whether nothing is held any more. The caller holds the task's
/// operation lock. What fails now is tried again by the reconciler.
pub(crate) async fn release(shim: &Shim, slot: &Slot) -> bool {
    let (status, is_cleaned_up, id) =
        slot.read(|task| (task.status, task.is_cleaned_up, task.config.id.clone()));
    if is_cleaned_up {
        return true;
    }
    if status != TaskStatus::Terminated {
        return false;
    }
    if let Err(err) = stop_work(shim, slot, 0).await {
        tracing::error!(
            task.id = id,
            error = err,
            "a terminated task could not be stopped"
        );
        return false;
    }
    // Marked first: the keys below are those of tasks that are not cleaned up.
    let (user, has_keys, gpus) = slot.update(|task| {
        task.is_cleaned_up = true;
        let gpus = task.gpus.clone().unwrap_or_default();
        (
            task.config.host_ssh_user.clone(),
            !task.config.host_ssh_keys.is_empty(),
            gpus,
        )
    });
    if has_keys && let Err(err) = shim.reconcile_host_keys(&user) {
        tracing::error!(task.id = id, error = %err, "keys of a task could not be withdrawn");
        slot.update(|task| task.is_cleaned_up = false);
        return false;
    }
    shim.gpu_lock.release(&gpus);
    slot.save();
    true
}

impl Shim {
    /// Writes the keys of all living tasks of `user` into the user's file.
    pub(crate) fn reconcile_host_keys(&self, user: &str) -> io::Result<()> {
        let mut keys = Vec::new();
        for slot in self.tasks.all() {
            slot.read(|task| {
                if task.config.host_ssh_user == user && !task.is_cleaned_up {
                    keys.extend(task.config.host_ssh_keys.iter().cloned());
                }
            });
        }
        host_keys::reconcile(user, &keys)
    }
}
