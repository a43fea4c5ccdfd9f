//! `dstack completion`: what a shell needs to complete commands.

use clap_complete::Shell;

use crate::cx::Cx;
use crate::error::CliError;

/// Shell completion
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eval \"$(dstack completion bash)\"\n  dstack completion zsh > ~/.zfunc/_dstack"
)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::args::command(),
        "dstack",
        &mut script,
    );
    cx.ui.raw(&script)
}
