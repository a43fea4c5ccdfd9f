//! The conformance suite against a fake of the provider, and the rows of the catalog.

mod cloud;

use dstack_backend_conformance::Suite;

/// The `.so` that cargo has built beside this test.
fn plugin() -> std::path::PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.with_file_name("libdstack_backend___name__.so")
}

#[test]
fn the_backend_conforms() {
    Suite::new(plugin())
        .config(cloud::config())
        .provider(cloud::fake().start())
        .run();
}

#[test]
fn the_rows_of_the_catalog_make_sense() {
    let rows = include_str!("../../src/offers.csv");
    assert_eq!(dstack_backend_sdk::offers::defects(rows), [] as [&str; 0]);
}
