//! Repositories of jobs.

use serde_json::{Value, json};

use crate::bed::{Bed, job};

/// Makes a repository at `/origin` of the namespace.
const ORIGIN: &str = "mkdir root/origin; cd root/origin; export HOME=$D; git init -q -b main .; git config user.name t; git config user.email t@t; \
    echo one > a; git add a; git commit -qm 1; cd ../..";

fn with_repo(script: &str) -> Value {
    let mut job = job(script);
    job["run"] = json!({"run_spec": {"repo_id": "../conf"}});
    job["job_spec"]["repo_data"] = json!({"repo_type": "remote", "repo_branch": "main", "repo_config_name": "Jane", "repo_config_email": "j@x"});
    job["job_spec"]["repo_dir"] = json!("/workflow");
    job["job_spec"]["working_dir"] = json!("/workflow");
    job["repo_credentials"] = json!({"clone_url": "file:///origin"});
    job
}

#[test]
fn a_remote_repo_is_cloned_for_the_user_with_his_changes() {
    let bed = Bed::with(&["--no-sshd"], ORIGIN);
    let mut job = with_repo(
        "cat a b; git config user.name; git log --oneline | wc -l; stat -c %U .git a; ls -A /tmp/runner",
    );
    job["job_spec"]["user"] = json!({"username": "app"});
    bed.submit(&job);
    let diff = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+mine\ndiff --git a/b b/b\nnew file mode 100644\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+new\n";
    assert_eq!(bed.post("/api/upload_code", diff).text(), "\n");
    bed.run();
    let text = bed.finish().text();
    assert!(text.starts_with("mine\nnew\nJane\n1\napp\napp\n"), "{text}");
    assert!(!text.contains("repo_blobs"), "{text}");
}

#[test]
fn a_repo_that_cannot_be_set_up_fails_the_job_before_it_runs() {
    let bed = Bed::start();
    let outcome = bed.outcome(&with_repo("echo never"));
    let last = outcome.last();
    assert_eq!(
        (outcome.states.len(), last.termination_reason.as_str()),
        (1, "container_exited_with_error")
    );
    assert!(
        last.termination_message
            .starts_with("Failed to set up the repo (git failed "),
        "{last:?}"
    );
}

#[test]
fn without_git_the_message_says_what_to_do() {
    let bed = Bed::with(
        &["--no-sshd"],
        &format!("{NO_GIT}; rm -f root/usr/bin/apt-get root/usr/bin/yum root/sbin/apk"),
    );
    let outcome = bed.outcome(&with_repo("echo never"));
    let message = &outcome.last().termination_message;
    assert!(
        message.contains("git is not installed in the image")
            && message.contains("there is no package manager that is known"),
        "{outcome:?}"
    );
}

const NO_GIT: &str =
    "mkdir -p root/kept; mv root/usr/bin/git root/kept/git; rm -f root/usr/local/bin/git";

#[test]
fn an_image_without_git_gets_it_from_its_distribution() {
    // Stands in for the real one, which needs a network.
    let apt = "printf '#!/bin/sh\\n[ $1 = update ] || { echo $* >/kept/asked; mv /kept/git /usr/bin/git; }\\n' \
        > root/usr/bin/apt-get; chmod 755 root/usr/bin/apt-get";
    let bed = Bed::with(&["--no-sshd"], &format!("{ORIGIN}; {NO_GIT}; {apt}"));
    let outcome = bed.outcome(&with_repo("cat a"));
    assert_eq!(outcome.text(), "one\n", "{outcome:?}");
    assert!(bed.read("/kept/asked").contains(" git "));
}

#[test]
fn uploaded_files_of_a_virtual_repo_are_unpacked() {
    let bed = Bed::start();
    let mut job = job("cat hello; pwd");
    job["job_spec"]["repo_data"] = json!({"repo_type": "virtual"});
    job["job_spec"]["repo_dir"] = json!("sub");
    job["job_spec"]["working_dir"] = json!("/tmp/w");
    job["job_spec"]["commands"][2] = json!("cd sub; cat hello; pwd; echo $DSTACK_REPO_DIR");
    bed.submit(&job);
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(3);
    builder
        .append_data(&mut header, "hello", &b"hi\n"[..])
        .unwrap();
    assert_eq!(
        bed.post("/api/upload_code", &builder.into_inner().unwrap())
            .status,
        200
    );
    bed.run();
    assert_eq!(bed.finish().text(), "hi\n/tmp/w/sub\n/tmp/w/sub\n");
}
