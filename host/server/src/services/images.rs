//! What is known about the images of runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dstack_api::config::RunConfiguration;
use dstack_api::plan::interpolate::{BadReference, Namespaces, interpolate_all};
use dstack_api::plan::{DefaultRegistry, ImageFacts, ImageNeed, ImagesFacts, image_needs};
use dstack_engine::ids::ProjectId;
use dstack_store::{Store, secrets};
use tokio::sync::{OnceCell, Semaphore};

use super::keyring::Keyring;
use crate::error::ApiError;
use crate::registry::{self, Login, LookError};

/// How long an answer of a registry holds; the reference's value.
const FRESH: Duration = Duration::from_secs(80);
/// How long a registry that did not answer is left alone.
const SILENT: Duration = Duration::from_secs(10);
/// Images asked for at the same time.
const AT_ONCE: usize = 8;
/// Never looked up: the reference's client plans offers with it.
const NO_IMAGE: &str = "scratch";

type Answer = Result<ImageFacts, LookError>;

/// An image and the login it is asked for with: what one login sees is no business of another.
type Key = (String, Option<Login>);

struct Known {
    since: Instant,
    answer: Arc<OnceCell<Answer>>,
}

impl Known {
    fn holds(&self) -> bool {
        let limit = match self.answer.get() {
            Some(Err(LookError::Silent(_))) => SILENT,
            Some(_) | None => FRESH,
        };
        self.since.elapsed() < limit
    }
}

/// Asks registries about images, each image once at a time.
pub(crate) struct Images {
    store: Store,
    keyring: Keyring,
    default_registry: Option<DefaultRegistry>,
    known: Mutex<HashMap<Key, Known>>,
    at_once: Semaphore,
}

impl Images {
    pub(crate) fn new(
        store: Store,
        keyring: Keyring,
        default_registry: Option<DefaultRegistry>,
    ) -> Self {
        Self {
            store,
            keyring,
            default_registry,
            known: Mutex::default(),
            at_once: Semaphore::new(AT_ONCE),
        }
    }

    /// What has to be known before jobs can be made of a run.
    ///
    /// A registry's own *no* refuses the run, so that a slip in a name costs no machine; `may_be_on_machine` says that it
    /// may be found on the machine itself. A registry that does not answer refuses it only when nobody else can tell
    /// what to start.
    pub(crate) async fn facts(
        &self,
        project: ProjectId,
        run: &RunConfiguration,
        may_be_on_machine: bool,
    ) -> Result<Option<Arc<ImagesFacts>>, ApiError> {
        let mut needs = image_needs(run);
        needs.retain(|need| need.image != NO_IMAGE);
        if needs.is_empty() {
            return Ok(None);
        }
        let secrets = self.secrets(project, &needs).await?;
        let mut found = ImagesFacts::new();
        for need in needs {
            let (name, login) = self.full(&need, &secrets)?;
            match self.ask(name, login).await {
                Ok(facts) => {
                    found.insert(need.image, facts);
                }
                Err(error) => {
                    let refuses = match &error {
                        LookError::Refused(_) => need.is_command_open || !may_be_on_machine,
                        LookError::Silent(_) => need.is_command_open,
                    };
                    if refuses {
                        return Err(ApiError::refused(format!(
                            "Error pulling configuration for image '{}' from the docker registry: {error}",
                            need.image
                        )));
                    }
                    tracing::info!(image = need.image, %error, "nothing is known about an image");
                }
            }
        }
        Ok(Some(Arc::new(found)))
    }

    /// The image with its registry, and the login with its secrets.
    fn full(
        &self,
        need: &ImageNeed,
        secrets: &BTreeMap<String, String>,
    ) -> Result<(String, Option<Login>), ApiError> {
        let (name, auth) = match &self.default_registry {
            Some(registry) => registry.apply(need.image.clone(), need.auth.clone()),
            None => (need.image.clone(), need.auth.clone()),
        };
        let names = Namespaces::default().with("secrets", secrets);
        let fill = |text: &str| {
            interpolate_all(text, &names).map_err(|error| {
                ApiError::refused(match error {
                    BadReference::Unknown(name) => {
                        format!("registry_auth: {name} does not exist in the project")
                    }
                    other => format!("registry_auth: {other}"),
                })
            })
        };
        let login = match auth {
            Some(auth) => Some(Login {
                username: fill(&auth.username)?,
                password: fill(&auth.password)?,
            }),
            None => None,
        };
        let login = login.filter(|login| !(login.username.is_empty() && login.password.is_empty()));
        Ok((name, login))
    }

    async fn secrets(
        &self,
        project: ProjectId,
        needs: &[ImageNeed],
    ) -> Result<BTreeMap<String, String>, ApiError> {
        let refers = |need: &ImageNeed| {
            need.auth
                .as_ref()
                .is_some_and(|auth| auth.username.contains("${{") || auth.password.contains("${{"))
        };
        if !needs.iter().any(refers) {
            return Ok(BTreeMap::new());
        }
        let rows = self
            .store
            .read(move |tx| secrets::of_project(tx, project))
            .await?;
        rows.into_iter()
            .map(|row| {
                let open = self
                    .keyring
                    .open(&row.value)
                    .map_err(|error| ApiError::Internal(error.to_string()))?;
                Ok((row.name, open.expose().clone()))
            })
            .collect()
    }

    async fn ask(&self, name: String, login: Option<Login>) -> Answer {
        let key = (name, login);
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, known| known.holds());
            let entry = known.entry(key.clone()).or_insert_with(|| Known {
                since: Instant::now(),
                answer: Arc::default(),
            });
            Arc::clone(&entry.answer)
        };
        let asked = cell.get_or_init(|| async {
            let Ok(_one) = self.at_once.acquire().await else {
                return Err(LookError::Silent("the server is stopping".to_owned()));
            };
            registry::look(&key.0, key.1.as_ref()).await
        });
        asked.await.clone()
    }
}
