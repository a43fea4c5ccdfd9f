//! What a task gives back when it is over: its processes, volumes, keys, GPUs and mount points.

use std::io;

use dstack_agent_protocol::shim::TaskStatus;

use crate::lifecycle::stop_work;
use crate::registry::Slot;
use crate::shim::Shim;
use crate::{host_keys, process, volumes};

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
    if let Err(err) = unmount_volumes(shim, &id, slot).await {
        tracing::error!(
            task.id = id,
            error = err,
            "a volume of a terminated task stays mounted"
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
    shim.remove_mount_targets();
    true
}

/// Unmounts the task's volumes, but for those that another task uses too.
async fn unmount_volumes(shim: &Shim, id: &str, slot: &Slot) -> Result<(), String> {
    let names: Vec<String> = slot.read(|task| {
        let volumes = task.config.volumes.iter();
        volumes.map(|volume| volume.name.clone()).collect()
    });
    for name in names {
        // Held over the question and the deed: a task that comes meanwhile mounts the volume again afterwards.
        let _one_change = shim.volume_locks.lock(&name).await;
        let is_used = shim.tasks.all().iter().any(|other| {
            other.read(|task| {
                task.config.id != id
                    && !task.is_cleaned_up
                    && task.config.volumes.iter().any(|volume| volume.name == name)
            })
        });
        if is_used {
            continue;
        }
        tokio::task::spawn_blocking(move || volumes::unmount(&name))
            .await
            .map_err(|err| err.to_string())?
            .map_err(|err| err.to_string())?;
    }
    Ok(())
}

impl Shim {
    /// Removes the mount points that were made for tasks without containers, but for those of living ones.
    pub(crate) fn remove_mount_targets(&self) {
        let mut used = Vec::new();
        for slot in self.tasks.all() {
            slot.read(|task| {
                if !task.is_cleaned_up {
                    let binds = process::binds(&task.config).into_iter();
                    used.extend(binds.map(|(_, target)| target));
                }
            });
        }
        process::remove_unused_targets(&self.home, &used);
    }

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
