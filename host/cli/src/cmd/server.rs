//! `dstack server`: its arguments; the binary starts the server itself.

use clap::ValueEnum;

/// Start a server
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack server\n  dstack server --host 0.0.0.0 --port 8000 --log-level debug"
)]
pub struct Args {
    /// The address to listen on
    #[arg(long, env = "DSTACK_SERVER_HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// The port to listen on
    #[arg(short, long, env = "DSTACK_SERVER_PORT", default_value_t = 3000)]
    pub port: u16,
    /// Same as --log-level debug
    #[arg(short, long, conflicts_with = "log_level")]
    pub debug: bool,
    /// How much the server says
    #[arg(
        short,
        long,
        env = "DSTACK_SERVER_LOG_LEVEL",
        ignore_case = true,
        default_value = "info"
    )]
    pub log_level: LogLevel,
    /// Make this server's project the client's default without a question
    #[arg(short, long, conflicts_with = "no")]
    pub yes: bool,
    /// Leave the client's configuration as it is without a question
    #[arg(short, long)]
    pub no: bool,
    /// The admin's token, when it is created
    #[arg(long, env = "DSTACK_SERVER_ADMIN_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// Each step.
    Debug,
    /// Changes of state.
    Info,
    /// What is odd.
    #[value(alias = "warn")]
    Warning,
    /// What a person should act on.
    #[value(alias = "critical")]
    Error,
}
