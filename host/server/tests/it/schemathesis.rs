//! `schemathesis` reads our OpenAPI document and sends what it says, and almost what it says: no answer of 500, none that
//! the document does not know.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::client::{ADMIN, TestServer};

/// Cases of each operation, beside those that try every keyword; `DSTACK_SCHEMATHESIS_EXAMPLES` is another number.
const EXAMPLES: &str = "8";

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,ignored_auth";

/// Where `cargo xtask test` keeps the program: in the folder that is built into.
fn program() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let mut places = exe.ancestors().map(|dir| dir.join("schemathesis/bin/st"));
    let found = places.find(|program| program.exists());
    found.expect("no schemathesis; `cargo xtask test` installs it")
}

#[test]
fn the_api_does_what_its_document_says() {
    let examples = std::env::var("DSTACK_SCHEMATHESIS_EXAMPLES");
    let examples = examples.unwrap_or_else(|_| EXAMPLES.to_owned());
    let server = TestServer::start(&[
        ("DSTACK_SERVER_SSHPROXY_ADDRESS", "proxy.example:2222"),
        ("DSTACK_SSHPROXY_API_TOKEN", ADMIN),
        ("DSTACK_ENABLE_PROMETHEUS_METRICS", ""),
    ]);
    let config = server.folder.path().join("schemathesis.toml");
    std::fs::write(&config, "[parameters]\n\"path.project_name\" = \"main\"\n").unwrap();
    let output = Command::new(program())
        .arg("--config-file")
        .arg(&config)
        .args(["run", &format!("{}/api/openapi.json", server.url)])
        .args(["--header", &format!("Authorization: Bearer {ADMIN}")])
        .args(["--checks", CHECKS, "--max-examples", &examples])
        .args(["--phases", "coverage,fuzzing", "--continue-on-failure"])
        .args([
            "--seed",
            "7",
            "--generation-database",
            "none",
            "--no-shrink",
        ])
        .args(["--suppress-health-check", "all", "--warnings", "off"])
        .args(["--request-timeout", "60", "--no-color"])
        .current_dir(server.folder.path())
        .env("HOME", server.folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    let cases = cases(&text);
    assert!(cases.is_some_and(|count| count > 2000), "{text}");
    assert_eq!(server.panics(), 0);
    // Whoever was deleted, changed or logged out on the way: the admin was not.
    assert_eq!(
        server.post("/api/users/get_my_user", Value::Null).status,
        200
    );
}

/// `1,234 generated`
fn cases(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(" generated"))?;
    let before = line.split(" generated").next()?;
    let digits: String = before.split_whitespace().last()?.replace(',', "");
    digits.parse().ok()
}
