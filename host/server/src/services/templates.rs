//! Templates of runs: files of a repository, and a few of our own where there is none.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dstack_api::templates::{TemplateParameter, UiTemplate};
use dstack_api::yaml::Document;
use dstack_engine::ids::ProjectId;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// How long a list is used before the repository is looked at again.
const FRESH: Duration = Duration::from_secs(180);
/// Patience with one git command.
const GIT_PATIENCE: Duration = Duration::from_secs(20);
/// Folder of a repository in which templates are.
const FOLDER: &str = ".dstack/templates";
/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 256 * 1024;
/// Most files that are read.
const MAX_FILES: usize = 500;

type Known = HashMap<(ProjectId, String), (Instant, Arc<Vec<UiTemplate>>)>;

/// The templates of all projects.
pub(crate) struct Templates {
    /// Below it the clones are.
    folder: PathBuf,
    /// The repository of projects without one of their own.
    common: Option<String>,
    known: Mutex<Known>,
    /// One look at a time: clones share folders.
    looking: tokio::sync::Mutex<()>,
}

impl Templates {
    pub(crate) fn new(folder: PathBuf, common: Option<String>) -> Self {
        Self {
            folder,
            common,
            known: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// The templates of a project. What cannot be read is left out, with a warning in the log.
    pub(crate) async fn list(&self, project: ProjectId, own: Option<&str>) -> Arc<Vec<UiTemplate>> {
        let Some(url) = own.or(self.common.as_deref()) else {
            return Arc::new(built_in());
        };
        let key = (project, url.to_owned());
        let known = |fresh: bool| {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let (since, list) = known.get(&key)?;
            (!fresh || since.elapsed() < FRESH).then(|| Arc::clone(list))
        };
        if let Some(list) = known(true) {
            return list;
        }
        let _one = self.looking.lock().await;
        if let Some(list) = known(true) {
            return list;
        }
        let list = match self.fetch(project, url).await {
            Ok(list) => Arc::new(list),
            Err(why) => {
                tracing::warn!(project = %project, why, "the templates of a project cannot be read");
                known(false).unwrap_or_default()
            }
        };
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(key.clone(), (Instant::now(), Arc::clone(&list)));
        list
    }

    async fn fetch(&self, project: ProjectId, url: &str) -> Result<Vec<UiTemplate>, String> {
        check_url(url)?;
        let digest = Sha256::digest(url.as_bytes());
        let name: String = digest
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let clone = self.folder.join(project.to_string()).join(name);
        let place = clone.display().to_string();
        if clone.join(".git").exists() {
            git(&["-C", &place, "fetch", "--depth", "1", "origin", "HEAD"]).await?;
            git(&["-C", &place, "reset", "--hard", "--quiet", "FETCH_HEAD"]).await?;
        } else {
            let parent = clone.parent().unwrap_or(&self.folder).to_owned();
            let made = tokio::fs::create_dir_all(parent).await;
            made.map_err(|error| error.to_string())?;
            git(&["clone", "--depth", "1", "--quiet", "--", url, &place]).await?;
        }
        let read = tokio::task::spawn_blocking(move || read_folder(&clone.join(FOLDER))).await;
        read.map_err(|error| error.to_string())
    }

    /// Refuses a repository that cannot be reached.
    pub(crate) async fn check(&self, url: &str) -> Result<(), ApiError> {
        let reached = match check_url(url) {
            Ok(()) => git(&["ls-remote", "--quiet", "--exit-code", "--", url, "HEAD"]).await,
            Err(why) => Err(why),
        };
        reached.map_err(|why| {
            ApiError::refused(format!("Cannot access templates repo: {url} ({why})"))
        })
    }
}

/// Only what is fetched over a network, and nothing that git would take for an option.
fn check_url(url: &str) -> Result<(), String> {
    let is_ssh = url.starts_with("ssh://") || (url.starts_with("git@") && url.contains(':'));
    if (url.starts_with("https://") || is_ssh) && !url.contains(char::is_whitespace) {
        return Ok(());
    }
    Err("only https and ssh addresses are allowed".to_owned())
}

async fn git(arguments: &[&str]) -> Result<(), String> {
    let mut command = tokio::process::Command::new("git");
    command
        .args([
            "-c",
            "protocol.ext.allow=never",
            "-c",
            "protocol.file.allow=never",
        ])
        .args(arguments)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env(
            "GIT_SSH_COMMAND",
            "ssh -oBatchMode=yes -oStrictHostKeyChecking=accept-new",
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = tokio::time::timeout(GIT_PATIENCE, command.output()).await;
    let output =
        output.map_err(|_| format!("git took longer than {} s", GIT_PATIENCE.as_secs()))?;
    let output = output.map_err(|error| format!("git cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().rfind(|line| !line.trim().is_empty());
    Err(line.unwrap_or("git failed").trim().to_owned())
}

/// Reads the files of a folder in the order of their names.
fn read_folder(folder: &Path) -> Vec<UiTemplate> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        // A link might lead out of the repository.
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.path())
        .filter(|path| {
            let kind = path.extension().and_then(|kind| kind.to_str());
            matches!(kind, Some("yml" | "yaml"))
        })
        .collect();
    paths.sort();
    paths.truncate(MAX_FILES);
    let read = |path: PathBuf| match read_file(&path) {
        Ok(template) => template,
        Err(why) => {
            tracing::warn!(file = %path.display(), why, "a template is skipped");
            None
        }
    };
    paths.into_iter().filter_map(read).collect()
}

/// A template; `None` if the file is something else.
fn read_file(path: &Path) -> Result<Option<UiTemplate>, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if size.len() > MAX_FILE {
        return Err(format!("it is longer than {MAX_FILE} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let document = Document::parse(&text).map_err(|problem| problem.to_string())?;
    let value = document.to_json().map_err(|problem| problem.to_string())?;
    template(value)
}

fn template(mut value: Value) -> Result<Option<UiTemplate>, String> {
    let Some(map) = value.as_object_mut() else {
        return Ok(None);
    };
    if map.remove("type") != Some(Value::from("template")) {
        return Ok(None);
    }
    let known = [
        "name",
        "title",
        "description",
        "parameters",
        "configuration",
    ];
    if let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("unknown key `{key}`"));
    }
    serde_json::from_value(value)
        .map(Some)
        .map_err(|error| error.to_string())
}

/// What there is without a repository.
fn built_in() -> Vec<UiTemplate> {
    let made =
        |name: &str, title: &str, description: &str, parameters, configuration: Value| UiTemplate {
            name: name.to_owned(),
            title: title.to_owned(),
            description: Some(description.to_owned()),
            parameters,
            configuration: configuration.as_object().cloned().unwrap_or_else(Map::new),
        };
    use TemplateParameter::{Ide, Name, PythonOrDocker, Repo, Resources, WorkingDir};
    vec![
        made(
            "dev-environment",
            "Dev environment",
            "A machine to work on, from an IDE or over SSH.",
            vec![
                Name {},
                Ide {},
                Resources {},
                PythonOrDocker {},
                Repo {},
                WorkingDir {},
            ],
            json!({"type": "dev-environment", "ide": "vscode", "inactivity_duration": "2h"}),
        ),
        made(
            "task",
            "Task",
            "Commands that run once, such as a training.",
            vec![
                Name {},
                Resources {},
                PythonOrDocker {},
                Repo {},
                WorkingDir {},
            ],
            json!({"type": "task", "commands": ["nvidia-smi || true"]}),
        ),
        made(
            "vllm",
            "Model behind an API",
            "A language model served by vLLM, with an OpenAI-compatible API.",
            vec![
                Name {},
                Resources {},
                TemplateParameter::Env {
                    title: Some("Model".to_owned()),
                    name: Some("MODEL_ID".to_owned()),
                    value: Some("Qwen/Qwen2.5-7B-Instruct".to_owned()),
                },
                TemplateParameter::Env {
                    title: Some("Hugging Face token".to_owned()),
                    name: Some("HF_TOKEN".to_owned()),
                    value: None,
                },
            ],
            json!({
                "type": "service", "image": "vllm/vllm-openai:latest", "port": 8000,
                "commands": ["vllm serve $MODEL_ID --port 8000"], "resources": {"gpu": "24GB"},
            }),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{built_in, check_url, read_folder, template};

    #[test]
    fn files_are_read_in_order_and_others_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        write(
            "b.yml",
            "type: template\nname: b\ntitle: B\nconfiguration: {type: task}\n",
        );
        write(
            "a.yaml",
            "type: template\nname: a\ntitle: A\nparameters: [{type: env, name: X}, {type: name}]\nconfiguration: {}\n",
        );
        write("c.yml", "type: task\n");
        write("d.yml", "- 1\n");
        write("e.yml", "type: template\nname: e\n");
        write(
            "f.yml",
            "type: template\nname: f\ntitle: F\nconfiguration: {}\ncolour: red\n",
        );
        write(
            "g.txt",
            "type: template\nname: g\ntitle: G\nconfiguration: {}\n",
        );
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("h.yml")).unwrap();
        let found = read_folder(folder.path());
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(found[0].parameters.len(), 2);
    }

    #[test]
    fn built_in_ones_read_back() {
        for one in built_in() {
            let value = serde_json::to_value(&one).unwrap();
            assert_eq!(value["type"], json!("template"));
            assert_eq!(template(value).unwrap(), Some(one));
        }
    }

    #[test]
    fn only_addresses_of_a_network_are_fetched() {
        assert!(check_url("https://git.example/a.git").is_ok());
        assert!(check_url("git@git.example:a.git").is_ok());
        for wrong in [
            "--upload-pack=x",
            "/etc",
            "file:///etc",
            "ext::sh",
            "http://x",
            "https://a b",
        ] {
            assert!(check_url(wrong).is_err(), "{wrong}");
        }
    }
}
