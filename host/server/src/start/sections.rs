//! Sections of `config.yml` that could not be used at the start, most often since their plugin was not there yet: each is tried
//! again as soon as another file of its plugin is there.

use dstack_api::config::BackendEntry;
use dstack_plugins::Plugins;
use dstack_store::projects::ProjectRow;
use tokio::sync::watch;

use super::config::Loaded;
use crate::app::App;
use crate::tasks::Tasks;

/// A section that could not be used.
pub(super) struct Refused {
    project: ProjectRow,
    /// Which of the file's projects.
    number: usize,
    /// Which of the project's sections.
    section: usize,
    entry: BackendEntry,
    /// The plugin's file that refused it; `None` if there was none.
    hash: Option<String>,
}

impl Refused {
    /// The section of that number; `None` if there is none.
    pub(super) fn new(
        app: &App,
        project: ProjectRow,
        number: usize,
        section: usize,
        all: &[BackendEntry],
    ) -> Option<Self> {
        let entry = all.get(section)?.clone();
        Some(Self {
            hash: hash(&app.plugins, entry.backend.as_str()),
            project,
            number,
            section,
            entry,
        })
    }
}

/// The hash of the plugin's file that is used; `None` if there is none.
fn hash(plugins: &Plugins, name: &str) -> Option<String> {
    plugins.manifest(name)?;
    let all = plugins.list();
    all.into_iter().find(|plugin| plugin.name == name)?.hash
}

/// Starts the task; it ends when every section is used.
pub(super) fn try_again(
    app: App,
    config: Loaded,
    mut refused: Vec<Refused>,
    mut changes: watch::Receiver<u64>,
    tasks: &Tasks,
) {
    let ending = tasks.clone();
    tasks.spawn("backends.sections", async move {
        while !refused.is_empty() {
            tokio::select! {
                () = ending.stopping() => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
            tokio::select! {
                () = ending.stopping() => return,
                rest = look(&app, &config, refused) => refused = rest,
            }
        }
    });
}

/// Tries those whose plugin has another file now; answers those that are still refused.
async fn look(app: &App, config: &Loaded, refused: Vec<Refused>) -> Vec<Refused> {
    let mut rest = Vec::new();
    for mut one in refused {
        let name = one.entry.backend.as_str();
        let now = hash(&app.plugins, name);
        if now.is_none() || now == one.hash {
            rest.push(one);
            continue;
        }
        let place = |section, problem| config.place(one.number, section, problem);
        let section = (one.section, &one.entry);
        let applied = app.backends.apply_one(&one.project, section, &place).await;
        match applied {
            Ok(true) => {
                let project = &one.project.name;
                tracing::info!(
                    backend = name,
                    project,
                    "the section of config.yml is used now"
                );
            }
            Ok(false) => {
                one.hash = now;
                rest.push(one);
            }
            Err(error) => {
                tracing::error!(backend = name, %error, "a section of config.yml was not stored");
                rest.push(one);
            }
        }
    }
    rest
}
