//! Templates of runs, for forms.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a form asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TemplateParameter {
    /// Name of the run.
    Name {},
    /// IDE of a dev environment.
    Ide {},
    /// Resources.
    Resources {},
    /// Python version or image.
    PythonOrDocker {},
    /// Repository.
    Repo {},
    /// Working directory.
    WorkingDir {},
    /// A variable of the environment.
    Env {
        /// Label.
        #[serde(default)]
        title: Option<String>,
        /// Name of the variable.
        #[serde(default)]
        name: Option<String>,
        /// What it is if nothing is entered.
        #[serde(default)]
        value: Option<String>,
    },
}

/// A template of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "template")]
pub struct UiTemplate {
    /// Name, unique among the templates.
    pub name: String,
    /// Title.
    pub title: String,
    /// What it is for.
    #[serde(default)]
    pub description: Option<String>,
    /// What is asked for.
    #[serde(default)]
    pub parameters: Vec<TemplateParameter>,
    /// The configuration to begin with.
    pub configuration: Map<String, Value>,
}
