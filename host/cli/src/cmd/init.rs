//! `dstack init`: keeps a login for a repository at the server.

use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;
use crate::repo::{self, LoginOptions};

/// Let your runs clone a Git repository
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The login is tried and kept, encrypted, for your runs in the project. Without an option it is found: none at all\nfor public repositories, then git's credential helpers, gh, or SSH keys.\n\nExamples:\n  dstack init                                        the clone in this folder\n  dstack init -P https://github.com/org/code -t TOKEN\n  dstack init -P git@github.com:org/code --git-identity ~/.ssh/deploy"
)]
pub(crate) struct Args {
    #[command(flatten)]
    project: ProjectOption,
    /// The repository: the folder of a clone, or an address
    #[arg(short = 'P', long, value_name = "PATH or URL", default_value = ".")]
    repo: String,
    #[command(flatten)]
    login: LoginOptions,
}

pub(crate) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let url = repo::keep_login(&args.repo, &args.login, &here, cx)?;
    cx.ui.line(format!(
        "Runs of project {} can clone {url}",
        here.project.name
    ))
}
