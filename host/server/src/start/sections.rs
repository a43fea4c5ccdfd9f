//! The backends of `config.yml`: used at the start, again at a reload if they have changed or were refused, and, if they were
//! refused, as soon as another file of their plugin is there.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::Arc;

use dstack_api::config::BackendEntry;
use dstack_backend_types::BackendType;
use dstack_engine::ids::ProjectId;
use dstack_plugins::Plugins;
use dstack_store::projects::ProjectRow;
use tokio::sync::{Mutex, watch};

use super::StartError;
use super::config::{self, Loaded};
use crate::error::ApiError;
use crate::services::backends::Backends;
use crate::settings::Settings;
use crate::tasks::Tasks;

/// The sections, and what became of each.
pub(crate) struct Sections {
    settings: Settings,
    backends: Arc<Backends>,
    plugins: Plugins,
    state: Mutex<State>,
}

type Key = (ProjectId, BackendType);

#[derive(Default)]
struct State {
    file: Option<Loaded>,
    /// The file's projects by name, as they were at the start.
    projects: HashMap<String, ProjectRow>,
    used: HashMap<Key, BackendEntry>,
    /// With the hash of the plugin's file that refused it; `None` if there was none.
    refused: HashMap<Key, Option<String>>,
}

/// Which sections are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// All that are not used as they stand there.
    Changed,
    /// Those that were refused, if their plugin has another file now.
    WithNewPlugin,
}

/// What came out.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// `project/backend` of the sections that are used from now on.
    pub(crate) configured: Vec<String>,
    /// Lines with file, place and reason of what is not used.
    pub(crate) problems: Vec<String>,
}

impl Sections {
    pub(crate) fn new(settings: Settings, backends: Arc<Backends>, plugins: Plugins) -> Self {
        Self {
            settings,
            backends,
            plugins,
            state: Mutex::default(),
        }
    }

    /// Uses the sections of the file that the server starts with. What cannot be used is logged.
    pub(super) async fn begin(
        &self,
        file: Loaded,
        projects: HashMap<String, ProjectRow>,
    ) -> Result<(), ApiError> {
        let mut state = self.state.lock().await;
        state.file = Some(file);
        state.projects = projects;
        self.apply(&mut state, Which::Changed).await?;
        Ok(())
    }

    /// Reads the file again and uses what has changed of its backends, or was refused before. Anything else in the file is for
    /// the next start.
    ///
    /// # Errors
    /// The database.
    pub(crate) async fn reload(&self) -> Result<Applied, ApiError> {
        let mut state = self.state.lock().await;
        let mut unread = Vec::new();
        match config::read_again(&self.settings) {
            Ok(Some(file)) => state.file = Some(file),
            Ok(None) => {}
            Err(error) => {
                let error = whole(&error);
                tracing::error!(
                    "{error}; the backends of config.yml stay as they were read before"
                );
                unread.push(error);
            }
        }
        let mut done = self.apply(&mut state, Which::Changed).await?;
        done.problems.splice(0..0, unread);
        Ok(done)
    }

    async fn apply(&self, state: &mut State, which: Which) -> Result<Applied, ApiError> {
        let mut done = Applied::default();
        let State {
            file: Some(file),
            projects,
            used,
            refused,
        } = state
        else {
            return Ok(done);
        };
        for (number, project) in file.projects.iter().enumerate() {
            let Some(wanted) = &project.backends else {
                continue;
            };
            let Some(row) = projects.get(&project.name) else {
                done.problems.push(format!(
                    "project {} is new in config.yml; it is made at the next start",
                    project.name
                ));
                continue;
            };
            for (section, entry) in wanted.iter().enumerate() {
                let key = (row.id, entry.backend.clone());
                if used.get(&key) == Some(entry) {
                    refused.remove(&key);
                    continue;
                }
                let now = hash(&self.plugins, entry.backend.as_str());
                let has_new_plugin =
                    now.is_some() && refused.get(&key).is_some_and(|before| *before != now);
                if which == Which::WithNewPlugin && !has_new_plugin {
                    continue;
                }
                let place = |problem| file.place(number, section, problem);
                let problems = self
                    .backends
                    .apply_one(row, entry, &self.settings.home, &place)
                    .await?;
                if problems.is_empty() {
                    done.configured
                        .push(format!("{}/{}", project.name, entry.backend.as_str()));
                    refused.remove(&key);
                    used.insert(key, entry.clone());
                } else {
                    done.problems.extend(problems);
                    refused.insert(key, now);
                }
            }
            if which == Which::Changed {
                let kinds: Vec<BackendType> =
                    wanted.iter().map(|entry| entry.backend.clone()).collect();
                self.backends.keep_only(row, kinds.clone()).await?;
                let is_there = |key: &Key| key.0 != row.id || kinds.contains(&key.1);
                used.retain(|key, _| is_there(key));
                refused.retain(|key, _| is_there(key));
            }
        }
        Ok(done)
    }

    /// Starts the task that tries refused sections when their plugin has another file.
    pub(super) fn follow(self: &Arc<Self>, mut changes: watch::Receiver<u64>, tasks: &Tasks) {
        let (sections, ending) = (Arc::clone(self), tasks.clone());
        tasks.spawn("backends.sections", async move {
            loop {
                tokio::select! {
                    () = ending.stopping() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                }
                tokio::select! {
                    () = ending.stopping() => return,
                    () = sections.look() => {}
                }
            }
        });
    }

    async fn look(&self) {
        let mut state = self.state.lock().await;
        match self.apply(&mut state, Which::WithNewPlugin).await {
            Ok(done) if done.configured.is_empty() => {}
            Ok(done) => tracing::info!(
                sections = done.configured.join(", "),
                "sections of config.yml are used now"
            ),
            Err(error) => tracing::error!(%error, "a section of config.yml was not stored"),
        }
    }
}

/// With what the system said, if it was asked.
fn whole(error: &StartError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The hash of the plugin's file that is used; `None` if there is none.
fn hash(plugins: &Plugins, name: &str) -> Option<String> {
    plugins.manifest(name)?;
    let all = plugins.list();
    all.into_iter().find(|plugin| plugin.name == name)?.hash
}
