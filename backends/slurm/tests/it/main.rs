//! The conformance suite against a cluster that answers over SSH as a real one has.
#![allow(
    clippy::unwrap_used,
    reason = "a test may fail by it, in its helpers too"
)]

mod cluster;

use std::sync::Mutex;

use dstack_backend_conformance::Suite;

/// The `.so` that cargo has built beside this test.
fn plugin() -> std::path::PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.with_file_name("libdstack_backend_slurm.so")
}

#[test]
fn the_backend_conforms() {
    let cluster = Mutex::new(cluster::Cluster::default());
    Suite::new(plugin())
        .config(cluster::config())
        .ssh(move |request, script| cluster.lock().unwrap().answer(request, script))
        .without(
            "container.image",
            "a number sign stands between registry and image there; unit tests look at it",
        )
        .run();
}
