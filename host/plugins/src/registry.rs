//! Which plugins there are now, and what changes when the folders have changed.

use crate::{
    config::{Isolation, PluginsConfig},
    discover::Found,
    events::{Events, PluginEvent, What},
    folder::stamp,
    services::Host,
    slot::Slot,
    stats::Stats,
    status::{PluginState, PluginStatus},
};
use dstack_backend_loader::Inspected;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What a look through the folders has changed. Names of backends.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reloaded {
    /// Not there before.
    pub added: Vec<String>,
    /// Another file is used from now on.
    pub replaced: Vec<String>,
    /// There is another file, which is used after a restart of the host.
    pub after_restart: Vec<String>,
    /// Not there any more.
    pub removed: Vec<String>,
}

/// The plugins of all folders.
#[derive(Default)]
pub(crate) struct Registry {
    pub usable: BTreeMap<String, Arc<Slot>>,
    pub rest: Vec<PluginStatus>,
    /// Where the files lay that are gone.
    removed: BTreeMap<String, PathBuf>,
    /// Plugins whose code is in this process for ever, also those that are not used now.
    resident: BTreeMap<String, Arc<Slot>>,
    stats: BTreeMap<String, Arc<Stats>>,
    /// What was told of lock files.
    lock_problems: BTreeMap<String, String>,
    pub is_settling: bool,
}

impl Registry {
    /// Takes over what was found. What it returns beside the summary is to be dropped by the caller, outside of locks: slots
    /// that are not used any more.
    pub(crate) fn take(
        &mut self,
        found: Found,
        config: &PluginsConfig,
        host: &Arc<Host>,
    ) -> (Reloaded, Vec<Arc<Slot>>) {
        let tell = |backend: &str, what| {
            Events(config.events.clone()).tell(PluginEvent {
                backend: backend.to_owned(),
                what,
            });
        };
        let mut done = Reloaded::default();
        let mut before = std::mem::take(&mut self.usable);
        for (name, slot) in &before {
            if slot.is_resident() {
                self.resident.insert(name.clone(), Arc::clone(slot));
            }
        }
        let mut left = Vec::new();
        for (name, (file, isolation)) in found.usable {
            let old = before.remove(&name);
            let resident = self.resident.get(&name).cloned();
            let version = file.manifest.version.clone();
            // A file that was put in place runs in a child until it is locked; then it stays there if this process has the
            // code of an earlier one.
            let stays_out = isolation == Isolation::InProcess
                && old.as_ref().is_some_and(|old| !old.is_resident())
                && resident
                    .as_ref()
                    .is_some_and(|resident| resident.sha256 != file.sha256);
            let isolation = if stays_out {
                Isolation::Process
            } else {
                isolation
            };
            let note = stays_out.then(|| {
                "in a process of its own until a restart: the server still holds an earlier version".to_owned()
            });
            let slot = match (old.clone().or(resident), isolation) {
                (Some(old), _) if is_same(&old, &file, isolation) => {
                    old.set_newer(note);
                    old
                }
                (Some(old), Isolation::InProcess) if old.is_resident() => {
                    let note = format!(
                        "version {version} (hash {}…) lies at {}; restart the server to use it",
                        file.sha256.get(..12).unwrap_or(&file.sha256),
                        file.path.display()
                    );
                    if old.set_newer(Some(note)) {
                        let is_used = false;
                        tell(&name, What::Replaced { version, is_used });
                    }
                    done.after_restart.push(name.clone());
                    old
                }
                (_, isolation) => {
                    let stats = Arc::clone(self.stats.entry(name.clone()).or_default());
                    let slot = Slot::new(file, isolation, config, host, stats);
                    slot.set_newer(note);
                    Arc::new(slot)
                }
            };
            match &old {
                Some(old) if Arc::ptr_eq(old, &slot) => {}
                Some(_) => {
                    let version = slot.manifest.version.clone();
                    let is_used = true;
                    tell(&name, What::Replaced { version, is_used });
                    done.replaced.push(name.clone());
                }
                None => done.added.push(name.clone()),
            }
            left.extend(old);
            self.removed.remove(&name);
            self.usable.insert(name, slot);
        }
        for (name, slot) in before {
            // While a file is copied over another one, the other one is still what is used.
            if found.is_settling && found.rest.iter().any(|status| status.path == slot.path) {
                self.usable.insert(name, slot);
                continue;
            }
            tell(&name, What::Removed);
            self.removed.insert(name.clone(), slot.path.clone());
            done.removed.push(name);
            left.push(slot);
        }
        for (name, problem) in &found.lock_problems {
            if self.lock_problems.get(name) != Some(problem) {
                let problem = problem.clone();
                tell(name, What::LockRefused { problem });
            }
        }
        self.lock_problems = found.lock_problems;
        self.rest = found.rest;
        self.is_settling = found.is_settling;
        (done, left)
    }

    /// Every file, usable ones first, both by name.
    pub(crate) fn list(&self) -> Vec<PluginStatus> {
        let mut rest = self.rest.clone();
        rest.extend(self.removed.iter().map(|(name, path)| removed(name, path)));
        rest.sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
        self.usable
            .values()
            .map(|slot| slot.status())
            .chain(rest)
            .collect()
    }

    /// Why there is no plugin of this name.
    pub(crate) fn why_not(&self, name: &str) -> String {
        let refused = self.rest.iter().find(|status| status.name == name);
        if let Some(status) = refused {
            return format!(
                "the plugin {} is not used: {}",
                status.path.display(),
                status.error.as_deref().unwrap_or("refused")
            );
        }
        match self.removed.get(name) {
            Some(path) => gone(path),
            None => "no such plugin; see `dstack backend list`".to_owned(),
        }
    }
}

/// Whether a slot is what was found. Code in this process is known by its hash alone: it stays whatever becomes of the file.
fn is_same(slot: &Slot, file: &Inspected, isolation: Isolation) -> bool {
    slot.isolation() == isolation
        && slot.sha256 == file.sha256
        && (slot.is_resident() || (slot.stamp == stamp(file) && slot.path == file.path))
}

fn gone(path: &Path) -> String {
    format!(
        "the plugin's file {} is gone; put it back, its machines are still known",
        path.display()
    )
}

fn removed(name: &str, path: &Path) -> PluginStatus {
    PluginStatus {
        name: name.to_owned(),
        version: None,
        sdk: None,
        capabilities: Vec::new(),
        hash: None,
        isolation: None,
        state: PluginState::Removed,
        error: Some(gone(path)),
        path: path.to_owned(),
        stats: None,
    }
}
