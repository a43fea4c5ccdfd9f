//! The smallest program that plugins can run in: for tests of this crate. `dstack plugin-worker` is the one that ships.

fn main() -> std::process::ExitCode {
    dstack_plugins::run_worker()
}
