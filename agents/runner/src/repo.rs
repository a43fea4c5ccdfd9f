//! Puts the job's repository in place: a clone with the user's changes, or the uploaded files.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dstack_agent_protocol::runner::{RepoCredentials, RepoData};

use crate::children::Children;
use crate::users::Account;
use crate::{archives, files};

const LOST_AND_FOUND: &str = "lost+found";

#[derive(Debug, thiserror::Error)]
pub(crate) enum RepoError {
    #[error("repo dir is not empty: {0}")]
    NotEmpty(String),
    #[error("unknown RepoType: {0}")]
    UnknownType(String),
    #[error("a remote repo needs credentials with a clone url")]
    NoUrl,
    #[error("unsupported protocol of the clone url: {0}")]
    Protocol(String),
    #[error("git is not installed in the image; add it or upload the files instead{0}")]
    NoGit(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What is needed to put a repository in place.
#[derive(Debug)]
pub(crate) struct Checkout<'a> {
    pub(crate) data: &'a RepoData,
    pub(crate) credentials: Option<&'a RepoCredentials>,
    pub(crate) is_single_branch: bool,
    /// `error`, `skip` or nothing.
    pub(crate) exists_action: Option<&'a str>,
    pub(crate) dir: &'a Path,
    /// The uploaded tar or diff.
    pub(crate) blob: Option<PathBuf>,
    /// For short-lived files.
    pub(crate) temp: &'a Path,
    /// Home of the runner, for git's own configuration.
    pub(crate) home: &'a Path,
    pub(crate) account: &'a Account,
    pub(crate) children: &'a Children,
    /// Whether the file system is the job's own, so that a missing git may be installed.
    pub(crate) may_install: bool,
}

/// Installs git with the first package manager there is. Variables that images set for the job are not for them.
const INSTALL_GIT: &str = "unset LD_LIBRARY_PATH LD_PRELOAD; \
if command -v apt-get; then apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends git ca-certificates openssh-client; \
elif command -v yum; then yum install -y git openssh-clients; \
elif command -v apk; then apk add -U git openssh-client; \
else echo there is no package manager that is known >&2; exit 11; fi";

/// Makes sure of git.
fn ensure_git(checkout: &Checkout<'_>) -> Result<(), RepoError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|dir| dir.join("git").is_file()) {
        return Ok(());
    }
    if !checkout.may_install {
        return Err(RepoError::NoGit(String::new()));
    }
    tracing::info!("there is no git in the image, installing it");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", INSTALL_GIT]);
    checkout
        .children
        .run(&mut shell)
        .map_err(|error| RepoError::NoGit(format!(" (installing it: {error})")))
}

/// Does it; blocks the thread.
pub(crate) fn set_up(checkout: &Checkout<'_>) -> Result<(), RepoError> {
    let kind = checkout.data.repo_type.as_str();
    if !matches!(kind, "remote" | "local" | "virtual") {
        return Err(RepoError::UnknownType(kind.to_owned()));
    }
    let blob = checkout
        .blob
        .as_deref()
        .filter(|p| p.metadata().is_ok_and(|found| found.len() > 0));
    if kind != "remote" && blob.is_none() {
        return Ok(());
    }
    let content = content_of(checkout.dir)?;
    if content == Content::Some {
        return match checkout.exists_action {
            Some("error") => Err(RepoError::NotEmpty(checkout.dir.display().to_string())),
            _ => {
                tracing::info!(dir = %checkout.dir.display(), "the repo dir is not empty, it is used as it is");
                Ok(())
            }
        };
    }
    files::make_dirs(checkout.dir, checkout.account)?;
    if kind == "remote" {
        ensure_git(checkout)?;
        let kept = tempfile_dir(checkout.temp, "lost-found")?;
        if content == Content::OnlyLostAndFound {
            // The root of a disk: git clones into empty directories only, and a rename cannot leave the disk.
            copy(checkout, &checkout.dir.join(LOST_AND_FOUND), &kept)?;
            files::remove(&checkout.dir.join(LOST_AND_FOUND))?;
        }
        let cloned = clone(checkout, blob);
        if content == Content::OnlyLostAndFound {
            copy(checkout, &kept.join(LOST_AND_FOUND), checkout.dir)?;
        }
        files::remove(&kept)?;
        cloned?;
    } else if let Some(blob) = blob {
        archives::unpack_into(blob, checkout.dir)?;
    }
    files::give_tree(checkout.dir, checkout.account);
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    None,
    OnlyLostAndFound,
    Some,
}

fn content_of(dir: &Path) -> io::Result<Content> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Content::None),
        Err(e) => return Err(e),
    };
    let names = entries
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    Ok(match names.as_slice() {
        [] => Content::None,
        [name] if name == LOST_AND_FOUND => Content::OnlyLostAndFound,
        _ => Content::Some,
    })
}

fn copy(checkout: &Checkout<'_>, from: &Path, to: &Path) -> io::Result<()> {
    checkout
        .children
        .run(Command::new("cp").arg("-a").arg(from).arg(to))
}

fn tempfile_dir(temp: &Path, name: &str) -> io::Result<PathBuf> {
    let dir = temp.join(format!(".{name}-{}", std::process::id()));
    files::remove(&dir)?;
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
    Ok(dir)
}

/// Credentials in the form git takes them: a configuration file that only we can read, so that neither the process
/// table nor the clone's own configuration shows them. Removed on drop.
struct Login {
    dir: PathBuf,
    ssh: Option<String>,
}

impl Drop for Login {
    fn drop(&mut self) {
        if let Err(error) = files::remove(&self.dir) {
            tracing::warn!(%error, "git credentials are left in the temp dir");
        }
    }
}

impl Login {
    fn write(temp: &Path, credentials: &RepoCredentials) -> Result<Self, RepoError> {
        let url = &credentials.clone_url;
        let (protocol, rest) = url.split_once("://").ok_or(RepoError::NoUrl)?;
        let mut login = Self {
            dir: tempfile_dir(temp, "git")?,
            ssh: None,
        };
        let me = Account {
            is_switched: false,
            ..Account::default()
        };
        // Another owner of an existing directory is the job's user, whom we trust with his own files.
        let mut config = "[safe]\n\tdirectory = *\n".to_owned();
        match protocol {
            "https" | "http" => {
                if let Some(token) = credentials
                    .oauth_token
                    .as_ref()
                    .filter(|token| !token.is_empty())
                {
                    let host = rest.split('/').next().unwrap_or_default();
                    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
                    let basic = STANDARD.encode(format!("anything:{}", token.expose()));
                    // Bound to the host, so that submodules elsewhere do not get the token.
                    config.push_str(&format!(
                        "[http \"{protocol}://{host}/\"]\n\textraHeader = Authorization: Basic {basic}\n"
                    ));
                }
            }
            "ssh" => {
                let mut ssh = "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null".to_owned();
                if let Some(key) = credentials
                    .private_key
                    .as_ref()
                    .filter(|key| !key.is_empty())
                {
                    let path = login.dir.join("key");
                    let mut text = key.expose().to_owned();
                    if !text.ends_with('\n') {
                        text.push('\n');
                    }
                    files::private_file(&path, &text, &me)?;
                    ssh.push_str(&format!(" -o IdentitiesOnly=yes -i '{}'", path.display()));
                }
                login.ssh = Some(ssh);
            }
            "file" => {}
            other => return Err(RepoError::Protocol(other.to_owned())),
        }
        files::private_file(&login.dir.join("config"), &config, &me)?;
        Ok(login)
    }

    fn git(&self, home: &Path) -> Command {
        let mut git = Command::new("git");
        let include = format!("include.path={}", self.dir.join("config").display());
        git.arg("-c")
            .arg(include)
            .env("HOME", home)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C");
        // What the image's environment says about repositories is about others.
        for key in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            git.env_remove(key);
        }
        if let Some(ssh) = &self.ssh {
            git.env("GIT_SSH_COMMAND", ssh);
        }
        git
    }
}

fn clone(checkout: &Checkout<'_>, diff: Option<&Path>) -> Result<(), RepoError> {
    let data = checkout.data;
    let credentials = checkout
        .credentials
        .filter(|c| !c.clone_url.is_empty())
        .ok_or(RepoError::NoUrl)?;
    let login = Login::write(checkout.temp, credentials)?;
    let url = credentials.clone_url.as_str();
    let run = |command: &mut Command| {
        checkout
            .children
            .run(command)
            .map_err(|e| git_error(hide_login(&e, url)))
    };
    let here = || {
        let mut git = login.git(checkout.home);
        git.arg("-C").arg(checkout.dir);
        git
    };
    let branch = non_empty(data.repo_branch.as_deref());
    let hash = non_empty(data.repo_hash.as_deref());
    tracing::info!(branch, hash, dir = %checkout.dir.display(), "cloning the repo");
    let mut git = login.git(checkout.home);
    git.args(["clone", "--quiet", "--recurse-submodules"]);
    if let Some(branch) = branch {
        git.args(["--branch", branch]);
    }
    git.arg(if checkout.is_single_branch {
        "--single-branch"
    } else {
        "--no-single-branch"
    });
    git.arg("--")
        .arg(ssh_user(&credentials.clone_url))
        .arg(checkout.dir);
    run(&mut git)?;
    if let Some(hash) = hash {
        let head = checkout
            .children
            .output(here().args(["rev-parse", "HEAD"]))
            .map_err(git_error)?;
        let is_head = String::from_utf8_lossy(&head.stdout)
            .trim()
            .eq_ignore_ascii_case(hash);
        if !(is_head && branch.is_some()) {
            let commit = format!("{hash}^{{commit}}");
            if run(here().args(["cat-file", "-e", commit.as_str()])).is_err() {
                // Not on a branch that was cloned; servers mostly give commits out by name too.
                run(here().args(["fetch", "--quiet", "origin", hash]))?;
            }
            run(here().args(["checkout", "--quiet", "--detach", hash]))?;
            run(here().args(["submodule", "--quiet", "update", "--init", "--recursive"]))?;
        }
    }
    for (key, value) in [
        ("user.name", &data.repo_config_name),
        ("user.email", &data.repo_config_email),
    ] {
        if let Some(value) = value {
            run(here().args(["config", key, value]))?;
        }
    }
    if let Some(diff) = diff {
        tracing::info!("applying the user's changes");
        run(here()
            .args(["apply", "--whitespace=nowarn", "--binary"])
            .arg(diff))?;
    }
    Ok(())
}

fn git_error(error: io::Error) -> RepoError {
    if error.kind() == io::ErrorKind::NotFound {
        RepoError::NoGit(String::new())
    } else {
        RepoError::Io(error)
    }
}

/// Takes a user's name and password out of what git says about a URL.
fn hide_login(error: &io::Error, url: &str) -> io::Error {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((login, _)) => {
            let said = error.to_string().replace(&format!("{login}@"), "***@");
            io::Error::new(error.kind(), said)
        }
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// An SSH URL without a user means `git`.
fn ssh_user(url: &str) -> String {
    match url.strip_prefix("ssh://") {
        Some(rest) if !rest.split('/').next().unwrap_or_default().contains('@') => {
            format!("ssh://git@{rest}")
        }
        _ => url.to_owned(),
    }
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
