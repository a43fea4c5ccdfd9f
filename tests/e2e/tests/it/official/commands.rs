//! The official client's commands, as a user types them.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::{Runtime, task};
use dstack_test_support::server::{ADMIN_TOKEN, TestServer, wait_for};

use super::{PATIENCE, both_backends, installed};

/// The official command-line client with a home of its own, logged in to a server.
struct Official<'a> {
    server: &'a TestServer,
    home: tempfile::TempDir,
}

impl<'a> Official<'a> {
    fn new(server: &'a TestServer) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("dstack-user.").tempdir()?;
        // It asks once a day for a newer release of itself.
        let cache = home.path().join(".cache/.dstack/cli");
        fs::create_dir_all(&cache)?;
        fs::write(cache.join("last_check"), "")?;
        let official = Self { server, home };
        let url = server.url();
        official.ok(&[
            "project",
            "add",
            "--name",
            "main",
            "--url",
            &url,
            "--token",
            ADMIN_TOKEN,
            "-y",
        ])?;
        Ok(official)
    }

    fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(installed("dstack")?);
        command
            .args(args)
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            // Wide enough for every table.
            .env("COLUMNS", "250")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        for name in ["DSTACK_PROJECT", "DSTACK_TOKEN", "DSTACK_SERVER_URL"] {
            command.env_remove(name);
        }
        Ok(command)
    }

    fn run(&self, args: &[&str]) -> Result<(Output, String)> {
        let output = self.command(args)?.output()?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((output, text))
    }

    /// Runs a command that must succeed; what it prints.
    fn ok(&self, args: &[&str]) -> Result<String> {
        let (output, text) = self.run(args)?;
        ensure!(
            output.status.success(),
            "dstack {args:?} ended with {}\n{text}\n{}",
            output.status,
            self.server.log()
        );
        Ok(text)
    }

    /// Runs a command that must succeed and print these words.
    fn says(&self, args: &[&str], words: &[&str]) -> Result<String> {
        let text = self.ok(args)?;
        for word in words {
            ensure!(
                text.contains(word),
                "dstack {args:?} does not say {word}:\n{text}"
            );
        }
        Ok(text)
    }

    /// Runs a command that must fail, with exit code 1 and these words.
    fn fails(&self, args: &[&str], words: &str) -> Result<()> {
        let (output, text) = self.run(args)?;
        ensure!(
            output.status.code() == Some(1) && text.contains(words),
            "dstack {args:?} ended with {}, wanted are 1 and {words}:\n{text}",
            output.status
        );
        ensure!(!text.contains("Traceback"), "dstack {args:?}:\n{text}");
        Ok(())
    }

    fn file(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.home.path().join(name), text)?)
    }

    /// A command that goes on; its output goes to a file.
    fn start(&self, args: &[&str]) -> Result<(Child, std::path::PathBuf)> {
        let path = self.home.path().join("output");
        let file = fs::File::create(&path)?;
        let mut command = self.command(args)?;
        let child = command.stdout(file.try_clone()?).stderr(file).spawn()?;
        Ok((child, path))
    }
}

const POOL: &str = "type: fleet\nname: pool\nnodes: 0..1\nidle_duration: 10m\nregions: [local]\n";

/// A short task: the client arrives when it is over, and gets its log and exit code all the same.
#[test]
fn an_attached_apply_shows_the_log_of_a_short_task() -> Result<()> {
    let cloud = tempfile::tempdir()?;
    let server = both_backends("docker", cloud.path(), &[])?;
    let official = Official::new(&server)?;
    official.file("pool.dstack.yml", POOL)?;
    official.says(&["apply", "-f", "pool.dstack.yml", "-y"], &["pool"])?;
    let short = task(
        "short",
        Runtime::Docker,
        &["echo hello from $DSTACK_RUN_NAME"],
    );
    official.file("short.dstack.yml", &short)?;
    official.says(
        &["apply", "-f", "short.dstack.yml", "-y"],
        &["hello from short", "Exited (0)"],
    )?;
    official.says(&["logs", "short"], &["hello from short"])?;
    let bad = task("bad", Runtime::Docker, &["exit 3"]);
    official.file("bad.dstack.yml", &bad)?;
    official.fails(&["apply", "-f", "bad.dstack.yml", "-y"], "")?;
    Ok(())
}

/// An attached apply and a second attach, both over SSH into the container, and the user's own `ssh`.
#[test]
fn the_client_attaches_over_ssh() -> Result<()> {
    let cloud = tempfile::tempdir()?;
    let server = both_backends("docker", cloud.path(), &[])?;
    let official = Official::new(&server)?;
    official.file("pool.dstack.yml", POOL)?;
    official.ok(&["apply", "-f", "pool.dstack.yml", "-y", "-d"])?;
    let lines = [
        "echo first words",
        "while [ ! -e /tmp/stop ]; do sleep 1; done",
        "echo last words",
    ];
    official.file("live.dstack.yml", &task("live", Runtime::Docker, &lines))?;
    let (mut child, path) = official.start(&["apply", "-f", "live.dstack.yml", "-y"])?;
    let said = || fs::read_to_string(&path).unwrap_or_default();
    wait_for("the first words", PATIENCE, || {
        ensure!(child.try_wait()?.is_none(), "it ended: {}", said());
        Ok(said().contains("first words").then_some(()))
    })
    .with_context(|| format!("{}\n{}", said(), server.log()))?;
    official.says(&["ps"], &["live", "running"])?;
    let config = official.home.path().join(".dstack/ssh/config");
    let inside = Command::new("ssh")
        .arg("-F")
        .arg(config)
        .args(["live", "echo inside; touch /tmp/stop"])
        .env("HOME", official.home.path())
        .stdin(Stdio::null())
        .output()?;
    let error = String::from_utf8_lossy(&inside.stderr).into_owned();
    ensure!(inside.status.success(), "ssh: {error}");
    ensure!(inside.stdout == b"inside\n", "{inside:?}");
    let status = child.wait()?;
    ensure!(status.success(), "{status}: {}", said());
    ensure!(said().contains("last words"), "{}", said());
    official.fails(&["attach", "nothing"], "not found")?;
    Ok(())
}

/// What every command prints, in the order in which a user comes to it.
#[test]
fn commands_do_what_they_say() -> Result<()> {
    let cloud = tempfile::tempdir()?;
    let server = both_backends("process", cloud.path(), &[])?;
    let official = Official::new(&server)?;
    let url = server.url();
    projects(&official, &url)?;
    official.says(&["ps"], &["NAME"])?;
    official.file("pool.dstack.yml", POOL)?;
    official.says(
        &["apply", "-f", "pool.dstack.yml", "-y"],
        &["Fleet pool does not exist yet", "pool"],
    )?;
    official.says(&["fleet"], &["pool"])?;
    official.says(&["fleet", "get", "pool", "--json"], &["\"name\": \"pool\""])?;
    official.says(
        &["apply", "-f", "pool.dstack.yml", "-y"],
        &["No configuration changes detected"],
    )?;
    official.says(&["offer"], &["local", "fake:"])?;
    official.says(&["offer", "--json"], &["\"total_offers\""])?;
    official.says(&["offer", "--group-by", "gpu"], &["A10"])?;
    runs(&official)?;
    secrets_and_events(&official)?;
    volumes_and_gateways(&official)?;
    exports(&official)?;
    official.says(&["fleet", "delete", "pool", "-y"], &["deleted"])?;
    official.fails(&["fleet", "delete", "pool", "-y"], "does not exist")?;
    Ok(())
}

fn projects(official: &Official<'_>, url: &str) -> Result<()> {
    official.says(&["project", "list", "-v"], &["main", url, "admin"])?;
    let add = |name: &'static str, token: &'static str| {
        [
            "project", "add", "--name", name, "--url", url, "--token", token, "-y",
        ]
        .map(str::to_owned)
    };
    for (name, token, words) in [
        ("main", "wrong", "is denied"),
        ("nowhere", ADMIN_TOKEN, "404"),
    ] {
        let args = add(name, token);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        official.fails(&args, words)?;
    }
    official.fails(&["login", "--url", url], "No SSO providers")?;
    Ok(())
}

fn runs(official: &Official<'_>) -> Result<()> {
    let hello = task(
        "hello",
        Runtime::Process,
        &["echo hello from $DSTACK_RUN_NAME"],
    );
    official.file("hello.dstack.yml", &hello)?;
    let apply = ["apply", "-f", "hello.dstack.yml", "-y", "-d"];
    official.says(&apply, &["Run hello submitted, detaching"])?;
    official.server.finished("hello", PATIENCE)?;
    official.says(&["logs", "hello"], &["hello from hello"])?;
    official.says(&["logs", "-d", "hello"], &[])?;
    official.says(&["ps"], &["hello", "exited (0)"])?;
    official.says(&["ps", "-a", "-v"], &["hello"])?;
    official.says(&["ps", "--json"], &["\"run_name\":\"hello\""])?;
    official.says(
        &["run", "get", "hello", "--json"],
        &["\"status\": \"done\""],
    )?;
    official.says(&["metrics", "hello"], &["cpu"])?;
    official.says(&["stop", "hello", "-y"], &["Stopped"])?;
    for args in [
        ["logs", "nope"].as_slice(),
        &["stop", "nope", "-y"],
        &["run", "get", "nope", "--json"],
    ] {
        official.fails(args, "not found")?;
    }
    let nowhere = hello
        .replace("x86:1..", "x86:512..")
        .replace("name: hello", "name: nowhere");
    official.file("nowhere.dstack.yml", &nowhere)?;
    official.fails(&["apply", "-f", "nowhere.dstack.yml", "-y"], "no capacity")?;
    // Files of the user come along.
    official.file("notes.txt", "taken along\n")?;
    let files = task("files", Runtime::Process, &["cat notes.txt"]) + "files:\n- notes.txt\n";
    official.file("files.dstack.yml", &files)?;
    official.says(
        &["apply", "-f", "files.dstack.yml", "-y", "-d"],
        &["submitted"],
    )?;
    let run = official.server.finished("files", PATIENCE)?;
    ensure!(run["status"] == "done", "{run}");
    official.says(&["logs", "files"], &["taken along"])?;
    // A dev environment, replaced and stopped.
    let dev = "type: dev-environment\nname: dev\nide: vscode\nresources:\n  cpu: x86:1..\n  memory: 100MB..\n  disk: 1GB..\n";
    official.file("dev.dstack.yml", dev)?;
    official.says(
        &["apply", "-f", "dev.dstack.yml", "-y", "-d"],
        &["Run dev submitted"],
    )?;
    wait_for("the dev environment", PATIENCE, || {
        Ok((official.server.run("dev")?["status"] == "running").then_some(()))
    })?;
    official.says(&["stop", "dev", "-x", "-y"], &["Aborted"])?;
    let run = official.server.finished("dev", PATIENCE)?;
    ensure!(run["termination_reason"] == "aborted_by_user", "{run}");
    official.says(&["delete", "-f", "dev.dstack.yml", "-y"], &[])?;
    official.fails(&["run", "get", "dev", "--json"], "not found")?;
    repos(official)
}

/// A folder without a remote is no repository for `init`.
fn repos(official: &Official<'_>) -> Result<()> {
    let home = official.home.path();
    let git = |args: &[&str]| -> Result<()> {
        let done = Command::new("git")
            .current_dir(home.join("code"))
            .env("HOME", home)
            .args(args)
            .output()?;
        ensure!(done.status.success(), "git {args:?}: {done:?}");
        Ok(())
    };
    fs::create_dir_all(home.join("code"))?;
    git(&["init", "-q", "-b", "main"])?;
    official.fails(&["init", "--repo", "code"], "No remote branch")?;
    Ok(())
}

fn secrets_and_events(official: &Official<'_>) -> Result<()> {
    official.says(&["secret", "set", "KEY", "one"], &["OK"])?;
    official.says(&["secret", "list"], &["KEY", "******"])?;
    official.says(&["secret", "get", "KEY"], &["KEY", "one"])?;
    official.says(&["secret", "delete", "KEY", "-y"], &[])?;
    official.fails(&["secret", "get", "KEY"], "")?;
    official.says(
        &["event", "list"],
        &["Secret created", "Secret deleted", "[👤admin]"],
    )?;
    official.says(
        &["event", "list", "--target-run", "hello", "--since", "1h"],
        &[
            "Run submitted. Status: SUBMITTED",
            "Run status changed TERMINATING -> DONE",
        ],
    )?;
    official.says(
        &["event", "list", "--within-fleet", "pool"],
        &["Fleet created. Status: ACTIVE"],
    )?;
    Ok(())
}

fn volumes_and_gateways(official: &Official<'_>) -> Result<()> {
    official.file(
        "data.dstack.yml",
        "type: volume\nname: data\nbackend: aws\nregion: eu-west-1\nsize: 10GB\n",
    )?;
    official.fails(
        &["apply", "-f", "data.dstack.yml", "-y"],
        "Backend not available",
    )?;
    official.says(&["volume", "list"], &["data", "failed"])?;
    official.says(
        &["volume", "get", "data", "--json"],
        &["\"name\": \"data\""],
    )?;
    official.says(&["volume", "delete", "data", "-y"], &["deleted"])?;
    official.fails(&["volume", "delete", "gone", "-y"], "")?;
    official.file(
        "gate.dstack.yml",
        "type: gateway\nname: gate\nbackend: aws\nregion: eu-west-1\ndomain: example.com\n",
    )?;
    official.fails(
        &["apply", "-f", "gate.dstack.yml", "-y"],
        "Backend not available",
    )?;
    official.says(&["gateway", "list"], &["NAME"])?;
    official.says(&["gateway", "list", "--json"], &["\"gateways\""])?;
    official.fails(&["gateway", "get", "gate", "--json"], "")?;
    Ok(())
}

fn exports(official: &Official<'_>) -> Result<()> {
    let project = serde_json::json!({"project_name": "other"});
    let (status, made) = official.server.post("/api/projects/create", &project)?;
    ensure!(status == 200, "{made}");
    let key = official.home.path().join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .status()?;
    ensure!(made.success(), "ssh-keygen");
    official.file(
        "metal.dstack.yml",
        "type: fleet\nname: metal\nssh_config:\n  user: u\n  identity_file: key\n  hosts: [192.0.2.7]\n",
    )?;
    official.says(&["apply", "-f", "metal.dstack.yml", "-y", "-d"], &["metal"])?;
    let create = [
        "export",
        "create",
        "lent",
        "--importer",
        "other",
        "--fleet",
        "metal",
    ];
    official.says(&create, &["lent"])?;
    official.says(&["export", "list"], &["lent", "metal", "other"])?;
    official.says(
        &["export", "update", "lent", "--remove-importer", "other"],
        &["lent"],
    )?;
    official.says(&["export", "delete", "lent", "-y"], &[])?;
    official.ok(&["fleet", "delete", "metal", "-y"])?;
    Ok(())
}
