//! What must not compile.

use std::process::Command;

#[test]
fn a_backend_that_aborts_on_panic_does_not_compile() {
    // The flag reaches the backend's own crate only, so that nothing else is built anew.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "rustc",
            "--quiet",
            "--package",
            "dstack-backend-misbehaving",
            "--lib",
            "--",
            "-C",
            "panic=abort",
        ])
        .current_dir(std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("must be built with panic = \"unwind\""),
        "{text}"
    );
}
