//! Repositories and the code that goes with a run.

use dstack_backend_types::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Id of the repository that stands for "no repository".
pub const VIRTUAL_REPO_ID: &str = "none";

/// The repository as a run uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "repo_type", rename_all = "lowercase")]
pub enum RunRepoData {
    /// A Git remote at a commit.
    Remote(RemoteRunRepoData),
    /// A folder; old clients only.
    Local {
        /// Folder on the user's machine.
        repo_dir: String,
    },
    /// None.
    Virtual {},
}

/// A Git remote at a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoteRunRepoData {
    /// Name of the repository.
    pub repo_name: String,
    /// Branch.
    #[serde(default)]
    pub repo_branch: Option<String>,
    /// Commit.
    #[serde(default)]
    pub repo_hash: Option<String>,
    /// The user's uncommitted changes. Clients keep it to themselves; it is read and never written.
    #[serde(default, skip_serializing)]
    pub repo_diff: Option<String>,
    /// `user.name` of Git.
    #[serde(default)]
    pub repo_config_name: Option<String>,
    /// `user.email` of Git.
    #[serde(default)]
    pub repo_config_email: Option<String>,
}

/// What a repository is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "repo_type", rename_all = "lowercase")]
pub enum RepoInfo {
    /// A Git remote.
    Remote {
        /// Name of the repository.
        repo_name: String,
    },
    /// A folder; old clients only.
    Local {
        /// Folder on the user's machine.
        repo_dir: String,
    },
    /// None.
    Virtual {},
}

/// How to clone a Git remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoteRepoCreds {
    /// Address.
    pub clone_url: String,
    /// OpenSSH private key.
    #[serde(default)]
    pub private_key: Option<Secret<String>>,
    /// Token.
    #[serde(default)]
    pub oauth_token: Option<Secret<String>>,
}

/// A repository as the API lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepoHead {
    /// Id.
    pub repo_id: String,
    /// What it is.
    pub repo_info: RepoInfo,
}

/// A repository with the caller's credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepoHeadWithCreds {
    /// Id.
    pub repo_id: String,
    /// What it is.
    pub repo_info: RepoInfo,
    /// The caller's credentials, when asked for.
    #[serde(default)]
    pub repo_creds: Option<RemoteRepoCreds>,
}

/// `POST /api/project/{project}/repos/init`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SaveRepoCredsRequest {
    /// Id.
    pub repo_id: String,
    /// What it is.
    pub repo_info: RepoInfo,
    /// The caller's credentials; null deletes them.
    #[serde(default)]
    pub repo_creds: Option<RemoteRepoCreds>,
}

/// `POST /api/project/{project}/repos/get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetRepoRequest {
    /// Id.
    pub repo_id: String,
    /// Whether to send the caller's credentials.
    pub include_creds: bool,
}

/// `POST /api/project/{project}/repos/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteReposRequest {
    /// Which.
    pub repos_ids: Vec<String>,
}
