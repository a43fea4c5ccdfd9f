//! The backends of projects: what is stored of them, and what `config.yml` says.

pub(crate) mod edit;

use std::collections::{HashMap, HashSet};
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, PoisonError};

use dstack_api::config::BackendEntry;
use dstack_backend_types::reading::{Kind, Path, Problem, Step};
use dstack_backend_types::{BackendType, ErrorKind};
use dstack_engine::ids::ProjectId;
use dstack_plugins::{CallError, Plugins};
use dstack_store::backends::{self, BackendRow};
use dstack_store::instances::{self, InstancesFilter};
use dstack_store::projects::ProjectRow;
use dstack_store::{DbError, News, Page, Store, Topic, Tx};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::backend_files;
use super::backend_schema::check;
use super::keyring::Keyring;
use crate::app::now;
use crate::clouds::{ProjectBackend, ProjectBackends};
use crate::error::ApiError;

/// The backends of all projects.
pub struct Backends {
    store: Store,
    keyring: Keyring,
    plugins: Plugins,
    /// `None`: on while no other backend is configured anywhere.
    local: Option<bool>,
    default_creds: bool,
    known: Mutex<HashMap<ProjectId, Arc<Vec<ProjectBackend>>>>,
}

impl std::fmt::Debug for Backends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Backends")
    }
}

impl Backends {
    /// `local` is the setting of the same name; `default_creds` allows the server's own cloud credentials.
    #[must_use]
    pub fn new(
        store: Store,
        keyring: Keyring,
        plugins: Plugins,
        local: Option<bool>,
        default_creds: bool,
    ) -> Self {
        Self {
            store,
            keyring,
            plugins,
            local,
            default_creds,
            known: Mutex::default(),
        }
    }

    async fn read(&self, project: ProjectId) -> Result<Vec<ProjectBackend>, ApiError> {
        let only_stored = self.local == Some(false);
        let unset = self.local.is_none();
        let (rows, others) = self
            .store
            .read(move |tx| {
                let rows = backends::of_project(tx, project)?;
                let others = unset
                    && backends::all(tx)?
                        .iter()
                        .any(|row| row.kind != BackendType::LOCAL);
                Ok((rows, others))
            })
            .await?;
        let mut found = Vec::new();
        for row in rows {
            match self.open(&row) {
                Ok(config) => found.push(ProjectBackend {
                    kind: row.kind,
                    config,
                }),
                Err(error) => {
                    tracing::error!(backend = row.kind.as_str(), %error, "a stored backend cannot be used");
                }
            }
        }
        let has_local = found
            .iter()
            .any(|backend| backend.kind == BackendType::LOCAL);
        if !has_local && !only_stored && !others {
            found.push(ProjectBackend {
                kind: BackendType::LOCAL,
                config: json!({"type": "local"}),
            });
        }
        if only_stored {
            found.retain(|backend| backend.kind != BackendType::LOCAL);
        }
        Ok(found)
    }

    fn open(&self, row: &BackendRow) -> Result<Value, ApiError> {
        let internal = |error: &dyn std::fmt::Display| ApiError::Internal(error.to_string());
        let text = self
            .keyring
            .open(&row.secret)
            .map_err(|error| internal(&error))?;
        serde_json::from_str(text.expose()).map_err(|error| internal(&error))
    }

    /// Another server has changed what projects have; opened backends are opened anew where their configuration is another.
    pub(crate) fn reread(&self) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    fn forget(&self, project: ProjectId) {
        self.store.tell(News::Changed(Topic::Backends));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Whether `local` is on anywhere depends on all projects.
        known.clear();
        drop(known);
        self.plugins.forget(&project.to_string(), None);
    }

    /// Deletes the stored backends of a project that are none of these; one that is in use stays.
    ///
    /// # Errors
    /// The database.
    pub async fn keep_only(
        &self,
        project: &ProjectRow,
        keep: Vec<BackendType>,
    ) -> Result<(), ApiError> {
        let id = project.id;
        let (kept, is_changed) = self
            .store
            .write(move |tx| {
                let used = in_use(tx, id)?;
                let (mut kept, mut is_changed) = (Vec::new(), false);
                for row in backends::of_project(tx, id)? {
                    if keep.contains(&row.kind) {
                        continue;
                    }
                    if used.contains(&row.kind) {
                        kept.push(row.kind);
                    } else {
                        backends::delete(tx, id, &row.kind)?;
                        is_changed = true;
                    }
                }
                Ok((kept, is_changed))
            })
            .await?;
        if is_changed {
            self.forget(id);
        }
        for kind in kept {
            tracing::warn!(
                backend = kind.as_str(),
                project = project.name,
                "config.yml no longer has this backend, but machines of it are in use; it stays until they are gone"
            );
        }
        Ok(())
    }

    /// Makes one stored backend of a project what its section of `config.yml` says, and the others nothing else. Answers
    /// what is wrong with the section, which is logged too; with nothing wrong it is used from now on, else the backend stays
    /// as it was. Files that it names are read; `~` is `home`.
    ///
    /// # Errors
    /// The database.
    pub async fn apply_one(
        &self,
        project: &ProjectRow,
        entry: &BackendEntry,
        home: &FilePath,
        place: &Place<'_>,
    ) -> Result<Vec<String>, ApiError> {
        let problems = match self.configure(project, entry, Some(home)).await {
            Ok(row) => {
                self.store.write(move |tx| backends::put(tx, &row)).await?;
                self.forget(project.id);
                Vec::new()
            }
            Err(unusable) => unusable.problems().into_iter().map(place).collect(),
        };
        for problem in &problems {
            tracing::error!(
                backend = entry.backend.as_str(),
                project = project.name,
                "{problem}; the backend stays as it was, the others are not affected"
            );
        }
        Ok(problems)
    }

    /// Checks a configuration by the plugin's schema and by the plugin itself, and turns it into what is stored. With a `files`,
    /// what `~` is, files of this machine that it names are read.
    async fn configure(
        &self,
        project: &ProjectRow,
        entry: &BackendEntry,
        files: Option<&FilePath>,
    ) -> Result<BackendRow, Unusable> {
        let mut config: Map<String, Value> = entry.settings.clone();
        config.insert("type".to_owned(), Value::from(entry.backend.as_str()));
        let configurator = self
            .plugins
            .configurator(entry.backend.as_str())
            .await
            .map_err(|error| Unusable::NoPlugin(error.to_string()))?;
        let internal = |error: &dyn std::fmt::Display| Unusable::Refused {
            problems: vec![at(Path::default(), error.to_string())],
            is_auth: false,
        };
        let schema = configurator.describe().await.map_err(|e| internal(&e))?;
        if let Some(home) = files {
            config =
                backend_files::fill(&schema, config, Some(home)).map_err(Unusable::Malformed)?;
        }
        let checked = check(&schema, &config);
        if !checked.problems.is_empty() {
            return Err(Unusable::Malformed(checked.problems));
        }
        let blame = |error: CallError| Unusable::Refused {
            problems: blame(&checked.clean(&error.to_string()), &error),
            is_auth: error.kind() == ErrorKind::Auth,
        };
        configurator
            .validate(config.clone(), self.default_creds)
            .await
            .map_err(blame)?;
        let record = configurator
            .create(&project.name, config)
            .await
            .map_err(blame)?;
        let shown = configurator
            .public_view(record.clone())
            .await
            .map_err(blame)?;
        let creds = configurator.with_creds(record).await.map_err(blame)?;
        let creds = serde_json::to_string(&creds).map_err(|e| internal(&e))?;
        let now = now();
        Ok(BackendRow {
            id: Uuid::new_v4(),
            project_id: project.id,
            kind: entry.backend.clone(),
            record: Value::Object(shown),
            secret: self.keyring.seal(&creds).map_err(|e| internal(&e))?,
            created_at: now,
            updated_at: now,
        })
    }
}

/// The backends of a project that have living machines.
fn in_use(tx: &mut dyn Tx, project: ProjectId) -> Result<HashSet<BackendType>, DbError> {
    let filter = InstancesFilter {
        projects: Some(vec![project]),
        imported: Vec::new(),
        fleets: None,
        only_active: true,
        page: Page {
            limit: u32::MAX,
            ..Page::default()
        },
    };
    let machines = instances::list(tx, &filter)?;
    let backend = |machine: dstack_engine::model::InstanceRow| {
        let data = machine.provisioning_data?;
        Some(data.backend.clone())
    };
    Ok(machines.into_iter().filter_map(backend).collect())
}

/// Why a configuration is not used.
pub(crate) enum Unusable {
    /// There is no such backend on this server.
    NoPlugin(String),
    /// Keys or types are wrong.
    Malformed(Vec<Problem>),
    /// The backend refuses it.
    Refused {
        /// At the fields that the backend names.
        problems: Vec<Problem>,
        /// Whether it is about credentials.
        is_auth: bool,
    },
}

impl Unusable {
    fn problems(self) -> Vec<Problem> {
        match self {
            Self::NoPlugin(message) => vec![at(Path::default(), message)],
            Self::Malformed(problems) | Self::Refused { problems, .. } => problems,
        }
    }
}

/// Says where in the configuration file a problem of a backend's section is.
pub(crate) type Place<'a> = dyn Fn(Problem) -> String + Send + Sync + 'a;

fn at(path: Path, message: String) -> Problem {
    Problem {
        path,
        kind: Kind::Invalid,
        message,
    }
}

/// A plugin's error at the fields that it names; at the whole section if it names none.
fn blame(message: &str, error: &CallError) -> Vec<Problem> {
    let fields = error.error.details.get("fields").and_then(Value::as_array);
    let mut all: Vec<Problem> = fields
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|field| {
            let steps = field.split('.').map(|step| match step.parse() {
                Ok(number) => Step::Index(number),
                Err(_) => Step::Key(step.to_owned()),
            });
            at(Path(steps.collect()), message.to_owned())
        })
        .collect();
    if all.is_empty() {
        all.push(at(Path::default(), message.to_owned()));
    }
    all
}

impl ProjectBackends for Backends {
    fn has_machine(&self, kind: &BackendType) -> BoxFuture<'_, bool> {
        let kind = kind.clone();
        Box::pin(async move {
            let found = self
                .store
                .read(move |tx| dstack_store::instances::has_machine(tx, &kind))
                .await;
            found.unwrap_or_else(|error| {
                tracing::error!(%error, "cannot look for machines of a backend");
                true
            })
        })
    }

    fn of(&self, project: ProjectId) -> BoxFuture<'_, Arc<Vec<ProjectBackend>>> {
        Box::pin(async move {
            if let Some(found) = self
                .known
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&project)
            {
                return Arc::clone(found);
            }
            match self.read(project).await {
                Ok(found) => {
                    let found = Arc::new(found);
                    let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                    known.insert(project, Arc::clone(&found));
                    found
                }
                Err(error) => {
                    tracing::error!(%error, "cannot read the backends of a project");
                    Arc::default()
                }
            }
        })
    }
}
