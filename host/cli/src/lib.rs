//! The command line: commands, screens, local configuration, attach.
//!
//! Used by the `dstack` binary. Touches the terminal, `~/.dstack`, `~/.ssh/config`, git and the server's HTTP API;
//! never the store, the engine or plugins. It is blocking and has no runtime, so that a command starts in
//! a few milliseconds.
//!
//! ```no_run
//! let args = ["dstack", "ps", "--json"].map(std::ffi::OsString::from);
//! std::process::exit(i32::from(dstack_cli::main(args, &dstack_cli::ClientOnly)));
//! ```

mod args;
mod attach;
mod client;
mod cmd;
mod cx;
mod error;
pub mod local_config;
mod prices;
mod repo;
mod run;
pub mod settings;
mod ssh;
mod ui;
mod view;
mod yaml;

pub use args::command;
pub use cmd::server::{Args as ServerArgs, LogLevel};
pub use error::CliError;
pub use run::{ClientOnly, Local, Surroundings, main, run_in, version};
pub use ui::Terminal;
