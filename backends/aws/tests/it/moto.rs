//! The same file against moto, which answers as AWS does.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use dstack_backend_conformance::Suite;

/// A running server.
struct Bed {
    child: Child,
    url: String,
}

impl Bed {
    fn start() -> Self {
        let test = std::env::current_exe().expect("a test has a path");
        let mut found = test.ancestors().map(|dir| dir.join("moto/bin/python"));
        let python = found
            .find(|python| python.exists())
            .expect("moto is not installed; `cargo xtask test` installs it");
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/moto");
        let mut child = Command::new(python)
            .arg(folder.join("bed.py"))
            .args(["us-east-1", "eu-west-1"])
            .env("MOTO_AMIS_PATH", folder.join("amis.json"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the bed starts");
        let mut port = String::new();
        let output = child.stdout.take().expect("its output is ours");
        BufReader::new(output)
            .read_line(&mut port)
            .expect("the bed says its port first");
        let url = format!("http://127.0.0.1:{}", port.trim());
        Self { child, url }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

#[test]
fn the_backend_conforms_on_moto() {
    let bed = Bed::start();
    Suite::new(crate::plugin())
        .config(crate::cloud::config())
        .catalog(crate::CATALOG)
        .provider(bed.url.as_str())
        .only([
            "create",
            "terminate",
            "volumes",
            "gateways",
            "placement",
            "listing",
        ])
        .run();
}
