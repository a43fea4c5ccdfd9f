//! What a command is given: the terminal, the server, the project, the home folder.

use crate::client::Client;
use crate::error::CliError;
use crate::local_config::{LocalConfig, Project};
use crate::settings::Settings;
use crate::ui::Ui;
use crate::Local;

/// Made once for each command.
pub(crate) struct Cx<'a> {
    pub(crate) settings: Settings,
    pub(crate) ui: Ui,
    pub(crate) local: &'a dyn Local,
}

/// The project that a command works in, with its server.
#[derive(Debug)]
pub(crate) struct Here {
    pub(crate) project: Project,
    pub(crate) client: Client,
}

impl<'a> Cx<'a> {
    /// The terminal of this process.
    pub(crate) fn new(settings: Settings, local: &'a dyn Local) -> Self {
        let ui = Ui::standard(settings.is_plain);
        Self { settings, ui, local }
    }

    /// The client's file; what is wrong with it is said once.
    pub(crate) fn local_config(&mut self) -> Result<LocalConfig, CliError> {
        let (config, warning) = LocalConfig::load(&self.settings.home)?;
        if let Some(warning) = warning {
            let text = self.ui.paint(crate::ui::Tone::Warn, &warning);
            self.ui.note(text)?;
        }
        Ok(config)
    }

    /// The project of `--project`, the environment or the file.
    pub(crate) fn here(&mut self, option: Option<&str>) -> Result<Here, CliError> {
        let project = self.local_config()?.choose(option, &self.settings)?;
        let client = Client::new(&project.url, Some(project.token.clone()), &self.settings.api_version);
        Ok(Here { project, client })
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
