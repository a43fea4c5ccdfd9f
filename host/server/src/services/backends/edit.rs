//! The backends of a project as its admins change them over the API.

use dstack_api::backends::BackendInfoYaml;
use dstack_api::config::BackendEntry;
use dstack_api::error::{ErrorCode, ErrorDetail};
use dstack_api::yaml::{self, Document};
use dstack_backend_types::BackendType;
use dstack_backend_types::reading::{Mode, Problem, Step};
use dstack_store::backends::{self, BackendRow};
use serde_json::{Map, Value};

use super::{Backends, Unusable};
use crate::error::{ApiError, Invalid};
use crate::extract::Access;

/// Whether a backend of the type must be there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It must not.
    Create,
    /// It must.
    Update,
}

impl Backends {
    /// Adds or replaces a backend by its configuration with credentials; answers the configuration.
    pub(crate) async fn change(
        &self,
        access: &Access,
        change: Change,
        config: Map<String, Value>,
    ) -> Result<Value, ApiError> {
        let entry = entry(&config)?;
        let row = self.accept(access, change, &entry).await;
        let row = row.map_err(|refused| match refused {
            Refusal::Api(error) => error,
            Refusal::Unusable(unusable) => in_body(unusable),
        })?;
        self.open(&row)
    }

    /// Adds or replaces a backend by a section as `config.yml` has it.
    pub(crate) async fn change_yaml(
        &self,
        access: &Access,
        change: Change,
        text: &str,
    ) -> Result<(), ApiError> {
        let document =
            Document::parse(text).map_err(|_| ApiError::refused("Error parsing YAML"))?;
        let parsed = yaml::parse::<BackendEntry>("config_yaml", text, Mode::Strict);
        let entry = parsed
            .map_err(|errors| ApiError::refused(errors.render()))?
            .value;
        let accepted = self.accept(access, change, &entry).await;
        accepted.map_err(|refused| match refused {
            Refusal::Api(error) => error,
            Refusal::Unusable(Unusable::Malformed(problems)) => {
                let lines: Vec<String> = problems
                    .into_iter()
                    .map(|problem| document.locate(problem).to_string())
                    .collect();
                ApiError::refused(lines.join("\n"))
            }
            Refusal::Unusable(other) => in_body(other),
        })?;
        Ok(())
    }

    async fn accept(
        &self,
        access: &Access,
        change: Change,
        entry: &BackendEntry,
    ) -> Result<BackendRow, Refusal> {
        // Before the provider is asked, which may take long; and once more when the row is written.
        let (project, kind) = (access.project.id, entry.backend.clone());
        let found = self
            .store
            .read(move |tx| backends::get(tx, project, &kind))
            .await
            .map_err(ApiError::from)?;
        fits(change, found.as_ref())?;
        let row = self.configure(&access.project, entry, None).await;
        let row = row.map_err(Refusal::Unusable)?;
        let stored = row.clone();
        self.store
            .write_as(move |tx| {
                let found = backends::get(tx, stored.project_id, &stored.kind)?;
                fits(change, found.as_ref())?;
                backends::put(tx, &stored)?;
                Ok::<_, ApiError>(())
            })
            .await?;
        self.forget(access.project.id);
        Ok(row)
    }

    /// Takes backends out of a project; unknown ones are skipped, one with machines is refused.
    pub(crate) async fn remove(
        &self,
        access: &Access,
        wanted: Vec<String>,
    ) -> Result<(), ApiError> {
        let project = access.project.id;
        self.store
            .write_as(move |tx| {
                for name in wanted {
                    let kind = BackendType::new(name);
                    if super::in_use(tx, project)?.contains(&kind) {
                        return Err(ApiError::refused(format!(
                            "Failed to delete backend {}. Its instances are in use.",
                            kind.as_str()
                        )));
                    }
                    backends::delete(tx, project, &kind)?;
                }
                Ok(())
            })
            .await?;
        self.forget(project);
        Ok(())
    }

    /// The configuration of a backend with its credentials.
    pub(crate) async fn config(&self, access: &Access, name: String) -> Result<Value, ApiError> {
        let (project, kind) = (access.project.id, BackendType::new(name));
        let row = self
            .store
            .read(move |tx| backends::get(tx, project, &kind))
            .await?;
        let row = row.ok_or_else(|| ApiError::not_exists("Resource not found"))?;
        self.open(&row)
    }

    /// The same as `config.yml` would have it.
    pub(crate) async fn yaml(
        &self,
        access: &Access,
        name: String,
    ) -> Result<BackendInfoYaml, ApiError> {
        let config = self.config(access, name.clone()).await?;
        Ok(BackendInfoYaml {
            name,
            config_yaml: yaml::to_yaml(&config),
        })
    }
}

enum Refusal {
    Api(ApiError),
    Unusable(Unusable),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

fn fits(change: Change, found: Option<&BackendRow>) -> Result<(), ApiError> {
    match (change, found) {
        (Change::Create, Some(_)) => Err(ApiError::exists("Resource exists")),
        (Change::Update, None) => Err(ApiError::not_exists("Resource not found")),
        (Change::Create, None) | (Change::Update, Some(_)) => Ok(()),
    }
}

fn entry(config: &Map<String, Value>) -> Result<BackendEntry, ApiError> {
    let Some(name) = config.get("type").and_then(Value::as_str) else {
        return Err(ApiError::invalid(
            &["type"],
            "Field required: the type of the backend",
        ));
    };
    let backend = BackendType::new(name.to_owned());
    let mut settings = config.clone();
    settings.remove("type");
    Ok(BackendEntry {
        backend,
        isolation: None,
        settings,
    })
}

/// What is wrong with a body that is a configuration.
fn in_body(unusable: Unusable) -> ApiError {
    match unusable {
        Unusable::NoPlugin(message) => ApiError::invalid(&["type"], message),
        Unusable::Malformed(problems) => ApiError::Invalid(
            problems
                .into_iter()
                .map(|problem| Invalid {
                    kind: "value_error",
                    path: steps(&problem).map(Value::from).collect(),
                    msg: problem.message,
                })
                .collect(),
        ),
        Unusable::Refused { problems, is_auth } => {
            let code = if is_auth {
                ErrorCode::InvalidCredentials
            } else {
                ErrorCode::Error
            };
            let detail = problems.into_iter().map(|problem| {
                let fields: Vec<String> = steps(&problem).collect();
                ErrorDetail {
                    msg: problem.message,
                    code: Some(code.as_str().to_owned()),
                    fields: (!fields.is_empty()).then_some(fields),
                }
            });
            ApiError::Fields(detail.collect())
        }
    }
}

fn steps(problem: &Problem) -> impl Iterator<Item = String> {
    problem.path.0.iter().map(|step| match step {
        Step::Key(key) => key.clone(),
        Step::Index(index) => index.to_string(),
    })
}
