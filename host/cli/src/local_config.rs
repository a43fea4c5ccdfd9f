//! `~/.dstack/config.yml`: the projects that this user knows, with their servers and tokens.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::settings::{Settings, Token};

/// A project of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The project's name on its server.
    pub name: String,
    /// The server's address.
    pub url: String,
    /// The user's token.
    pub token: Token,
    /// Whether commands without `--project` mean this one.
    pub is_default: bool,
}

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalConfig {
    /// In the file's order.
    pub projects: Vec<Project>,
}

/// Why no project can be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Nothing is configured.
    #[error(
        "no project is configured; add one with `dstack project add --name NAME --url URL --token TOKEN`"
    )]
    Empty,
    /// There are projects, none of them the default.
    #[error(
        "no default project; choose one with `dstack project set-default NAME` or pass --project (known: {known})"
    )]
    NoDefault {
        /// Names, joined by commas.
        known: String,
    },
    /// The named project is not in the file.
    #[error("project {name} is not configured; known: {known}. Add it with `dstack project add`")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Names, joined by commas, or `none`.
        known: String,
    },
    /// `DSTACK_SERVER_URL` without what it needs.
    #[error(
        "DSTACK_SERVER_URL needs DSTACK_TOKEN and a project (--project or DSTACK_PROJECT) beside it"
    )]
    HalfEnvironment,
    /// The file cannot be read or written.
    #[error("cannot {verb} {path}: {source}")]
    File {
        /// `read` or `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Where the file is below a home folder.
#[must_use]
pub fn path(home: &Path) -> PathBuf {
    home.join(".dstack").join("config.yml")
}

impl LocalConfig {
    /// Reads the file. A missing one is empty; so is one that makes no sense, with a warning for the caller to show.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn load(home: &Path) -> Result<(Self, Option<String>), ConfigError> {
        let path = path(home);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok((Self::default(), None));
            }
            Err(source) => {
                return Err(ConfigError::File {
                    verb: "read",
                    path,
                    source,
                });
            }
        };
        Ok(match crate::yaml::client_config(&text) {
            Ok(projects) => (Self { projects }, None),
            Err(reason) => (
                Self::default(),
                Some(format!("{} is taken as empty: {reason}", path.display())),
            ),
        })
    }

    /// Writes the file beside itself and renames, readable by its owner only. One that made no sense is kept as
    /// `config.yml.broken`: it may hold tokens that are nowhere else.
    ///
    /// # Errors
    /// If the folder or the file cannot be written.
    pub fn save(&self, home: &Path) -> Result<(), ConfigError> {
        let path = path(home);
        let fail = |source| ConfigError::File {
            verb: "write",
            path: path.clone(),
            source,
        };
        let folder = path.parent().unwrap_or(home);
        fs::create_dir_all(folder).map_err(fail)?;
        let temporary = path.with_extension(format!("yml.{}", std::process::id()));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(fail)?;
        file.write_all(self.to_yaml().as_bytes()).map_err(fail)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))
            .map_err(fail)?;
        file.sync_all().map_err(fail)?;
        let is_broken = |text: String| crate::yaml::client_config(&text).is_err();
        if fs::read_to_string(&path).is_ok_and(is_broken) {
            fs::rename(&path, path.with_extension("yml.broken")).map_err(fail)?;
        }
        fs::rename(&temporary, &path).map_err(fail)
    }

    /// Adds or replaces a project; the only one, and one asked for, becomes the default.
    pub fn put(&mut self, mut project: Project) {
        self.projects.retain(|known| known.name != project.name);
        project.is_default |= self.projects.is_empty();
        if project.is_default {
            self.clear_default();
        }
        self.projects.push(project);
    }

    /// Takes a project out. False if it is not there.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.projects.len();
        self.projects.retain(|known| known.name != name);
        before != self.projects.len()
    }

    /// Makes one project the default and no other. False if it is not there.
    pub fn set_default(&mut self, name: &str) -> bool {
        if !self.projects.iter().any(|project| project.name == name) {
            return false;
        }
        for project in &mut self.projects {
            project.is_default = project.name == name;
        }
        true
    }

    fn clear_default(&mut self) {
        for project in &mut self.projects {
            project.is_default = false;
        }
    }

    /// The default project: the first that is marked, or the only one.
    #[must_use]
    pub fn default_project(&self) -> Option<&Project> {
        self.projects
            .iter()
            .find(|project| project.is_default)
            .or(match self.projects.as_slice() {
                [only] => Some(only),
                _ => None,
            })
    }

    /// The project that a command means: its option, the environment, else the default.
    ///
    /// # Errors
    /// [`ConfigError`] says which of the three is missing and how to set it.
    pub fn choose(
        &self,
        option: Option<&str>,
        settings: &Settings,
    ) -> Result<Project, ConfigError> {
        let name = option.or(settings.project.as_deref());
        let configured =
            name.and_then(|name| self.projects.iter().find(|project| project.name == name));
        match (&settings.server_url, &settings.token, name) {
            (Some(url), Some(token), Some(name)) => {
                return Ok(Project {
                    name: name.to_owned(),
                    url: url.clone(),
                    token: token.clone(),
                    is_default: false,
                });
            }
            (Some(_), Some(_), None) => return Err(ConfigError::HalfEnvironment),
            (Some(_), None, Some(_)) if configured.is_none() => {
                return Err(ConfigError::HalfEnvironment);
            }
            _ => {}
        }
        let mut chosen = match (name, configured) {
            (Some(_), Some(project)) => project.clone(),
            (Some(name), None) => {
                return Err(ConfigError::Unknown {
                    name: name.to_owned(),
                    known: self.names(),
                });
            }
            (None, _) if self.projects.is_empty() => return Err(ConfigError::Empty),
            (None, _) => self
                .default_project()
                .cloned()
                .ok_or_else(|| ConfigError::NoDefault {
                    known: self.names(),
                })?,
        };
        if let Some(token) = &settings.token {
            chosen.token = token.clone();
        }
        Ok(chosen)
    }

    fn names(&self) -> String {
        if self.projects.is_empty() {
            return "none".to_owned();
        }
        self.projects
            .iter()
            .map(|project| project.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn to_yaml(&self) -> String {
        if self.projects.is_empty() {
            return "projects: []\n".to_owned();
        }
        let mut text = "projects:\n".to_owned();
        for project in &self.projects {
            let is_default = if project.is_default {
                "default: true\n  "
            } else {
                ""
            };
            text.push_str(&format!(
                "- {is_default}name: {}\n  token: {}\n  url: {}\n",
                crate::yaml::plain(&project.name),
                crate::yaml::plain(&project.token.0),
                crate::yaml::plain(&project.url)
            ));
        }
        text
    }
}

/// What became of the client's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remembered {
    /// It was changed.
    Updated(PathBuf),
    /// It said the same.
    Already,
    /// It says something else, as the user wants it.
    Left,
}

/// Puts a server of this machine into the client's file. `wish` is the user's answer to whether its project becomes the
/// default: silently if there is no default yet, and not at all when the file already says the same.
///
/// Answers what became of it.
///
/// # Errors
/// [`ConfigError::File`].
pub fn remember_server(
    name: &str,
    url: &str,
    token: &str,
    wish: Option<bool>,
) -> Result<Remembered, ConfigError> {
    let settings = Settings::from_env(&crate::settings::ProcessVars);
    let (mut config, _) = LocalConfig::load(&settings.home)?;
    let project = Project {
        name: name.to_owned(),
        url: url.to_owned(),
        token: Token(token.to_owned()),
        is_default: true,
    };
    match config.default_project() {
        Some(current) if *current == project => return Ok(Remembered::Already),
        _ if wish == Some(false) => return Ok(Remembered::Left),
        Some(current) if wish.is_none() && current.name != name && !confirmed(name) => {
            return Ok(Remembered::Left);
        }
        Some(current)
            if wish.is_none() && current.name == name && current.url != url && !confirmed(name) =>
        {
            return Ok(Remembered::Left);
        }
        _ => {}
    }
    config.put(project);
    config.save(&settings.home)?;
    Ok(Remembered::Updated(path(&settings.home)))
}

/// Asks on a terminal; without one the answer is no.
fn confirmed(name: &str) -> bool {
    crate::ui::Ui::new(crate::ui::Terminal::standard(), true)
        .confirm(&format!(
            "Update the default project to this server's {name}?"
        ))
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(name: &str, is_default: bool) -> Project {
        Project {
            name: name.into(),
            url: "http://127.0.0.1:3000".into(),
            token: Token("t".into()),
            is_default,
        }
    }

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        struct Map(Vec<(String, String)>);
        impl crate::settings::Vars for Map {
            fn get(&self, name: &str) -> Option<String> {
                self.0
                    .iter()
                    .find(|(known, _)| known == name)
                    .map(|(_, value)| value.clone())
            }
        }
        Settings::from_env(&Map(pairs
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect()))
    }

    #[test]
    fn what_is_saved_is_loaded_again_and_only_its_owner_reads_it() {
        let home = tempfile::tempdir().unwrap();
        let mut config = LocalConfig::default();
        config.put(project("main", false));
        config.put(Project {
            token: Token("yes".into()),
            ..project("012", true)
        });
        config.save(home.path()).unwrap();
        let mode = fs::metadata(path(home.path()))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let (loaded, warning) = LocalConfig::load(home.path()).unwrap();
        assert_eq!(warning, None);
        assert_eq!(loaded, config);
        assert_eq!(loaded.default_project().unwrap().name, "012");
    }

    #[test]
    fn a_broken_file_is_empty_with_a_warning() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join(".dstack")).unwrap();
        fs::write(path(home.path()), "projects: [").unwrap();
        let (loaded, warning) = LocalConfig::load(home.path()).unwrap();
        assert!(loaded.projects.is_empty());
        assert!(warning.unwrap().contains("taken as empty"));
        loaded.save(home.path()).unwrap();
        let kept = path(home.path()).with_extension("yml.broken");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "projects: [");
        loaded.save(home.path()).unwrap();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "projects: [");
    }

    #[test]
    fn the_option_wins_over_the_environment_and_that_over_the_default() {
        let mut config = LocalConfig::default();
        config.put(project("a", true));
        config.put(project("b", false));
        config.put(project("c", false));
        let none = settings(&[]);
        let env = settings(&[("DSTACK_PROJECT", "b")]);
        assert_eq!(config.choose(None, &none).unwrap().name, "a");
        assert_eq!(config.choose(None, &env).unwrap().name, "b");
        assert_eq!(config.choose(Some("c"), &env).unwrap().name, "c");
        assert!(matches!(
            config.choose(Some("x"), &none),
            Err(ConfigError::Unknown { .. })
        ));
    }

    #[test]
    fn url_and_token_of_the_environment_need_a_named_project() {
        let config = LocalConfig::default();
        let pair = [
            ("DSTACK_SERVER_URL", "http://x"),
            ("DSTACK_TOKEN", "secret"),
        ];
        assert!(matches!(
            config.choose(None, &settings(&pair)),
            Err(ConfigError::HalfEnvironment)
        ));
        let chosen = config.choose(Some("p"), &settings(&pair)).unwrap();
        assert_eq!(
            (chosen.url.as_str(), chosen.name.as_str()),
            ("http://x", "p")
        );
        assert!(!format!("{chosen:?}").contains("secret"));
        assert!(matches!(
            config.choose(None, &settings(&[])),
            Err(ConfigError::Empty)
        ));
    }

    #[test]
    fn the_token_of_the_environment_replaces_the_configured_one() {
        let mut config = LocalConfig::default();
        config.put(project("a", true));
        let chosen = config
            .choose(None, &settings(&[("DSTACK_TOKEN", "other")]))
            .unwrap();
        assert_eq!(chosen.token, Token("other".into()));
    }
}
