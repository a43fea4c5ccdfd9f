//! The `dstack-runner` binary.

fn main() {}
