//! `dstack server`: settings, log, runtime, signals.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use dstack_cli::local_config::Remembered;
use dstack_cli::{LogLevel, ServerArgs};
use dstack_plugins::{MachineConfig, PluginsConfig};
use dstack_server::settings::LogFormat;
use dstack_server::{ProcessVars, Server, Settings};

/// Runs the server until a signal ends it.
///
/// # Errors
/// Why it could not start or go on, with the whole chain of reasons.
pub(crate) fn run(args: &ServerArgs) -> Result<(), String> {
    let mut settings = Settings::from_env(&ProcessVars).map_err(|error| report(&error))?;
    settings.host.clone_from(&args.host);
    settings.port = args.port;
    if let Some(token) = given_token(args.token.as_deref()) {
        settings.admin_token = Some(dstack_backend_types::Secret::new(token.to_owned()));
    }
    let level = if args.debug {
        LogLevel::Debug
    } else {
        args.log_level
    };
    start_log(level, &settings.root_log_level, settings.log_format);
    let workers = std::thread::available_parallelism()
        .map_or(2, std::num::NonZero::get)
        .max(2);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .max_blocking_threads(settings.max_blocking_threads.max(1))
        .thread_stack_size(1024 * 1024)
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(serve(args, settings))
}

/// An empty one would let in everybody; the environment of a service often has empty variables.
fn given_token(text: Option<&str>) -> Option<&str> {
    text.filter(|token| !token.trim().is_empty())
}

async fn serve(args: &ServerArgs, settings: Settings) -> Result<(), String> {
    let plugins = plugins(&settings);
    let server = Server::start(settings.clone(), plugins)
        .await
        .map_err(|error| report(&error))?;
    let url = server.url().to_owned();
    let token = server.admin_token().expose().clone();
    let (before, after) = remember(args, &settings, &url, &token);
    let version = server.version();
    let lines = format!(
        "dstack {}\n\n{before}The admin token is {token}\nThe dstack server {version} is running at {url}\n{after}",
        dstack_cli::version()
    );
    // Nobody may be reading: the server runs all the same.
    drop(
        std::io::stdout()
            .write_all(lines.as_bytes())
            .and_then(|()| std::io::stdout().flush()),
    );
    server
        .run(signal())
        .await
        .map_err(|error| format!("the server ended: {error}"))
}

/// Ends when the process is asked to stop.
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM cannot be listened for");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Where plugins are looked for, the first folder first, and what they may use of this machine.
fn plugins(settings: &Settings) -> PluginsConfig {
    let exe = std::env::current_exe().unwrap_or_default();
    let beside = exe.parent().unwrap_or(Path::new("."));
    let installed = beside.join("../lib/dstack");
    let mut folders: Vec<PathBuf> = settings.plugin_dir.iter().cloned().collect();
    folders.extend([installed.join("backends"), beside.join("backends")]);
    let mut config = PluginsConfig::new(folders);
    config.machine = Some(MachineConfig::beside(
        beside,
        settings.server_dir.join("local"),
    ));
    config
}

/// Tells the client of this user about the server; lines for people, before and after the others.
fn remember(args: &ServerArgs, settings: &Settings, url: &str, token: &str) -> (String, String) {
    let wish = if args.yes {
        Some(true)
    } else if args.no {
        Some(false)
    } else {
        settings.update_default_project
    };
    let name = dstack_server::FIRST_PROJECT;
    match dstack_cli::local_config::remember_server(name, url, token, wish) {
        Ok(Remembered::Updated(path)) => (
            format!("Configuration updated at {}\n\n", path.display()),
            String::new(),
        ),
        Ok(Remembered::Already) => (String::new(), String::new()),
        Ok(Remembered::Left) => (
            String::new(),
            format!(
                "The configuration of the client is as it was; this server is added to it by\n  \
                 dstack project add --name {name} --url {url} --token {token}\n"
            ),
        ),
        Err(error) => {
            tracing::warn!(%error, "the client's configuration was not updated");
            (String::new(), String::new())
        }
    }
}

fn start_log(level: LogLevel, libraries: &str, format: LogFormat) {
    use tracing_subscriber::EnvFilter;
    let own = match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warning => "warn",
        LogLevel::Error => "error",
    };
    let libraries = match libraries {
        "trace" | "debug" | "info" | "warn" => libraries,
        "warning" => "warn",
        _ => "error",
    };
    let filter = EnvFilter::new(format!(
        "{libraries},dstack={own},dstack_server={own},dstack_plugins={own},dstack_store={own},dstack_remote={own},plugin={own}"
    ));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().init(),
        LogFormat::Rich => builder
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .init(),
        LogFormat::Standard => builder.with_ansi(false).with_target(false).init(),
    }
}

/// An error with everything that led to it, a line each.
fn report(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text.push_str(&format!(": {next}"));
        source = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::given_token;

    #[test]
    fn an_empty_token_is_none() {
        assert_eq!(given_token(None), None);
        assert_eq!(given_token(Some("")), None);
        assert_eq!(given_token(Some(" ")), None);
        assert_eq!(given_token(Some("t")), Some("t"));
    }
}
