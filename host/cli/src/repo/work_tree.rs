//! A clone on this machine: where it comes from, and what is different here.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::git::{asked, complaint, git, run};
use super::url::RepoUrl;
use crate::error::CliError;

/// The difference is made in memory, and servers take much less.
const MOST_BYTES: u64 = 512 << 20;

/// A clone, as a job can have it: a commit that its remote has, and what was changed since.
#[derive(Debug)]
pub(super) struct WorkTree {
    top: PathBuf,
    home: PathBuf,
    /// The remote's address.
    pub(super) url: RepoUrl,
    /// Branch of the remote that the current one follows.
    pub(super) branch: Option<String>,
    /// The commit that the remote has.
    pub(super) hash: String,
    /// `user.name` of Git.
    pub(super) author: Option<String>,
    /// `user.email` of Git.
    pub(super) email: Option<String>,
}

impl WorkTree {
    /// Looks at the clone that a folder is in.
    pub(super) fn at(folder: &Path, home: &Path) -> Result<Self, CliError> {
        let fail = |why: String| CliError::message(format!("{}: {why}", folder.display()));
        let metadata = fs::metadata(folder);
        metadata.map_err(|source| CliError::File {
            verb: "read",
            path: folder.to_owned(),
            source,
        })?;
        let top = run(git(home)
            .arg("-C")
            .arg(folder)
            .args(["rev-parse", "--show-toplevel"]))?;
        if !top.status.success() {
            return Err(fail(format!(
                "it is no clone of a Git repository ({}); bring folders along with `files`",
                complaint(&top)
            )));
        }
        let top = PathBuf::from(String::from_utf8_lossy(&top.stdout).trim_end());
        let here = |args: &[&str]| asked(git(home).arg("-C").arg(&top).args(args));
        let upstream = here(&["rev-parse", "--symbolic-full-name", "@{upstream}"])?;
        let remotes = here(&["remote"])?.unwrap_or_default();
        let remotes: Vec<&str> = remotes.lines().collect();
        let followed = upstream.as_deref().and_then(|name| {
            let name = name.strip_prefix("refs/remotes/")?;
            // Names of remotes may have slashes.
            remotes.iter().find_map(|remote| {
                let branch = name.strip_prefix(remote)?.strip_prefix('/')?;
                Some((*remote, branch.to_owned()))
            })
        });
        let (remote, branch) = match (followed, remotes.as_slice()) {
            (Some((remote, branch)), _) => (remote, Some(branch)),
            (None, all) if all.contains(&"origin") => ("origin", None),
            (None, [only]) => (*only, None),
            (None, []) => {
                return Err(fail(
                    "the clone has no remote that a job could get it from; add one (`git remote add`), or bring the \
                     folder along with `files`"
                        .to_owned(),
                ));
            }
            (None, _) => {
                return Err(fail(
                    "the clone has several remotes; say which one the branch follows: git branch --set-upstream-to \
                     REMOTE/BRANCH"
                        .to_owned(),
                ));
            }
        };
        let address = here(&["remote", "get-url", remote])?.unwrap_or_default();
        let url = if address.starts_with("./") || address.starts_with("../") {
            RepoUrl::parse(&top.join(&address).to_string_lossy())?
        } else {
            RepoUrl::parse(&address)?
        };
        let hash = match &branch {
            Some(_) => here(&["rev-parse", "--verify", "--quiet", "@{upstream}^{commit}"])?,
            None => newest_pushed(&here, remote)?,
        };
        let hash = hash.filter(|hash| !hash.is_empty()).ok_or_else(|| {
            fail(format!(
                "nothing of the current branch is known to be at the remote {remote}; push it first: git push -u \
                 {remote} HEAD"
            ))
        })?;
        let setting =
            |key| Ok::<_, CliError>(here(&["config", "--get", key])?.filter(|it| !it.is_empty()));
        Ok(Self {
            url,
            branch,
            hash,
            author: setting("user.name")?,
            email: setting("user.email")?,
            home: home.to_owned(),
            top,
        })
    }

    fn here(&self) -> Command {
        let mut git = git(&self.home);
        git.arg("-C").arg(&self.top);
        git
    }

    /// What makes the remote's commit into what lies here: commits that were not pushed, changes, new files that are
    /// not ignored. Empty if there is nothing.
    pub(super) fn diff(&self) -> Result<Vec<u8>, CliError> {
        // New files are named in a copy of the index, so that the person's own one stays as it is.
        let index =
            std::env::temp_dir().join(format!("dstack-index-{}", uuid::Uuid::new_v4().simple()));
        let cleaner = Removed(&index);
        let own =
            asked(self.here().args(["rev-parse", "--git-path", "index"]))?.unwrap_or_default();
        match fs::copy(self.top.join(own), &index) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(CliError::File {
                    verb: "write",
                    path: index.clone(),
                    source,
                });
            }
        }
        let named = run(self.here().env("GIT_INDEX_FILE", &index).args([
            "add",
            "--intent-to-add",
            "--all",
            "--",
            ".",
        ]))?;
        if !named.status.success() {
            return Err(self.failed(&complaint(&named)));
        }
        let mut diff = self.here();
        diff.env("GIT_INDEX_FILE", &index)
            .args([
                "-c",
                "core.quotePath=true",
                "diff",
                "--binary",
                "--no-color",
                "--no-ext-diff",
                "--no-textconv",
            ])
            // Whatever the person set: the runner reads the plain form.
            .args([
                "--src-prefix=a/",
                "--dst-prefix=b/",
                "--ignore-submodules=dirty",
                "--submodule=short",
            ])
            .arg(&self.hash)
            .args(["--", "."])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = diff
            .spawn()
            .map_err(|error| self.failed(&error.to_string()))?;
        let mut text = Vec::new();
        if let Some(output) = child.stdout.take() {
            let read = output.take(MOST_BYTES + 1).read_to_end(&mut text);
            read.map_err(|error| self.failed(&error.to_string()))?;
        }
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > MOST_BYTES {
            drop(child.kill());
            drop(child.wait());
            return Err(self.failed(&format!(
                "there are more than {} MiB of changes; leave files out by .gitignore",
                MOST_BYTES >> 20
            )));
        }
        let output = child
            .wait_with_output()
            .map_err(|error| self.failed(&error.to_string()))?;
        drop(cleaner);
        if !output.status.success() {
            return Err(self.failed(&complaint(&output)));
        }
        Ok(text)
    }

    fn failed(&self, why: &str) -> CliError {
        CliError::message(format!(
            "{}: cannot find out what was changed: {why}",
            self.top.display()
        ))
    }
}

/// The newest commit of this branch that is on a branch of the remote.
fn newest_pushed(
    here: &impl Fn(&[&str]) -> Result<Option<String>, CliError>,
    remote: &str,
) -> Result<Option<String>, CliError> {
    let known = format!("--remotes={remote}");
    // Commits that are not pushed, and behind a dash those before them.
    let Some(list) = here(&["rev-list", "--boundary", "HEAD", "--not", &known])? else {
        return Ok(None);
    };
    if !list.is_empty() {
        return Ok(list
            .lines()
            .find_map(|line| line.strip_prefix('-'))
            .map(str::to_owned));
    }
    here(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
}

/// A file that goes when this does.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        drop(fs::remove_file(self.0));
    }
}
