//! `dstack attach`: brings a running job's ports and login to this machine.

use std::path::PathBuf;

use dstack_api::config::PortMapping;
use dstack_api::runs::RunStatus;
use jiff::Timestamp;

use crate::attach::{self, Follow};
use crate::cmd::logs::{get_run, since};
use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;
use crate::ssh::Wishes;

/// Bring a run's ports and login to this machine
#[derive(Debug, clap::Args)]
#[command(
    after_help = "While it runs, `ssh NAME` and the IDE's link open the job, and its ports are on this machine.\nCtrl+C leaves and does not touch the run.\n\nExamples:\n  dstack attach NAME\n  dstack attach NAME --logs              shows the log as well\n  dstack attach NAME -p 9000:8000        the job's port 8000 here as 9000\n  dstack attach NAME --replica 1 --job 2"
)]
pub(crate) struct Args {
    #[command(flatten)]
    project: ProjectOption,
    /// The name of the run
    run_name: String,
    /// The private key that the run was submitted with, if not the one of your user at the server
    #[arg(long, value_name = "KEY")]
    ssh_identity: Option<PathBuf>,
    /// Show the log
    #[arg(long)]
    logs: bool,
    /// Address of this machine that the ports are bound to
    #[arg(long, default_value = "localhost", value_name = "HOST")]
    host: String,
    /// A port of the job, such as 8080 or 80:8080 (here:job) or *:8080; may be repeated
    #[arg(short, long, value_name = "MAPPING", value_parser = crate::cmd::apply::port)]
    port: Vec<PortMapping>,
    /// The replica. Default: the lowest that runs
    #[arg(long, value_name = "N")]
    replica: Option<u32>,
    /// The job of the replica
    #[arg(long, default_value_t = 0, value_name = "N")]
    job: u32,
    /// With --logs: only what came after this: a duration such as 10m, or an RFC 3339 time
    #[arg(long, value_parser = since, requires = "logs")]
    since: Option<Timestamp>,
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let run = get_run(&here, &args.run_name)?;
    if run.status.is_finished() && run.status != RunStatus::Done {
        return Err(CliError::message(format!(
            "Run {} is {}",
            args.run_name, run.status
        )));
    }
    let follow = Follow {
        verb: None,
        is_quick: true,
        shows_log: args.logs,
        since: args.since,
        replica: args.replica,
        job: args.job,
        wishes: Wishes {
            identity: args.ssh_identity,
            host: args.host,
            ports: args.port,
        },
    };
    attach::follow(run, follow, &here, cx)
}
