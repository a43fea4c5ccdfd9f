//! What a command is given: the terminal, the server, the project, the home folder.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::Local;
use crate::client::Client;
use crate::error::CliError;
use crate::local_config::{LocalConfig, Project};
use crate::settings::{Settings, Vars};
use crate::ui::Ui;

/// Made once for each command.
pub(crate) struct Cx<'a> {
    pub(crate) settings: Settings,
    pub(crate) ui: Ui,
    pub(crate) local: &'a dyn Local,
    /// The environment, for variables that a configuration takes from it.
    pub(crate) vars: &'a dyn Vars,
    /// The folder the command was started in.
    pub(crate) folder: PathBuf,
    pub(crate) clock: fn() -> Timestamp,
}

/// The project that a command works in, with its server.
#[derive(Debug)]
pub(crate) struct Here {
    pub(crate) project: Project,
    pub(crate) client: Client,
}

impl Cx<'_> {
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The client's file; what is wrong with it is said once.
    pub(crate) fn local_config(&mut self) -> Result<LocalConfig, CliError> {
        let (config, warning) = LocalConfig::load(&self.settings.home)?;
        if let Some(warning) = warning {
            self.ui.warn(&warning)?;
        }
        Ok(config)
    }

    /// The project of `--project`, the environment or the file.
    pub(crate) fn here(&mut self, option: Option<&str>) -> Result<Here, CliError> {
        let project = self.local_config()?.choose(option, &self.settings)?;
        let client = Client::new(
            &project.url,
            Some(project.token.clone()),
            &self.settings.api_version,
        );
        Ok(Here { project, client })
    }

    /// A path of a person: `~` is the home folder, a relative one starts at `base`.
    pub(crate) fn expand(&self, path: &str, base: &Path) -> PathBuf {
        match path.strip_prefix('~') {
            Some("") => self.settings.home.clone(),
            Some(rest) if rest.starts_with('/') => {
                self.settings.home.join(rest.trim_start_matches('/'))
            }
            _ => base.join(path),
        }
    }
}

impl Here {
    /// The address of an operation of this project.
    pub(crate) fn path(&self, operation: &str) -> String {
        format!("/api/project/{}/{operation}", self.project.name)
    }
}

/// `--project` of the commands that work in one.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ProjectOption {
    /// The project; default: the one of the environment, else the default one
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
}
