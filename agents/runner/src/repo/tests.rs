use super::*;
use std::fs;

/// A repository with two commits on `main` and one on `side`.
struct Bed {
    dir: tempfile::TempDir,
    children: Children,
    account: Account,
}

impl Bed {
    fn new() -> Self {
        let bed = Self {
            dir: tempfile::tempdir().unwrap(),
            children: Children::default(),
            account: Account::default(),
        };
        fs::create_dir(bed.path("origin")).unwrap();
        fs::create_dir(bed.path("temp")).unwrap();
        bed.sh(
            "origin",
            "git init -q -b main . && git config user.name t && git config user.email t@t
             echo one > a; git add a; git commit -qm 1; echo two > a; mkdir d; echo x > d/x; chmod +x d/x; git add .; git commit -qm 2
             git checkout -q -b side HEAD^; echo side > s; git add s; git commit -qm s; git checkout -q main",
        );
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn sh(&self, dir: &str, script: &str) -> String {
        let mut command = Command::new("sh");
        command
            .args(["-ec", script])
            .current_dir(self.path(dir))
            .env("HOME", self.dir.path());
        let output = self.children.output(&mut command).unwrap();
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn set_up(
        &self,
        data: &RepoData,
        blob: Option<&[u8]>,
        exists_action: Option<&str>,
    ) -> Result<(), RepoError> {
        let blob = blob.map(|bytes| {
            fs::write(self.path("blob"), bytes).unwrap();
            self.path("blob")
        });
        let clone_url = format!("file://{}", self.path("origin").display());
        set_up(&Checkout {
            data,
            credentials: Some(&RepoCredentials {
                clone_url,
                ..RepoCredentials::default()
            }),
            is_single_branch: false,
            exists_action,
            dir: &self.path("work"),
            blob,
            temp: &self.path("temp"),
            home: self.dir.path(),
            account: &self.account,
            children: &self.children,
            may_install: false,
        })
    }
}

fn remote(branch: Option<&str>, hash: Option<&str>) -> RepoData {
    RepoData {
        repo_type: "remote".to_owned(),
        repo_branch: branch.map(str::to_owned),
        repo_hash: hash.map(str::to_owned),
        repo_config_name: Some("Jane".to_owned()),
        repo_config_email: Some("jane@example.com".to_owned()),
        ..RepoData::default()
    }
}

#[test]
fn a_branch_is_checked_out_with_the_users_name() {
    let bed = Bed::new();
    bed.set_up(&remote(Some("side"), None), None, None).unwrap();
    assert_eq!(
        bed.sh(
            "work",
            "git branch --show-current; cat s; git config user.name; git config user.email"
        ),
        "side\nside\nJane\njane@example.com"
    );
    assert_eq!(bed.sh("temp", "ls -A"), "", "credentials are removed");
}

#[test]
fn without_a_branch_the_remotes_head_is_taken() {
    let bed = Bed::new();
    bed.set_up(&remote(None, None), None, None).unwrap();
    assert_eq!(
        bed.sh("work", "git branch --show-current; cat a"),
        "main\ntwo"
    );
}

#[test]
fn the_head_of_a_branch_keeps_the_branch_and_another_commit_is_detached() {
    let bed = Bed::new();
    let head = bed.sh("origin", "git rev-parse main");
    bed.set_up(&remote(Some("main"), Some(&head)), None, None)
        .unwrap();
    assert_eq!(bed.sh("work", "git branch --show-current"), "main");
    let old = bed.sh("origin", "git rev-parse main^");
    fs::remove_dir_all(bed.path("work")).unwrap();
    bed.set_up(&remote(Some("main"), Some(&old)), None, None)
        .unwrap();
    assert_eq!(
        bed.sh(
            "work",
            "git branch --show-current; git rev-parse HEAD; cat a"
        ),
        format!("{old}\none")
    );
}

#[test]
fn a_diff_creates_changes_renames_and_deletes() {
    let bed = Bed::new();
    let diff = bed.sh(
        "origin",
        "echo mine > a; git mv d/x moved; echo new > n; chmod 755 n; printf '\\000\\001bin' > b; git add -A; git diff --binary HEAD; git reset -q --hard",
    ) + "\n";
    bed.set_up(&remote(Some("main"), None), Some(diff.as_bytes()), None)
        .unwrap();
    assert_eq!(
        bed.sh(
            "work",
            "cat a moved n; test -x n; test ! -e d/x; test -x moved; od -An -tx1 b"
        ),
        "mine\nx\nnew\n 00 01 62 69 6e"
    );
}

#[test]
fn an_empty_diff_changes_nothing() {
    let bed = Bed::new();
    bed.set_up(&remote(Some("main"), None), Some(b""), None)
        .unwrap();
    assert_eq!(bed.sh("work", "git status --porcelain"), "");
}

#[test]
fn a_directory_in_use_is_kept_or_an_error() {
    let bed = Bed::new();
    fs::create_dir(bed.path("work")).unwrap();
    fs::write(bed.path("work/mine"), "x").unwrap();
    for action in [None, Some("skip")] {
        bed.set_up(&remote(None, None), None, action).unwrap();
        assert_eq!(bed.sh("work", "ls -A"), "mine");
    }
    let error = bed
        .set_up(&remote(None, None), None, Some("error"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        format!("repo dir is not empty: {}", bed.path("work").display())
    );
}

#[test]
fn the_root_of_a_disk_counts_as_empty() {
    let bed = Bed::new();
    fs::create_dir_all(bed.path("work/lost+found/f")).unwrap();
    bed.set_up(&remote(None, None), None, Some("error"))
        .unwrap();
    assert_eq!(bed.sh("work", "cat a; ls lost+found"), "two\nf");
}

#[test]
fn files_of_a_local_repo_come_from_a_tar_and_without_one_nothing_is_made() {
    let bed = Bed::new();
    let virtual_repo = RepoData {
        repo_type: "virtual".to_owned(),
        ..RepoData::default()
    };
    bed.set_up(&virtual_repo, None, None).unwrap();
    assert!(!bed.path("work").exists());
    bed.sh("origin", "tar -cf ../t.tar --exclude=.git .");
    let tar = fs::read(bed.path("t.tar")).unwrap();
    let local = RepoData {
        repo_type: "local".to_owned(),
        ..RepoData::default()
    };
    bed.set_up(&local, Some(&tar), None).unwrap();
    assert_eq!(bed.sh("work", "cat a; test -x d/x"), "two");
}

#[test]
fn what_cannot_be_cloned_is_told_without_credentials() {
    let bed = Bed::new();
    let kind = RepoData {
        repo_type: "cvs".to_owned(),
        ..RepoData::default()
    };
    assert_eq!(
        bed.set_up(&kind, None, None).unwrap_err().to_string(),
        "unknown RepoType: cvs"
    );
    let credentials = RepoCredentials {
        clone_url: "https://127.0.0.1:9/x.git".to_owned(),
        oauth_token: Some("hunter2".into()),
        ..RepoCredentials::default()
    };
    let login = Login::write(&bed.path("temp"), &credentials).unwrap();
    let config = fs::read_to_string(login.dir.join("config")).unwrap();
    assert!(
        config.contains("[http \"https://127.0.0.1:9/\"]\n\textraHeader = Authorization: Basic "),
        "{config}"
    );
    let error = bed
        .children
        .run(
            login
                .git(bed.dir.path())
                .args(["ls-remote", &credentials.clone_url]),
        )
        .unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    drop(login);
    assert_eq!(bed.sh("temp", "ls -A"), "");
}

#[test]
fn the_user_of_an_ssh_url_is_git() {
    assert_eq!(ssh_user("ssh://host:22/p.git"), "ssh://git@host:22/p.git");
    assert_eq!(ssh_user("ssh://me@host/p.git"), "ssh://me@host/p.git");
    assert_eq!(ssh_user("https://host/p.git"), "https://host/p.git");
}

#[test]
fn a_password_in_the_url_is_not_told() {
    let error = io::Error::other("git failed: unable to access 'https://me:hunter2@host/p.git/'");
    let told = hide_login(&error, "https://me:hunter2@host/p.git").to_string();
    assert_eq!(
        told,
        "git failed: unable to access 'https://***@host/p.git/'"
    );
}
