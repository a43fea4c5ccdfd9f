//! The conformance suite against a fake of AWS, and against moto.

mod cloud;
mod moto;

use dstack_backend_conformance::Suite;

const CATALOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/catalog");

/// The `.so` that cargo has built beside this test.
fn plugin() -> std::path::PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.with_file_name("libdstack_backend_aws.so")
}

#[test]
fn the_backend_conforms() {
    Suite::new(plugin())
        .config(cloud::config())
        .catalog(CATALOG)
        .provider(cloud::fake().start())
        .run();
}
