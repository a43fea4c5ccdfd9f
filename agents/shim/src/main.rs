//! The `dstack-shim` binary.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Before anything starts a thread: the keeper forks and unshares namespaces.
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == dstack_shim::KEEPER_COMMAND)
    {
        return dstack_shim::run_keeper();
    }
    let args = dstack_shim::Args::parse();
    if args.build {
        return match writeln!(std::io::stdout(), "{}", env!("CARGO_PKG_VERSION")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    if args.version {
        return match writeln!(std::io::stdout(), "{}", dstack_shim::VERSION_LINE) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            drop(writeln!(std::io::stderr(), "{err:#}"));
            ExitCode::FAILURE
        }
    }
}

fn start(args: dstack_shim::Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = runtime.block_on(dstack_shim::run(args));
    // A blocking helper, for example a hanging probe of a device, must not keep the shim from ending.
    runtime.shutdown_background();
    result
}
