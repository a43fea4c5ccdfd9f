//! The configuration files of the server and of the client.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use dstack_backend_types::reading::{Failed, FromValue, Reader};
use dstack_backend_types::{BackendType, Secret, deserialize_by_value};
use serde::Serialize;
use serde_json::{Map, Value};

use super::PluginIsolation;
use super::object::config;

config! {
    /// The server's `config.yml`.
    pub struct ServerConfig {
        /// Projects to have, with their backends.
        pub projects: Vec<ServerProject> = required,
        /// How secrets are stored; unset means in plain.
        pub encryption: Option<Encryption> = optional,
        /// Who may do what; unset leaves the stored ones.
        pub default_permissions: Option<DefaultPermissions> = optional,
        /// Plugins for apply policies.
        pub plugins: Option<Vec<String>> = optional,
        /// Folders in which backends are looked for; ours. Relative ones begin at the file's folder.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub backend_folders: Option<Vec<String>> = optional,
    }
}

config! {
    /// A project of the server's `config.yml`.
    pub struct ServerProject {
        /// Its name.
        pub name: String = required,
        /// Its backends. Unset leaves the stored ones, an empty list deletes them.
        pub backends: Option<Vec<BackendEntry>> = optional,
    }
}

/// A backend of the server's `config.yml`. Its keys are checked by the backend's plugin.
#[derive(Clone, PartialEq, Serialize)]
pub struct BackendEntry {
    /// Which backend.
    #[serde(rename = "type")]
    pub backend: BackendType,
    /// Where its plugin runs; the plugin itself is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<PluginIsolation>,
    /// Everything else; has credentials.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

impl fmt::Debug for BackendEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendEntry")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

impl FromValue for BackendEntry {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let mut obj = cx.object(value)?;
        let backend = obj.required("type", cx)?;
        let isolation = obj.optional("isolation", cx)?;
        let mut settings = value.as_object().cloned().unwrap_or_default();
        settings.remove("type");
        settings.remove("isolation");
        Ok(Self {
            backend,
            isolation,
            settings,
        })
    }
}

config! {
    /// How secrets are stored.
    pub struct Encryption {
        /// The first one encrypts, all decrypt.
        pub keys: Vec<EncryptionKey> = required,
    }
}

/// A key for secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum EncryptionKey {
    /// No encryption.
    Identity {},
    /// AES-256-GCM.
    Aes {
        /// Letters and digits; stored with each text.
        name: String,
        /// Base64 of 32 bytes.
        secret: Secret<String>,
    },
}

impl FromValue for EncryptionKey {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let mut obj = cx.object(value)?;
        let read = match obj.tag("type", &["identity", "aes"], cx)? {
            "aes" => {
                let name = obj.required_with("name", cx, |value, cx| {
                    match String::from_value(value, cx)? {
                        name if !name.is_empty() && name.chars().all(char::is_alphanumeric) => {
                            Ok(name)
                        }
                        _ => Err(cx.fail("the name of a key has letters and digits only")),
                    }
                });
                let secret = obj.required_with("secret", cx, aes_secret);
                name.and_then(|name| {
                    Ok(Self::Aes {
                        name,
                        secret: secret?,
                    })
                })
            }
            _ => Ok(Self::Identity {}),
        };
        obj.finish(cx)?;
        read
    }
}

fn aes_secret(value: &Value, cx: &mut Reader) -> Result<Secret<String>, Failed> {
    let secret = String::from_value(value, cx)?;
    match base64::engine::general_purpose::STANDARD.decode(&secret) {
        Ok(bytes) if bytes.len() == 32 => Ok(Secret::new(secret)),
        Ok(bytes) => Err(cx.fail(format!(
            "the key must have 32 bytes, it has {}",
            bytes.len()
        ))),
        Err(_) => {
            Err(cx.fail("the secret must be base64; make one with `openssl rand -base64 32`"))
        }
    }
}

config! {
    /// Who may do what.
    #[derive(Copy, Eq)]
    pub struct DefaultPermissions {
        /// Whether users who are no admins may make projects.
        pub allow_non_admins_create_projects: bool = default(true),
        /// Whether users who are no admins may manage SSH fleets.
        pub allow_non_admins_manage_ssh_fleets: bool = default(true),
        /// Whether project managers may manage secrets.
        pub allow_managers_manage_secrets: bool = default(false),
    }
}

/// The client's `config.yml`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ClientConfig {
    /// Projects the client knows.
    pub projects: Vec<ClientProject>,
}

config! {
    /// A project the client knows.
    #[derive(Eq)]
    pub struct ClientProject {
        /// Its name.
        pub name: String = required,
        /// Address of the server.
        pub url: String = required,
        /// The person's token.
        pub token: Secret<String> = required(|value, cx| String::from_value(value, cx).map(Secret::new)),
        /// Whether it is used where no project is named.
        pub default: Option<bool> = optional,
    }
}

impl FromValue for ClientConfig {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let mut obj = cx.object(value)?;
        let projects = obj.defaulted("projects", cx, Vec::new);
        // Written by older clients; nothing in it is needed any more.
        obj.raw("repos");
        obj.finish(cx)?;
        let mut projects: Vec<ClientProject> = projects?;
        if let [only] = projects.as_mut_slice() {
            only.default = Some(true);
        }
        Ok(Self { projects })
    }
}

impl ClientConfig {
    /// The project used where none is named.
    pub fn default_project(&self) -> Option<&ClientProject> {
        self.projects
            .iter()
            .find(|project| project.default == Some(true))
    }

    /// The project of this name.
    pub fn project(&self, name: &str) -> Option<&ClientProject> {
        self.projects.iter().find(|project| project.name == name)
    }

    /// Adds a project or replaces the one of the same name; if it is the default, no other is.
    pub fn put(&mut self, project: ClientProject) {
        if project.default == Some(true) {
            for other in &mut self.projects {
                other.default = Some(false);
            }
        }
        match self
            .projects
            .iter_mut()
            .find(|known| known.name == project.name)
        {
            Some(known) => *known = project,
            None => self.projects.push(project),
        }
    }
}

config! {
    /// A template of the UI.
    pub struct UiTemplate {
        /// Always `template`.
        #[serde(rename = "type")]
        pub kind: TemplateTag = named("type", required),
        /// Its name.
        pub name: String = required,
        /// What is shown.
        pub title: String = required,
        /// More about it.
        pub description: Option<String> = optional,
        /// What the person fills in.
        pub parameters: Vec<TemplateParameter> = default(Vec::new()),
        /// The configuration to start from, as it is.
        pub configuration: BTreeMap<String, Value> = required,
    }
}

dstack_backend_types::words! {
    /// The `type` of a template.
    pub enum TemplateTag {
        /// Always this.
        Template = "template",
    }
}

/// What the person fills in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TemplateParameter {
    /// `name`, `ide`, `resources`, `python_or_docker`, `repo`, `working_dir` or `env`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of a variable.
    #[serde(flatten)]
    pub variable: Option<TemplateVariable>,
}

config! {
    /// A variable the person fills in.
    #[derive(Eq)]
    pub struct TemplateVariable {
        /// What is shown.
        pub title: Option<String> = optional,
        /// Its name.
        pub name: Option<String> = optional,
        /// The value to start from.
        pub value: Option<String> = optional,
    }
}

impl FromValue for TemplateParameter {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        use dstack_backend_types::reading::FromObject;
        let kinds = [
            "name",
            "ide",
            "resources",
            "python_or_docker",
            "repo",
            "working_dir",
            "env",
        ];
        let mut obj = cx.object(value)?;
        let kind = obj.tag("type", &kinds, cx)?;
        let variable = match kind {
            "env" => TemplateVariable::from_object(&mut obj, cx).map(Some),
            _ => Ok(None),
        };
        obj.finish(cx)?;
        Ok(Self {
            kind: kind.to_owned(),
            variable: variable?,
        })
    }
}

deserialize_by_value!(BackendEntry, EncryptionKey, ClientConfig, TemplateParameter);

#[cfg(test)]
mod tests {
    use super::{ClientConfig, ClientProject};
    use dstack_backend_types::reading::{Mode, read};
    use serde_json::json;

    #[test]
    fn putting_a_default_project_clears_the_other_ones() {
        let value = json!({"projects": [{"name": "a", "url": "u", "token": "t"}]});
        let mut config = read::<ClientConfig>(&value, Mode::Strict).unwrap().value;
        assert_eq!(config.default_project().unwrap().name, "a");
        let b = json!({"name": "b", "url": "u", "token": "t", "default": true});
        config.put(read::<ClientProject>(&b, Mode::Strict).unwrap().value);
        assert_eq!(config.default_project().unwrap().name, "b");
        assert_eq!(config.projects.len(), 2);
        assert!(!format!("{config:?}").contains("\"t\""));
    }
}
