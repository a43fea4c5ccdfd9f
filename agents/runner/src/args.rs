//! The command line. Nothing is read from the environment.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use dstack_agent_kit::logging::Level;

/// Runs one job in a container and serves its log.
#[derive(Debug, Parser)]
#[command(name = "dstack-runner", version = concat!("version ", "0.22.5"), disable_help_subcommand = true)]
pub struct Args {
    /// How much is logged: fatal, error, warn, info, debug, trace or a digit from 1 to 6.
    #[arg(long, default_value = "info")]
    pub log_level: Level,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The only subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Wait for a job, run it, end.
    Start(StartArgs),
}

/// Options of `start`.
#[derive(Debug, Clone, clap::Args)]
pub struct StartArgs {
    /// Directory of logs and uploaded files.
    #[arg(long, default_value = "/tmp/runner")]
    pub temp_dir: PathBuf,
    /// Address to listen on; empty means all interfaces.
    #[arg(long, default_value = "")]
    pub http_address: String,
    /// Port to listen on; 0 means any free one, see --port-file.
    #[arg(long, default_value_t = dstack_agent_protocol::RUNNER_PORT)]
    pub http_port: u16,
    /// Port of the SSH server that is started for logins.
    #[arg(long, default_value_t = dstack_agent_protocol::CONTAINER_SSH_PORT)]
    pub ssh_port: u16,
    /// Public key line that may log in; may be given several times.
    #[arg(long = "ssh-authorized-key", value_name = "KEY")]
    pub ssh_authorized_keys: Vec<String>,
    /// Log level of the SSH server.
    #[arg(long, default_value = "INFO")]
    pub ssh_log_level: String,
    /// File into which the port is written once the runner accepts connections.
    #[arg(long, value_name = "PATH")]
    pub port_file: Option<PathBuf>,
    /// Listen on this Unix socket instead of a TCP port.
    #[arg(long, value_name = "PATH")]
    pub http_socket: Option<PathBuf>,
    /// Run without a container: keep every file below this directory and start no SSH server; root is not needed.
    #[arg(long, alias = "base-dir", value_name = "DIR")]
    pub task_dir: Option<PathBuf>,
    /// Start no SSH server.
    #[arg(long)]
    pub no_sshd: bool,
    /// Ignored; old shims pass it.
    #[arg(long, hide = true)]
    pub home_dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shims_command_line_is_understood_and_commas_do_not_split_keys() {
        let line = "dstack-runner --log-level 6 start --temp-dir /t --http-port 1 --ssh-port 2 --home-dir /root";
        let keys = [
            "--ssh-authorized-key",
            "ssh-rsa AA a,b",
            "--ssh-authorized-key",
            "ssh-rsa BB",
        ];
        let args = Args::try_parse_from(line.split(' ').chain(keys)).unwrap();
        let Command::Start(start) = args.command;
        assert_eq!(args.log_level, Level::Trace);
        assert_eq!(start.ssh_authorized_keys, ["ssh-rsa AA a,b", "ssh-rsa BB"]);
        assert_eq!(
            (start.http_port, start.ssh_port, start.http_address.as_str()),
            (1, 2, "")
        );
        assert_eq!(start.ssh_log_level, "INFO");
    }

    #[test]
    fn the_version_is_three_words() {
        let told = Args::try_parse_from(["dstack-runner", "--version"])
            .unwrap_err()
            .to_string();
        let words: Vec<&str> = told.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "dstack-runner",
                "version",
                dstack_agent_protocol::COMPATIBLE_VERSION
            ]
        );
    }
}
