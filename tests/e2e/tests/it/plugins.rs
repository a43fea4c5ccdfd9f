//! The plugin folder: good ones work, a broken one is named, and the server starts all the same.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::{Runtime, task};
use dstack_test_support::server::{TestServer, bin_dir, wait_for};
use serde_json::{Value, json};

#[test]
fn a_broken_plugin_is_named_and_the_others_work() -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let bin = bin_dir();
    for name in ["libdstack_backend_local.so", "libdstack_backend_fake.so"] {
        fs::copy(bin.join(name), folder.path().join(name))?;
    }
    let whole = fs::read(bin.join("libdstack_backend_fake.so"))?;
    fs::write(
        folder.path().join("libdstack_backend_broken.so"),
        whole.get(..whole.len() / 2).unwrap_or_default(),
    )?;
    for entry in fs::read_dir(folder.path())? {
        fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o644))?;
    }
    let locked = Command::new(bin.join("dstack"))
        .args(["backend", "lock"])
        .arg(folder.path())
        .output()?;
    ensure!(
        locked.status.success(),
        "{}",
        String::from_utf8_lossy(&locked.stderr)
    );

    let dir = folder.path().to_string_lossy().into_owned();
    let server = TestServer::start(&[("DSTACK_PLUGIN_DIR", &dir)])?;
    let list: Value = serde_json::from_str(&server.ok(&["backend", "list", "--json"])?)?;
    let plugins = list["plugins"].as_array().cloned().unwrap_or_default();
    let find = |name: &str| {
        plugins
            .iter()
            .find(|plugin| {
                plugin["path"]
                    .as_str()
                    .is_some_and(|path| path.starts_with(&dir) && path.contains(name))
            })
            .cloned()
            .unwrap_or_default()
    };
    for name in ["local", "fake"] {
        let plugin = find(name);
        ensure!(
            plugin["name"] == name && plugin["reason"].is_null() && plugin["sdk"].is_string(),
            "{plugin}"
        );
        ensure!(
            plugin["sha256"]
                .as_str()
                .is_some_and(|hash| hash.len() == 64),
            "{plugin}"
        );
    }
    let broken = find("broken");
    ensure!(broken["state"] == "refused", "{broken}");
    ensure!(
        broken["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("past the end")),
        "{broken}"
    );
    let table = server.ok(&["backend", "list"])?;
    ensure!(
        table.contains("fake") && table.contains("refused"),
        "{table}"
    );
    Ok(())
}

/// A folder that only we may write, with these plugins in it.
fn plugin_folder(names: &[&str]) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    for name in names {
        let file = format!("libdstack_backend_{name}.so");
        put(&bin_dir().join(&file), &folder.path().join(&file))?;
    }
    Ok(folder)
}

/// As an installer does: a whole file appears under its name at once.
fn put(from: &Path, to: &Path) -> Result<()> {
    let aside = to.with_extension("new");
    fs::copy(from, &aside)?;
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o644))?;
    fs::rename(aside, to)?;
    Ok(())
}

fn plugin(server: &TestServer, name: &str) -> Result<Value> {
    let list: Value = serde_json::from_str(&server.ok(&["backend", "list", "--json"])?)?;
    let plugins = list["plugins"].as_array().cloned().unwrap_or_default();
    let found = plugins.iter().find(|plugin| plugin["name"] == name);
    Ok(found.cloned().unwrap_or_default())
}

fn configure(server: &TestServer, config: &str) -> Result<()> {
    fs::create_dir_all(server.home().join(".dstack/server"))?;
    let text = format!("{config}encryption:\n  keys: []\n");
    fs::write(server.home().join(".dstack/server/config.yml"), text)?;
    Ok(())
}

/// Asks the backends of a project for offers.
fn ask_offers(server: &TestServer, project: &str) -> Result<()> {
    let configuration = json!({
        "type": "task", "name": "look", "image": "scratch", "user": "root", "commands": ["true"],
    });
    let spec = json!({"run_name": "look", "configuration": configuration});
    let path = format!("/api/project/{project}/runs/get_plan");
    // Else a project without a fleet is not asked for anything.
    let request = json!({"run_spec": spec, "for_offers_only": true});
    let (status, body) = server.post(&path, &request)?;
    ensure!(status == 200, "{body}");
    Ok(())
}

#[test]
fn a_plugin_outside_the_lock_file_runs_in_a_process_of_its_own() -> Result<()> {
    let folder = plugin_folder(&["fake"])?;
    let dir = folder.path().to_string_lossy().into_owned();
    let mut server = TestServer::prepare(&[("DSTACK_PLUGIN_DIR", &dir)])?;
    configure(
        &server,
        &format!("projects:\n- name: main\n  backends:\n  - type: fake\n    folder: {dir}\n"),
    )?;
    server.spawn()?;
    let fake = plugin(&server, "fake")?;
    ensure!(
        fake["state"] == "loaded" && fake["isolation"] == "process",
        "{fake}"
    );
    let described = server.ok(&["backend", "describe", "fake"])?;
    ensure!(
        described.contains("secret") && described.contains("folder"),
        "{described}"
    );
    let pid = server.pid().unwrap_or_default();
    let children = || -> Result<Vec<String>> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    };
    let workers: Vec<String> = fs::read_dir("/proc")?
        .flatten()
        .filter(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat
                .rsplit(')')
                .next()
                .and_then(|rest| rest.split_whitespace().nth(1).map(str::to_owned));
            let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            parent.is_some_and(|parent| parent == pid.to_string()) && line.contains("plugin-worker")
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    ensure!(workers.len() == 1, "{workers:?} {:?}", children());
    // A server that is killed takes its workers along.
    server.kill()?;
    wait_for("the end of the worker", Duration::from_secs(10), || {
        Ok((!Path::new("/proc").join(&workers[0]).join("exe").exists()).then_some(()))
    })?;
    Ok(())
}

#[test]
fn a_new_file_is_used_without_a_restart_and_a_wrong_section_is_named_with_its_place() -> Result<()>
{
    let folder = plugin_folder(&["local"])?;
    let dir = folder.path().to_string_lossy().into_owned();
    let mut server = TestServer::prepare(&[
        ("DSTACK_PLUGIN_DIR", &dir),
        ("DSTACK_ENABLE_PROMETHEUS_METRICS", "1"),
    ])?;
    configure(
        &server,
        &format!(
            "projects:\n- name: main\n  backends:\n  - type: local\n    runtime: process\n    runtme: docker\n  - type: fake\n    folder: {dir}\n"
        ),
    )?;
    server.spawn()?;
    let log = server.log();
    ensure!(
        log.contains("config.yml:6:5: projects.0.backends.0.runtme")
            && log.contains("did you mean `runtime`?"),
        "{log}"
    );
    ensure!(
        log.contains("config.yml:7:5") && log.contains("no such plugin"),
        "{log}"
    );

    put(
        &bin_dir().join("libdstack_backend_fake.so"),
        &folder.path().join("libdstack_backend_fake.so"),
    )?;
    // Its section of the file waits for it.
    wait_for("the new plugin", Duration::from_secs(20), || {
        let is_loaded = plugin(&server, "fake")?["state"] == "loaded";
        let is_used = server
            .log()
            .contains("the section of config.yml is used now");
        Ok((is_loaded && is_used).then_some(()))
    })?;
    let before = plugin(&server, "fake")?["load"]["calls"].as_u64();
    ask_offers(&server, "main")?;
    let after = plugin(&server, "fake")?["load"]["calls"].as_u64();
    ensure!(after > before, "{before:?} {after:?}");
    fs::remove_file(folder.path().join("libdstack_backend_fake.so"))?;
    let done = server.ok(&["backend", "reload"])?;
    wait_for("the end of the plugin", Duration::from_secs(20), || {
        Ok((plugin(&server, "fake")?["state"] == "removed").then_some(()))
    })
    .with_context(|| done)?;
    let metrics = server.get("/metrics")?;
    ensure!(
        metrics.contains("dstack_backend_usable{backend=\"local\""),
        "{metrics}"
    );
    Ok(())
}

#[test]
fn verify_names_what_is_not_as_it_was_locked() -> Result<()> {
    let folder = plugin_folder(&["fake"])?;
    let dir = folder.path().to_string_lossy().into_owned();
    let run = |args: &[&str]| Command::new(bin_dir().join("dstack")).args(args).output();
    ensure!(run(&["backend", "lock", &dir])?.status.success());
    let good = run(&["backend", "verify", &dir])?;
    ensure!(
        good.status.success(),
        "{}",
        String::from_utf8_lossy(&good.stdout)
    );
    let file = folder.path().join("libdstack_backend_fake.so");
    let mut bytes = fs::read(&file)?;
    bytes.push(0);
    fs::write(&file, bytes)?;
    let bad = run(&["backend", "verify", &dir])?;
    let text = String::from_utf8_lossy(&bad.stdout).into_owned();
    ensure!(
        bad.status.code() == Some(1) && text.contains("is not the file that"),
        "{text}"
    );
    let inspected = run(&["backend", "inspect", &file.to_string_lossy()])?;
    let text = String::from_utf8_lossy(&inspected.stdout).into_owned();
    ensure!(
        inspected.status.success() && text.contains("libc.so.6") && text.contains("fake"),
        "{text}"
    );
    let described = run(&["backend", "describe", &file.to_string_lossy(), "--json"])?;
    let described: Value = serde_json::from_slice(&described.stdout)?;
    ensure!(
        described["manifest"]["name"] == "fake" && described["schema"].is_object(),
        "{described}"
    );
    Ok(())
}

/// Everything that a backend can do wrong, each in a project of its own, while runs go on with another backend.
#[test]
fn fifty_runs_finish_while_a_backend_does_everything_wrong() -> Result<()> {
    const RUNS: usize = 50;
    const MODES: [(&str, &str); 14] = [
        ("null_write", "died of signal 11 (SIGSEGV)"),
        ("abort", "died of signal 6 (SIGABRT)"),
        ("exit", "exited with code 3"),
        ("stack_overflow", "died of signal 6 (SIGABRT)"),
        ("allocation_bomb", "died of signal 6 (SIGABRT)"),
        ("babble", "was killed, since it sent"),
        ("child_left", "died of signal 6 (SIGABRT)"),
        ("endless", "no answer within 5000 ms"),
        ("panic", "a bug in the backend"),
        ("panic_payload", "a payload that is no text"),
        ("refuse_config", "the token is wrong"),
        ("slow_drip", ""),
        ("threads_left", ""),
        (
            "stdout_noise",
            "lines that the backend printed were dropped",
        ),
    ];
    let folder = plugin_folder(&["local", "misbehaving"])?;
    let dir = folder.path().to_string_lossy().into_owned();
    let mut server = TestServer::prepare(&[
        ("DSTACK_PLUGIN_DIR", &dir),
        // For the one that never ends.
        ("DSTACK_BACKEND_DEADLINE_OFFERS", "5"),
    ])?;
    let mut config =
        "projects:\n- name: main\n  backends:\n  - type: local\n    runtime: process\n".to_owned();
    for mode in MODES.iter().map(|(mode, _)| *mode).chain(["good"]) {
        config.push_str(&format!(
            "- name: p-{}\n  backends:\n  - type: misbehaving\n    mode: {mode}\n    folder: {dir}\n",
            mode.replace('_', "-")
        ));
    }
    configure(&server, &config)?;
    server.spawn()?;
    dstack_e2e::fleet(&server, 1)?;
    let path = server.file("t.dstack.yml", &task("t", Runtime::Process, &["true"]))?;

    std::thread::scope(|threads| -> Result<()> {
        let server = &server;
        let runs = threads.spawn(move || -> Result<usize> {
            let mut done = 0;
            for number in 0..RUNS {
                let name = format!("t{number}");
                server.ok(&["apply", "-f", &path, "-n", &name, "-y", "-d"])?;
                let run = server.finished(&name, Duration::from_secs(60))?;
                done += usize::from(run["status"] == "done");
            }
            Ok(done)
        });
        let mut rounds = 0;
        while rounds == 0 || !runs.is_finished() {
            for (mode, _) in MODES {
                ask_offers(server, &format!("p-{}", mode.replace('_', "-")))?;
                // Somebody must succeed now and then, or calls are refused for a while.
                ask_offers(server, "p-good")?;
            }
            rounds += 1;
        }
        let done = runs
            .join()
            .map_err(|_| anyhow::anyhow!("the runs panicked"))??;
        ensure!(done == RUNS, "{done} of {RUNS} runs are done");
        Ok(())
    })?;
    let log = server.log();
    for (mode, words) in MODES {
        ensure!(
            log.lines()
                .any(|line| line.contains("misbehaving") && line.contains(words)),
            "{mode}: nothing in the log says `{words}`"
        );
    }
    let bad = plugin(&server, "misbehaving")?;
    ensure!(
        bad["isolation"] == "process" && bad["load"]["deaths"].as_u64() >= Some(7),
        "{bad}"
    );
    server.stop()?;
    Ok(())
}
