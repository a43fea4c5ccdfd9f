//! Runs with a Git repository: a clone with its changes, an address with branch and commit, logins.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use dstack_e2e::web::Web;
use dstack_e2e::{Runtime, server};
use dstack_test_support::server::TestServer;

fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=Jane", "-c", "user.email=jane@example.com"])
        .args(args)
        .env("HOME", folder)
        .output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "git {args:?}: {error}");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A bare repository with two branches, and a clone of it; both below the server's home.
fn made(server: &TestServer) -> Result<()> {
    let home = server.home();
    git(
        home,
        &["init", "-q", "--bare", "-b", "main", "hub/code.git"],
    )?;
    git(home, &["clone", "-q", "hub/code.git", "clone"])?;
    let clone = home.join("clone");
    git(&clone, &["config", "user.name", "Jane"])?;
    fs::write(clone.join("kept.txt"), "first\n")?;
    fs::write(clone.join(".gitignore"), "*.log\n")?;
    git(&clone, &["checkout", "-q", "-b", "main"])?;
    git(&clone, &["add", "-A"])?;
    git(&clone, &["commit", "-q", "-m", "one"])?;
    git(&clone, &["push", "-q", "-u", "origin", "main"])?;
    git(&clone, &["checkout", "-q", "-b", "side"])?;
    fs::write(clone.join("kept.txt"), "of the side\n")?;
    git(&clone, &["commit", "-q", "-a", "-m", "two"])?;
    git(&clone, &["push", "-q", "origin", "side"])?;
    git(&clone, &["checkout", "-q", "main"])?;
    git(&home.join("hub/code.git"), &["update-server-info"])?;
    Ok(())
}

fn task(name: &str, repos: &str, lines: &[&str]) -> String {
    let text = dstack_e2e::task(name, Runtime::Process, lines);
    format!("{text}repos:\n{repos}")
}

#[test]
fn a_clone_comes_with_all_that_is_different_here() -> Result<()> {
    let server = server(Runtime::Process)?;
    made(&server)?;
    let clone = server.home().join("clone");
    // Not pushed, changed, new, binary, removed, ignored.
    fs::write(clone.join("committed.txt"), "not pushed\n")?;
    git(&clone, &["add", "committed.txt"])?;
    git(&clone, &["commit", "-q", "-m", "here only"])?;
    fs::write(clone.join("kept.txt"), "first\nchanged here\n")?;
    fs::write(clone.join("new file.bin"), [0, 159, 146, 150, 10, 0])?;
    fs::write(clone.join("noise.log"), "x")?;
    let index = fs::read(clone.join(".git/index"))?;
    let lines = [
        "cat kept.txt committed.txt",
        "test $(wc -c < 'new file.bin') = 6",
        "test ! -e noise.log",
        "echo by $(git config user.name) at $(git rev-parse --abbrev-ref HEAD)",
    ];
    let path = server.file("a.yml", &task("with-code", "- clone\n", &lines))?;
    let out = server.ok(&["apply", "-f", &path, "-y"])?;
    ensure!(out.contains("first\nchanged here\nnot pushed"), "{out}");
    ensure!(out.contains("by Jane at main"), "{out}");
    ensure!(
        fs::read(clone.join(".git/index"))? == index,
        "the person's index was touched"
    );

    // Without it, and with a folder that is no clone.
    let lines = ["test ! -e kept.txt", "echo nothing here"];
    let path = server.file("b.yml", &task("without-code", "- clone\n", &lines))?;
    let out = server.ok(&["apply", "-f", &path, "-y", "--no-repo"])?;
    ensure!(out.contains("nothing here"), "{out}");
    let path = server.file("c.yml", &task("no-code", "- /\n", &["true"]))?;
    let out = server.cli(&["apply", "-f", &path, "-y"])?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(
        !out.status.success() && text.contains("no clone") && text.contains("`files`"),
        "{text}"
    );
    Ok(())
}

#[test]
fn an_address_is_cloned_at_its_branch_or_commit_with_the_kept_login() -> Result<()> {
    let server = server(Runtime::Process)?;
    made(&server)?;
    // The token is `s3cret`, which Git sends with the name `anything`.
    let web = Web::start(
        &server.home().join("hub"),
        Some("Basic YW55dGhpbmc6czNjcmV0"),
    )?;
    let url = format!("http://127.0.0.1:{}/code.git", web.port());
    let side = task(
        "side",
        &format!("- {{url: '{url}', branch: side, path: code}}\n"),
        &["cat code/kept.txt"],
    );
    let path = server.file("side.yml", &side)?;

    let out = server.cli(&["apply", "-f", &path, "-y"])?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(
        !out.status.success() && text.contains("dstack init"),
        "{text}"
    );
    let out = server.cli(&["init", "-P", &url, "-t", "wrong"])?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(
        !out.status.success() && text.contains("does not open") && !text.contains("wrong"),
        "{text}"
    );
    let out = server.ok(&["init", "-P", &url, "-t", "s3cret"])?;
    ensure!(out.contains(&url) && !out.contains("s3cret"), "{out}");

    let out = server.ok(&["apply", "-f", &path, "-y"])?;
    ensure!(out.contains("of the side"), "{out}");
    let first = git(&server.home().join("clone"), &["rev-parse", "main"])?;
    let out = server.ok(&[
        "apply",
        "-f",
        &path,
        "-y",
        "-n",
        "at-commit",
        "--repo-hash",
        &first,
    ])?;
    ensure!(
        out.contains("first") && !out.contains("of the side"),
        "{out}"
    );
    let out = server.cli(&["apply", "-f", &path, "-y", "--repo-branch", "none"])?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(text.contains("has no branch none"), "{text}");

    // Another place by an option, with the path of the file.
    let hub = format!("file://{}", server.home().join("hub/code.git").display());
    let out = server.ok(&["apply", "-f", &path, "-y", "-n", "by-option", "-P", &hub])?;
    ensure!(out.contains("first"), "{out}");
    ensure!(
        !server.log().contains("s3cret"),
        "the token is in the server's log"
    );
    Ok(())
}
