//! Command line and environment, read once.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Parser, ValueEnum};
use dstack_agent_kit::http::Listen;
use dstack_agent_kit::logging::Level;
use dstack_agent_protocol::{
    CONTAINER_SSH_PORT, DCGM_EXPORTER_PORT, RUNNER_PORT, SHIM_PORT, shim::NetworkMode,
};

/// How tasks are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RuntimeKind {
    /// In containers; without an engine the shim does not start.
    Docker,
    /// As processes of this machine, without an image.
    Process,
    /// Task by task: in a container if an engine answers and has the image, or its registry answers for it; else as a process.
    Auto,
}

/// Settings of the shim: flags, which win, or environment variables.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "dstack-shim",
    about = "Runs containers or processes for a dstack server"
)]
#[command(disable_version_flag = true)]
pub struct Args {
    /// Prints the version and ends.
    #[arg(long)]
    pub version: bool,
    /// Prints the version of this build, which servers compare with theirs, and ends.
    #[arg(long)]
    pub build: bool,
    /// Directory of the state; must exist. Default: ~/.dstack
    #[arg(long, env = "DSTACK_SHIM_HOME")]
    pub shim_home: Option<PathBuf>,
    /// Where an update of the shim is written. Default: the running file
    #[arg(long, env = "DSTACK_SHIM_BINARY_PATH")]
    pub shim_binary_path: Option<PathBuf>,
    /// Port of the API on localhost. Default: 10998, or none with --socket
    #[arg(long, env = "DSTACK_SHIM_HTTP_PORT")]
    pub shim_http_port: Option<u16>,
    /// Serves the API on this Unix socket, which only its owner may use, and on a port only if one is given.
    #[arg(long, env = "DSTACK_SHIM_SOCKET")]
    pub socket: Option<PathBuf>,
    /// Id of the user who may use the socket: whom the server logs in as. Default: the shim's own
    #[arg(long, env = "DSTACK_SHIM_SOCKET_OWNER")]
    pub socket_owner: Option<u32>,
    /// Switches the machine off after so many seconds without a request and without a task; 0 means never.
    #[arg(
        long,
        env = "DSTACK_SHIM_IDLE_SHUTDOWN",
        value_name = "SECONDS",
        default_value_t = 0
    )]
    pub idle_shutdown: u64,
    /// Runs tasks in containers or as processes.
    #[arg(
        long,
        env = "DSTACK_SHIM_RUNTIME",
        value_enum,
        default_value = "docker"
    )]
    pub runtime: RuntimeKind,
    /// fatal, error, warn, info, debug, trace, or 1 to 6.
    #[arg(long, env = "DSTACK_SHIM_LOG_LEVEL", default_value = "info")]
    pub shim_log_level: Level,
    /// Downloads the runner from here at the start if its file is absent.
    #[arg(long, env = "DSTACK_RUNNER_DOWNLOAD_URL", default_value = "")]
    pub runner_download_url: String,
    /// The runner on this machine.
    #[arg(
        long,
        env = "DSTACK_RUNNER_BINARY_PATH",
        default_value = "/usr/local/bin/dstack-runner"
    )]
    pub runner_binary_path: PathBuf,
    /// Port of the runner in the container.
    #[arg(long, env = "DSTACK_RUNNER_HTTP_PORT", default_value_t = RUNNER_PORT)]
    pub runner_http_port: u16,
    /// Port of the SSH server in the container.
    #[arg(long, env = "DSTACK_RUNNER_SSH_PORT", default_value_t = CONTAINER_SSH_PORT)]
    pub runner_ssh_port: u16,
    /// LogLevel of the SSH server in the container.
    #[arg(long, env = "DSTACK_RUNNER_SSH_LOG_LEVEL", default_value = "")]
    pub runner_ssh_log_level: String,
    /// Log level of the runner.
    #[arg(long, env = "DSTACK_RUNNER_LOG_LEVEL", default_value = "info", value_parser = level_word)]
    pub runner_log_level: String,
    /// Port of the GPU metrics exporter.
    #[arg(long, env = "DSTACK_DCGM_EXPORTER_HTTP_PORT", default_value_t = DCGM_EXPORTER_PORT)]
    pub dcgm_exporter_http_port: u16,
    /// Collect interval of the GPU metrics exporter, in milliseconds.
    #[arg(long, env = "DSTACK_DCGM_EXPORTER_INTERVAL", default_value_t = 5000)]
    pub dcgm_exporter_interval: u32,
    /// Host of nv-hostengine; empty means the library in this process.
    #[arg(long, env = "DSTACK_DCGM_ADDRESS", default_value = "")]
    pub dcgm_address: String,
    /// Variables of the shim's environment that every task gets.
    #[arg(
        long,
        env = "DSTACK_DOCKER_PASS_ENV",
        value_delimiter = ',',
        default_value = "http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY"
    )]
    pub pass_env: Vec<String>,
    /// Makes every container privileged.
    #[arg(long, env = "DSTACK_DOCKER_PRIVILEGED", value_parser = FalseyValueParser::new())]
    pub privileged: bool,
    /// PJRT_DEVICE of every task, for TPUs.
    #[arg(long, env = "PJRT_DEVICE", default_value = "")]
    pub pjrt_device: String,
    /// Writes host_info.json at the start.
    #[arg(long, env = "DSTACK_SERVICE_MODE", value_parser = FalseyValueParser::new())]
    pub service: bool,
}

impl Args {
    /// Where the API is served. A task with the machine's own network reaches ports of the loopback too, hence no port
    /// beside a socket unless it is asked for.
    pub(crate) fn listen(&self) -> Vec<Listen> {
        let port = self
            .shim_http_port
            .or_else(|| self.socket.is_none().then_some(SHIM_PORT));
        let on_port = port.map(|port| Listen::Tcp {
            host: "localhost".to_owned(),
            port,
        });
        let on_socket = self.socket.clone().map(Listen::Unix);
        on_socket.into_iter().chain(on_port).collect()
    }
}

fn level_word(word: &str) -> Result<String, dstack_agent_kit::logging::ParseLevelError> {
    word.parse::<Level>().map(|_| word.to_owned())
}

/// What every task gets from the settings.
#[derive(Debug, Clone)]
pub(crate) struct TaskDefaults {
    pub(crate) runner_binary: PathBuf,
    pub(crate) runner_http_port: u16,
    pub(crate) runner_ssh_port: u16,
    pub(crate) runner_ssh_log_level: String,
    pub(crate) runner_log_level: String,
    pub(crate) is_privileged: bool,
    /// Name and value, read from the environment once.
    pub(crate) env: Vec<(String, String)>,
}

impl TaskDefaults {
    pub(crate) fn new(args: &Args) -> Self {
        let mut env: Vec<_> = args
            .pass_env
            .iter()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty())
            .filter_map(|name| Some((name.to_owned(), env_text(name)?)))
            .collect();
        if !args.pjrt_device.is_empty() {
            env.push(("PJRT_DEVICE".to_owned(), args.pjrt_device.clone()));
        }
        Self {
            runner_binary: args.runner_binary_path.clone(),
            runner_http_port: args.runner_http_port,
            runner_ssh_port: args.runner_ssh_port,
            runner_ssh_log_level: args.runner_ssh_log_level.clone(),
            runner_log_level: args.runner_log_level.clone(),
            is_privileged: args.privileged,
            env,
        }
    }

    /// The runner's command line in a container, for `/bin/sh -c`.
    pub(crate) fn runner_command(&self, network: NetworkMode, ssh_keys: &[String]) -> String {
        let mut command = format!(
            "/usr/local/bin/dstack-runner --log-level {} start --temp-dir /tmp/runner --http-port {} --ssh-port {}",
            self.runner_log_level, self.runner_http_port, self.runner_ssh_port
        );
        if network == NetworkMode::Host {
            command.push_str(" --http-address localhost");
        }
        for key in ssh_keys {
            command.push_str(" --ssh-authorized-key ");
            command.push_str(&shell_quote(key));
        }
        if !self.runner_ssh_log_level.is_empty() {
            command.push_str(" --ssh-log-level ");
            command.push_str(&shell_quote(&self.runner_ssh_log_level));
        }
        command
    }
}

/// A variable of the environment, if it is set and is text.
pub(crate) fn env_text(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value| value.into_string().ok())
}

fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_defaults_of_the_api() {
        let args = Args::try_parse_from(["dstack-shim"]).unwrap();
        assert_eq!((args.listen().len(), args.runner_http_port), (1, 10999));
        assert_eq!(args.listen()[0].to_string(), "localhost:10998");
        assert_eq!(args.idle_shutdown, 0);
        assert_eq!(args.runtime, RuntimeKind::Docker);
        assert_eq!(args.pass_env.len(), 6);
        let args = Args::try_parse_from([
            "dstack-shim",
            "--privileged",
            "--pjrt-device=TPU",
            "--shim-log-level",
            "5",
        ])
        .unwrap();
        assert!(args.privileged && !args.service);
        assert_eq!(args.shim_log_level, Level::Debug);
        assert!(Args::try_parse_from(["dstack-shim", "--runner-log-level", "loud"]).is_err());
        assert!(Args::try_parse_from(["dstack-shim", "something"]).is_err());
    }

    #[test]
    fn beside_a_socket_a_port_opens_only_if_it_is_asked_for() {
        let listen = |words: &[&str]| {
            let args = Args::try_parse_from([&["dstack-shim"], words].concat()).unwrap();
            let told: Vec<_> = args.listen().iter().map(ToString::to_string).collect();
            told.join(" ")
        };
        assert_eq!(listen(&["--socket", "/s"]), "/s");
        assert_eq!(
            listen(&["--socket", "/s", "--shim-http-port", "7"]),
            "/s localhost:7"
        );
        assert_eq!(listen(&["--shim-http-port", "7"]), "localhost:7");
    }

    #[test]
    fn a_key_cannot_break_out_of_its_quotes() {
        let defaults = TaskDefaults::new(&Args::try_parse_from(["dstack-shim"]).unwrap());
        let command = defaults.runner_command(NetworkMode::Bridge, &["k' ; rm '".to_owned()]);
        assert!(
            command.ends_with(r"--ssh-authorized-key 'k'\'' ; rm '\'''"),
            "{command}"
        );
    }
}
