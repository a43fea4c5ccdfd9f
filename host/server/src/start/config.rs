//! The server's `config.yml`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use dstack_api::config::{EncryptionKey, Mode, PluginIsolation, ServerConfig, ServerProject};
use dstack_api::yaml::Document;
use dstack_backend_types::reading::{Path, Problem, Step};
use dstack_plugins::Isolation;

use super::{FIRST_PROJECT, StartError};
use crate::app::Permissions;
use crate::services::keyring::Keyring;
use crate::settings::Settings;

/// What the file says.
pub(super) struct Loaded {
    pub(super) keyring: Keyring,
    pub(super) permissions: Permissions,
    pub(super) projects: Vec<ServerProject>,
    /// Where the plugins run for which a project says so.
    pub(super) isolation: BTreeMap<String, Isolation>,
    /// Folders of backends, absolute.
    pub(super) folders: Vec<PathBuf>,
    /// The file, for messages about it.
    source: Option<(String, Document)>,
}

impl Loaded {
    /// A problem of a project's backend as a line with file, place and path.
    pub(super) fn place(&self, project: usize, backend: usize, problem: Problem) -> String {
        let Some((name, document)) = &self.source else {
            return problem.to_string();
        };
        let mut path = vec![
            Step::Key("projects".to_owned()),
            Step::Index(project),
            Step::Key("backends".to_owned()),
            Step::Index(backend),
        ];
        path.extend(problem.path.0);
        let path = Path(path);
        format!("{name}:{}", document.locate(Problem { path, ..problem }))
    }
}

/// Reads the file of a running server once more; `None` if it is disabled. A missing one is an error then.
pub(super) fn read_again(settings: &Settings) -> Result<Option<Loaded>, StartError> {
    if settings.config_disabled {
        return Ok(None);
    }
    let path = settings.config_path();
    match std::fs::read_to_string(&path) {
        Ok(text) => understand(path, &text).map(Some),
        Err(source) => Err(StartError::File { path, source }),
    }
}

/// Reads the file; a missing one is written with one generated key.
pub(super) fn load_or_create(settings: &Settings) -> Result<Loaded, StartError> {
    if settings.config_disabled {
        tracing::warn!("config.yml is disabled: secrets are stored without encryption");
        return Ok(Loaded {
            keyring: Keyring::default(),
            permissions: Permissions::default(),
            projects: Vec::new(),
            isolation: BTreeMap::new(),
            folders: Vec::new(),
            source: None,
        });
    }
    let path = settings.config_path();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(settings)?,
        Err(source) => return Err(StartError::File { path, source }),
    };
    understand(path, &text)
}

fn understand(path: PathBuf, text: &str) -> Result<Loaded, StartError> {
    let name = path.display().to_string();
    let parsed = dstack_api::yaml::parse::<ServerConfig>(&name, text, Mode::Strict);
    let parsed = parsed.map_err(|errors| StartError::Config(errors.render()))?;
    let mut loaded = read(&name, parsed.value)?;
    // The path of the file may itself be relative.
    let beside = path.canonicalize().unwrap_or(path);
    for folder in &mut loaded.folders {
        *folder = beside.parent().unwrap_or(&beside).join(&*folder);
    }
    loaded.source = Document::parse(text).ok().map(|document| (name, document));
    Ok(loaded)
}

fn read(name: &str, config: ServerConfig) -> Result<Loaded, StartError> {
    // A rule that is not applied is worse than a server that does not start.
    if config.plugins.is_some_and(|policies| !policies.is_empty()) {
        return Err(StartError::Config(format!(
            "{name}: `plugins` names apply policies, which this version does not run; remove the key to go on without them"
        )));
    }
    let keys = config
        .encryption
        .map(|encryption| encryption.keys)
        .unwrap_or_default();
    let keyring = Keyring::new(keys.into_iter().filter_map(|key| match key {
        EncryptionKey::Identity {} => None,
        EncryptionKey::Aes { name, secret } => Some((name, secret)),
    }))?;
    if keyring.is_identity() {
        tracing::warn!(
            "config.yml has no encryption key: tokens and secrets are stored without encryption"
        );
    }
    let permissions = config
        .default_permissions
        .map_or_else(Permissions::default, |given| Permissions {
            non_admins_create_projects: given.allow_non_admins_create_projects,
            non_admins_manage_ssh_fleets: given.allow_non_admins_manage_ssh_fleets,
            managers_manage_secrets: given.allow_managers_manage_secrets,
        });
    Ok(Loaded {
        keyring,
        permissions,
        isolation: isolation(&config.projects),
        projects: config.projects,
        folders: config
            .backend_folders
            .unwrap_or_default()
            .into_iter()
            .map(PathBuf::from)
            .collect(),
        source: None,
    })
}

/// A plugin is one file for all projects: where they differ, the careful one wins.
fn isolation(projects: &[ServerProject]) -> BTreeMap<String, Isolation> {
    let mut found = BTreeMap::new();
    for entry in projects
        .iter()
        .flat_map(|project| project.backends.iter().flatten())
    {
        let name = entry.backend.as_str();
        match entry.isolation {
            None => {}
            Some(PluginIsolation::Process) => {
                found.insert(name.to_owned(), Isolation::Process);
            }
            Some(PluginIsolation::InProcess) => {
                found.entry(name.to_owned()).or_insert(Isolation::InProcess);
            }
        }
    }
    found
}

fn create(settings: &Settings) -> Result<String, StartError> {
    let path = settings.config_path();
    let secret = Keyring::generate_key()?;
    let text = format!(
        "projects:\n- name: {FIRST_PROJECT}\n  backends: []\n\n\
         # Without this key the tokens and secrets in the database cannot be read: keep a copy of it.\n\
         encryption:\n  keys:\n  - type: aes\n    name: key1\n    secret: {}\n",
        secret.expose()
    );
    let written = || {
        if let Some(folder) = path.parent() {
            // Logs and the database are nobody else's business either.
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    written().map_err(|source| StartError::File {
        path: path.clone(),
        source,
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use dstack_plugins::Isolation;

    use super::load_or_create;
    use crate::settings::Settings;

    fn settings(folder: &std::path::Path) -> Settings {
        let vars = BTreeMap::from([("DSTACK_SERVER_DIR".to_owned(), folder.display().to_string())]);
        Settings::from_env(&vars).unwrap()
    }

    #[test]
    fn a_missing_file_is_written_once_and_read_ever_after() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder.path().join("server"));
        let first = load_or_create(&settings).unwrap();
        let sealed = first.keyring.seal("token").unwrap();
        let mode = std::fs::metadata(settings.config_path())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "the key is for the server's user only");
        let mode = std::fs::metadata(&settings.server_dir)
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700, "so are logs and the database");
        let second = load_or_create(&settings).unwrap();
        assert_eq!(second.keyring.open(&sealed).unwrap().expose(), "token");
        assert_eq!(second.projects[0].name, "main");
    }

    #[test]
    fn isolation_is_for_the_host_and_the_careful_one_wins() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let text = "projects:\n- name: a\n  backends:\n  - {type: acme, isolation: process, key: k}\n  \
                    - {type: other, isolation: in_process}\n- name: b\n  backends:\n  \
                    - {type: acme, isolation: in_process}\n";
        std::fs::write(settings.config_path(), text).unwrap();
        let loaded = load_or_create(&settings).unwrap();
        assert_eq!(
            loaded.isolation.into_iter().collect::<Vec<_>>(),
            [
                ("acme".to_owned(), Isolation::Process),
                ("other".to_owned(), Isolation::InProcess)
            ]
        );
        let acme = &loaded.projects[0].backends.as_ref().unwrap()[0];
        let keys: Vec<_> = acme.settings.keys().map(String::as_str).collect();
        assert_eq!(keys, ["key"], "the plugin gets its own keys only");

        std::fs::write(settings.config_path(), text.replace("in_process", "inside")).unwrap();
        let error = load_or_create(&settings).err().unwrap().to_string();
        assert!(
            error.contains("isolation") && error.contains("in_process"),
            "{error}"
        );
    }

    #[test]
    fn folders_of_backends_begin_at_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let text = "projects: []\nbackend_folders: [/opt/backends, mine]\n";
        std::fs::write(settings.config_path(), text).unwrap();
        let loaded = load_or_create(&settings).unwrap();
        let here = folder.path().canonicalize().unwrap();
        assert_eq!(loaded.folders, ["/opt/backends".into(), here.join("mine")]);
    }

    #[test]
    fn policies_that_would_not_run_stop_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let write = |text: &str| std::fs::write(settings.config_path(), text).unwrap();
        write("projects: []\nplugins: [rules]\n");
        let error = load_or_create(&settings).err().unwrap().to_string();
        assert!(error.contains("policies"), "{error}");
        write("projects: []\nplugins: []\n");
        load_or_create(&settings).unwrap();
    }

    #[test]
    fn a_wrong_key_is_named_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        std::fs::write(settings.config_path(), "projects: []\nplugin: []\n").unwrap();
        let error = load_or_create(&settings).err().unwrap().to_string();
        assert!(
            error.contains("config.yml") && error.contains("plugin"),
            "{error}"
        );
    }
}
