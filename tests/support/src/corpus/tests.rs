//! The corpus of this repository, and the shared one where it is.

use std::path::{Path, PathBuf};

use super::{Report, run_folder};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn check(report: &Report, passed: usize, open: usize) {
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} failed:\n{}",
        failed.len(),
        failed.len() + report.passed,
        failed.join("\n")
    );
    assert!(report.passed >= passed, "only {} passed", report.passed);
    assert!(report.open.len() <= open, "open: {:?}", report.open);
    assert_eq!(
        report.refused.len(),
        super::known::REFUSED_QUIRKS.len(),
        "a listed row is not in the vectors: {:?}",
        report.refused
    );
}

#[test]
fn every_edge_and_every_row_gives_the_right_answer() {
    let folder = root().join("tests/contract/config-corpus");
    check(&run_folder(&folder).unwrap(), 1600, 0);
}

/// Has other people's files too, which are not in this repository.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the folder of a developer's machine is set from outside"
)]
fn published_configurations_give_the_right_answer() {
    let shared = std::env::var("DSTACK_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let folder = root().join(shared).join("spec/config-corpus");
    if !folder.is_dir() {
        println!("skipped: no corpus at {}", folder.display());
        return;
    }
    check(&run_folder(&folder).unwrap(), 1800, 6);
}

#[test]
fn a_wrong_answer_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let vectors = folder.path().join("vectors");
    std::fs::create_dir(&vectors).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "vectors/duration.json",
        r#"[{"input": "1m", "output": 61}, {"input": "1m", "error": true}, {"input": "x", "output": 1}, {"input": "1m", "output": 60}]"#,
    );
    write("vectors/unheard-of.json", "[{}]");
    write(
        "a.yml",
        "type: volume\nname: v\nbackend: aws\nregion: r\nsize: 1GB\n",
    );
    write(
        "a.json",
        r#"{"kind": "configuration", "parsed": {"type": "volume"}}"#,
    );
    write("b.yml", "type: task\ncommands: [x]\n");
    write(
        "b.error",
        r#"{"stage": "parse", "path": "commands", "errors": []}"#,
    );
    write("c.yml", "type: task\nnodes: 1\nnode: 1\n");
    write(
        "c.error",
        r#"{"stage": "parse", "path": "nodes", "errors": []}"#,
    );
    let report = run_folder(folder.path()).unwrap();
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        failed,
        [
            "a",
            "b",
            "c",
            "vectors/duration[0]",
            "vectors/duration[1]",
            "vectors/duration[2]",
            "vectors/unheard-of[0]"
        ]
    );
    assert_eq!(report.passed, 1);
}

#[test]
fn what_is_refused_on_purpose_is_told_to_users() {
    let text = std::fs::read_to_string(root().join("host/docs/configuration-differences.md"));
    let text = text.unwrap();
    for (file, input, _) in super::known::REFUSED_QUIRKS {
        // Two inputs are told as one.
        let input = input.replace("\"ab\\n\"", "\"a\\n\"");
        let told = text.lines().any(|line| {
            line.contains(&format!("`{file}`")) && line.contains(&format!("`{input}`"))
        });
        assert!(told, "{file} {input}");
    }
}
