//! The `dstack` binary: `server` starts the server, `plugin-worker` is a plugin's process, `backend inspect` and others look at
//! plugin files, everything else is the client.
//!
//! It maps arguments to calls and errors to an exit code, and must not do anything else.

mod local;
mod start;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    // Scripts ask for the version often: before the tree of commands is built.
    if let [_, only] = args.as_slice()
        && (only == "--version" || only == "-v")
    {
        return say(&dstack_cli::version());
    }
    // A server's child: nothing of this program is needed but the loader.
    if let [_, only] = args.as_slice()
        && only == dstack_plugins::WORKER_ARGUMENT
    {
        return dstack_plugins::run_worker();
    }
    ExitCode::from(dstack_cli::main(args, &local::Host))
}

fn say(text: &str) -> ExitCode {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
