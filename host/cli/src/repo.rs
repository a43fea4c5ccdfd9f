//! The Git repository that goes with a run: a clone on this machine with its changes, or an address.

mod git;
mod login;
mod url;
mod work_tree;

use std::path::{Path, PathBuf};

use dstack_api::config::RepoSpec;
use dstack_api::repos::{
    GetRepoRequest, RemoteRunRepoData, RepoHeadWithCreds, RepoInfo, RunRepoData,
    SaveRepoCredsRequest, VIRTUAL_REPO_ID,
};
use sha2::{Digest as _, Sha256};

use self::login::{Login, Refs};
use self::url::RepoUrl;
use self::work_tree::WorkTree;
use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::ui::Tone;

/// Which repository, and how to open it.
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "Repository")]
pub(crate) struct RepoOptions {
    /// The repository: the folder of a clone, or an address
    #[arg(
        short = 'P',
        long,
        value_name = "PATH or URL",
        conflicts_with = "no_repo"
    )]
    pub(crate) repo: Option<String>,
    /// Its branch
    #[arg(long, value_name = "NAME", conflicts_with = "no_repo")]
    pub(crate) repo_branch: Option<String>,
    /// Its commit
    #[arg(long, value_name = "HASH", conflicts_with = "no_repo")]
    pub(crate) repo_hash: Option<String>,
    /// No repository, even if the file names one
    #[arg(long)]
    pub(crate) no_repo: bool,
    #[command(flatten)]
    pub(crate) login: LoginOptions,
}

/// How a repository is opened.
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "Repository")]
pub(crate) struct LoginOptions {
    /// A token that opens the repository by HTTPS
    #[arg(short, long, value_name = "TOKEN", conflicts_with = "git_identity")]
    pub(crate) token: Option<String>,
    /// The private SSH key that opens the repository
    #[arg(long, value_name = "KEY")]
    pub(crate) git_identity: Option<PathBuf>,
}

impl std::fmt::Debug for LoginOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginOptions")
            .field("git_identity", &self.git_identity)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RepoOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RepoOptions")
            .field("repo", &self.repo)
            .field("no_repo", &self.no_repo)
            .finish_non_exhaustive()
    }
}

/// What a run says about its code.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) repo_id: String,
    pub(crate) data: RunRepoData,
    pub(crate) changes: Option<Changes>,
}

/// What is different on this machine, with its SHA-256.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) hash: String,
    content: Vec<u8>,
}

impl Changes {
    fn of(content: Vec<u8>) -> Option<Self> {
        if content.is_empty() {
            return None;
        }
        let digest = Sha256::digest(&content);
        let hash = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Self { hash, content })
    }
}

impl Code {
    /// Brings the changes to the server; the same ones again are no work.
    pub(crate) fn upload(&self, here: &Here) -> Result<(), CliError> {
        let Some(changes) = &self.changes else {
            return Ok(());
        };
        // The name is of letters, digits and dashes, but for what stands in the address.
        let id: String = self.repo_id.bytes().map(percent).collect();
        let path = here.path(&format!("repos/upload_code?repo_id={id}"));
        here.client
            .upload::<()>(&path, &changes.hash, &changes.content)
    }
}

fn percent(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    }
}

/// Where the repository is.
enum Place {
    Clone(Box<WorkTree>),
    Remote(RepoUrl),
}

impl Place {
    fn of(spec: &RepoSpec, folder: &Path, cx: &Cx<'_>) -> Result<Self, CliError> {
        if let Some(url) = &spec.url {
            return RepoUrl::parse(url).map(Self::Remote);
        }
        let path = cx.expand(spec.local_path.as_deref().unwrap_or("."), folder);
        WorkTree::at(&path, &cx.settings.home).map(|tree| Self::Clone(Box::new(tree)))
    }

    fn url(&self) -> &RepoUrl {
        match self {
            Self::Clone(tree) => &tree.url,
            Self::Remote(url) => url,
        }
    }
}

/// Settles the repository of a run and makes it known to the project; local paths become absolute ones.
pub(crate) fn prepare(
    repos: &mut Vec<RepoSpec>,
    options: &RepoOptions,
    folder: &Path,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<Code, CliError> {
    choose(repos, options, folder, cx)?;
    let Some(spec) = repos.first() else {
        init(here, VIRTUAL_REPO_ID, RepoInfo::Virtual {}, None)?;
        return Ok(Code {
            repo_id: VIRTUAL_REPO_ID.to_owned(),
            data: RunRepoData::Virtual {},
            changes: None,
        });
    };
    let place = Place::of(spec, folder, cx)?;
    let url = place.url().clone();
    let branch = spec.branch.as_deref();
    // Of a clone as it lies here the commit is known; of everything else the remote is asked.
    let as_it_lies = match &place {
        Place::Clone(tree) if spec.branch.is_none() && spec.hash.is_none() => Some(tree),
        _ => None,
    };
    let refs = open(&url, branch, as_it_lies.is_none(), &options.login, here, cx)?;
    let (branch, hash, changes) = match as_it_lies {
        Some(tree) => (
            tree.branch.clone(),
            Some(tree.hash.clone()),
            Changes::of(tree.diff()?),
        ),
        None => {
            let (branch, hash) = at_remote(spec, &refs, &url)?;
            (branch, hash, None)
        }
    };
    let (author, email) = match &place {
        Place::Clone(tree) => (tree.author.clone(), tree.email.clone()),
        Place::Remote(_) => (None, None),
    };
    Ok(Code {
        repo_id: url.id(),
        data: RunRepoData::Remote(RemoteRunRepoData {
            repo_name: url.name().to_owned(),
            repo_branch: branch,
            repo_hash: hash,
            repo_diff: None,
            repo_config_name: author,
            repo_config_email: email,
        }),
        changes,
    })
}

/// `dstack init`: keeps a login for a repository at the server, so that runs need none.
pub(crate) fn keep_login(
    repo: &str,
    options: &LoginOptions,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<String, CliError> {
    let folder = cx.folder.clone();
    let spec = RepoSpec::parse_source(repo).map_err(CliError::message)?;
    let place = Place::of(&spec, &folder, cx)?;
    let url = place.url().clone();
    let (login, _) = found(&url, None, options, cx)?;
    save(&url, &login, here, cx)?;
    Ok(url.text())
}

/// Options replace what the file says.
fn choose(
    repos: &mut Vec<RepoSpec>,
    options: &RepoOptions,
    folder: &Path,
    cx: &Cx<'_>,
) -> Result<(), CliError> {
    if options.no_repo {
        repos.clear();
        return Ok(());
    }
    if let Some(source) = &options.repo {
        let mut spec = RepoSpec::parse_source(source).map_err(CliError::message)?;
        // A path of an option starts where the command does.
        if let Some(path) = &mut spec.local_path {
            *path = cx.expand(path, &cx.folder).display().to_string();
        }
        match repos.first_mut() {
            Some(known) => {
                (known.local_path, known.url) = (spec.local_path, spec.url);
                (known.branch, known.hash) = (None, None);
            }
            None => repos.push(spec),
        }
    }
    let Some(spec) = repos.first_mut() else {
        let login = &options.login;
        if options.repo_branch.is_some()
            || options.repo_hash.is_some()
            || login.token.is_some()
            || login.git_identity.is_some()
        {
            return Err(CliError::Usage(
                "there is no repository that --repo-branch, --repo-hash, --token or --git-identity could be for; name \
                 one in `repos` or by --repo"
                    .to_owned(),
            ));
        }
        return Ok(());
    };
    if options.repo_branch.is_some() {
        spec.branch.clone_from(&options.repo_branch);
        spec.hash = None;
    }
    if options.repo_hash.is_some() {
        spec.hash.clone_from(&options.repo_hash);
    }
    if let Some(path) = &mut spec.local_path {
        *path = cx.expand(path, folder).display().to_string();
    }
    Ok(())
}

/// Branch and commit of a repository that is named by its address: settled now, so that each try gets the same code.
fn at_remote(
    spec: &RepoSpec,
    refs: &Refs,
    url: &RepoUrl,
) -> Result<(Option<String>, Option<String>), CliError> {
    if spec.hash.is_some() {
        return Ok((spec.branch.clone(), spec.hash.clone()));
    }
    let commit = refs.commit(spec.branch.as_deref());
    match (commit, &spec.branch) {
        (Some(commit), branch) => {
            let branch = branch
                .clone()
                .or_else(|| refs.default_branch().map(str::to_owned));
            Ok((branch, Some(commit.to_owned())))
        }
        (None, Some(branch)) => Err(CliError::message(format!(
            "the repository {url:?} has no branch {branch}"
        ))),
        (None, None) => Err(CliError::message(format!(
            "the repository {url:?} is empty; push something first"
        ))),
    }
}

/// Makes sure that the project has a login for it, and asks for its branches if they are needed.
fn open(
    url: &RepoUrl,
    branch: Option<&str>,
    asks: bool,
    options: &LoginOptions,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<Refs, CliError> {
    if options.token.is_none() && options.git_identity.is_none() && url.token.is_none() {
        let ask = GetRepoRequest {
            repo_id: url.id(),
            include_creds: true,
        };
        let known = match here
            .client
            .post::<RepoHeadWithCreds>(&here.path("repos/get"), &ask)
        {
            Ok(known) => known.repo_creds,
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        if let Some(login) = known.as_ref().and_then(Login::kept) {
            if !asks {
                return Ok(Refs::default());
            }
            // One that does not open it any more is replaced, if another does.
            if let Ok(refs) = login.try_it(branch, &cx.settings.home)? {
                return Ok(refs);
            }
        }
    }
    let (login, refs) = found(url, branch, options, cx)?;
    save(url, &login, here, cx)?;
    Ok(refs)
}

fn found(
    url: &RepoUrl,
    branch: Option<&str>,
    options: &LoginOptions,
    cx: &Cx<'_>,
) -> Result<(Login, Refs), CliError> {
    let home = &cx.settings.home;
    let identity = options.git_identity.as_ref();
    let identity = identity.map(|path| cx.expand(&path.to_string_lossy(), &cx.folder));
    let Some(login) = login::given(url, options.token.as_deref(), identity.as_deref())? else {
        return login::find(url, branch, home);
    };
    match login.try_it(branch, home)? {
        Ok(refs) => Ok((login, refs)),
        Err(why) => Err(CliError::message(format!(
            "the given login does not open the repository {url:?}: {why}"
        ))),
    }
}

fn save(url: &RepoUrl, login: &Login, here: &Here, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let info = RepoInfo::Remote {
        repo_name: url.name().to_owned(),
    };
    if let Some(secret) = login.note() {
        let text = format!(
            "Jobs of yours in this project open {url:?} with {secret}, which the server keeps encrypted."
        );
        let text = cx.ui.paint_note(Tone::Dim, &text);
        cx.ui.note(text)?;
    }
    init(here, &url.id(), info, Some(login.creds()))
}

fn init(
    here: &Here,
    id: &str,
    repo_info: RepoInfo,
    repo_creds: Option<dstack_api::repos::RemoteRepoCreds>,
) -> Result<(), CliError> {
    let request = SaveRepoCredsRequest {
        repo_id: id.to_owned(),
        repo_info,
        repo_creds,
    };
    here.client.post::<()>(&here.path("repos/init"), &request)
}
