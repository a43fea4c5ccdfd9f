//! Presets: what the client's search for a good way to serve a model starts from.

use dstack_backend_types::reading::{Failed, FromValue, Reader};
use dstack_backend_types::{deserialize_by_value, words};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use super::env::Env;
use super::object::config;
use super::profile::ProfileParams;
use super::schema::{parts, rules};
use super::task::at_least_one;
use super::words::PresetTag;

/// Tokens of a prompt and of an answer when none are given.
pub(super) const DEFAULT_TOKENS: u32 = 1024;

config! {
    /// What a search for a good way to serve a model starts from.
    pub struct PresetConfiguration {
        /// Always `preset`.
        #[serde(rename = "type")]
        pub kind: PresetTag = named("type", default(PresetTag::Preset)),
        /// Its name.
        pub name: Option<String> = optional,
        /// The model. There after reading, from the shorthand `base` or `repo` too.
        pub model: Option<PresetModel> = optional,
        /// Shorthand of `model: {base: …}`; none after reading.
        pub base: Option<String> = optional,
        /// Shorthand of `model: {repo: …}`; none after reading.
        pub repo: Option<String> = optional,
        /// More wishes, for the agent.
        pub prompt: Option<Prompt> = optional,
        /// Tokens of context at least.
        pub min_context_length: Option<u32> = optional(at_least_one, parts::integer(1, i64::from(u32::MAX))),
        /// Milliseconds to the first token at most.
        pub max_ttft: Option<u32> = optional(at_least_one, parts::integer(1, i64::from(u32::MAX))),
        /// How many ways to try.
        pub trials: Option<u32> = optional(at_least_one, parts::integer(1, i64::from(u32::MAX))),
        /// Earlier presets to start from.
        pub previous: Option<Vec<String>> = optional,
        /// Requests at once.
        pub concurrency: Option<u32> = optional(at_least_one, parts::integer(1, i64::from(u32::MAX))),
        /// Tokens of a prompt; unset means 1024.
        pub input_tokens: Option<u32> = optional(at_least_one, parts::integer(1, i64::from(u32::MAX))),
        /// Tokens of an answer, at least 2; unset means 1024.
        pub output_tokens: Option<u32> = optional(|value, cx| cx.integer_in(value, 2, i64::from(u32::MAX)), parts::integer(2, i64::from(u32::MAX))),
        /// Tokens that all prompts start with; fewer than `input_tokens`.
        pub shared_prefix_tokens: Option<u32> = optional,
        /// Prompts of a data set instead of made-up ones.
        pub dataset: Option<String> = optional(dataset, dataset_schema),
        /// Whether to measure the plain way first; unset means yes.
        pub baseline: Option<bool> = optional,
        /// The gateway to use.
        pub gateway: Option<super::service::GatewayChoice> = optional,
        /// Who searches.
        pub agent: Option<PresetAgent> = optional,
        /// Environment variables.
        pub env: Env = default(Env::default()),
        /// Where and how to provision.
        #[serde(flatten)]
        pub profile: ProfileParams = flat,
    }
    check(PresetConfiguration::check) rules(rules::preset)
}

/// The model of a preset. A text is an exact repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PresetModel {
    /// Exactly this repository.
    Repo {
        /// The repository.
        repo: String,
        /// Another name to serve it under.
        name: Option<String>,
    },
    /// Any variant of this model.
    Base {
        /// The model.
        base: String,
    },
}

impl FromValue for PresetModel {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if !value.is_object() {
            return String::from_value(value, cx).map(|repo| Self::Repo { repo, name: None });
        }
        let mut obj = cx.object(value)?;
        let read = if obj.has("base") {
            obj.required("base", cx).map(|base| Self::Base { base })
        } else {
            let (repo, name) = (obj.required("repo", cx), obj.optional("name", cx));
            repo.and_then(|repo| Ok(Self::Repo { repo, name: name? }))
        };
        obj.finish(cx)?;
        read
    }
}

/// More wishes: the text, or a file that has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Prompt {
    /// The text, up to 10,000 characters.
    Text(String),
    /// A file beside the configuration.
    File {
        /// Its path.
        path: String,
    },
}

impl FromValue for Prompt {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if value.is_object() {
            let mut obj = cx.object(value)?;
            let path = obj.required("path", cx);
            obj.finish(cx)?;
            return Ok(Self::File { path: path? });
        }
        match String::from_value(value, cx)? {
            text if text.trim().is_empty() => Err(cx.fail("the prompt is empty")),
            text if text.chars().count() > 10_000 => {
                Err(cx.fail("the prompt has more than 10,000 characters"))
            }
            text => Ok(Self::Text(text)),
        }
    }
}

words! {
    /// Whose agent searches.
    pub enum AgentProvider {
        /// Claude Code.
        Claude = "claude",
        /// Codex.
        Codex = "codex",
    }
}

words! {
    /// How hard an agent thinks.
    pub enum AgentEffort {
        /// Little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// Much.
        High = "high",
        /// Very much.
        Xhigh = "xhigh",
        /// As much as it can; not for every provider.
        Max = "max",
    }
}

config! {
    /// Who searches.
    #[derive(Eq)]
    pub struct PresetAgent {
        /// Whose agent.
        pub provider: AgentProvider = required,
        /// Its model.
        pub model: Option<String> = optional,
        /// How hard it thinks.
        pub effort: Option<AgentEffort> = optional,
    }
    check(PresetAgent::check)
}

impl PresetAgent {
    fn check(&self, cx: &mut Reader) -> Result<(), Failed> {
        match (self.provider, self.effort) {
            (AgentProvider::Codex, Some(AgentEffort::Max)) => {
                Err(cx.fail_at("effort", "the effort `max` is not for codex; use xhigh"))
            }
            _ => Ok(()),
        }
    }
}

fn dataset_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "number"], "pattern": r"^(?!\s*random\s*$)\s*\S"})
}

fn dataset(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    let name = String::from_value(value, cx)?.trim().to_owned();
    match name.as_str() {
        "" => Err(cx.fail("the name of the data set is empty")),
        "random" => {
            Err(cx.fail("`random` is not a data set; leave `dataset` out for made-up prompts"))
        }
        _ => Ok(name),
    }
}

impl PresetConfiguration {
    fn check(&self, cx: &mut Reader) -> Result<(), Failed> {
        let given = [
            self.model.is_some(),
            self.base.is_some(),
            self.repo.is_some(),
        ];
        match given.into_iter().filter(|given| *given).count() {
            0 => return Err(cx.fail_at("model", "one of `model`, `base` and `repo` is required")),
            1 => {}
            _ => {
                let key = if self.repo.is_some() { "repo" } else { "base" };
                return Err(cx.fail_at(key, "`model`, `base` and `repo` exclude each other"));
            }
        }
        let counts = [
            self.input_tokens,
            self.output_tokens,
            self.shared_prefix_tokens,
        ];
        if self.dataset.is_some() && counts.iter().any(Option::is_some) {
            return Err(cx.fail_at(
                "dataset",
                "`dataset` excludes `input_tokens`, `output_tokens` and `shared_prefix_tokens`",
            ));
        }
        let input = self.input_tokens.unwrap_or(DEFAULT_TOKENS);
        match self.shared_prefix_tokens {
            Some(prefix) if prefix >= input => Err(cx.fail_at(
                "shared_prefix_tokens",
                format!("`shared_prefix_tokens` ({prefix}) must be below `input_tokens` ({input})"),
            )),
            _ => Ok(()),
        }
    }

    /// Puts the shorthand keys into `model`.
    #[must_use]
    pub fn expanded(mut self) -> Self {
        let base = self.base.take().map(|base| PresetModel::Base { base });
        let repo = self
            .repo
            .take()
            .map(|repo| PresetModel::Repo { repo, name: None });
        self.model = self.model.or(base).or(repo);
        self
    }
}

deserialize_by_value!(PresetModel, Prompt);
