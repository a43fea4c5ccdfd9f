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
pub(crate) fn plugin_folder(names: &[&str]) -> Result<tempfile::TempDir> {
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

pub(crate) fn plugin(server: &TestServer, name: &str) -> Result<Value> {
    let list: Value = serde_json::from_str(&server.ok(&["backend", "list", "--json"])?)?;
    let plugins = list["plugins"].as_array().cloned().unwrap_or_default();
    let found = plugins.iter().find(|plugin| plugin["name"] == name);
    Ok(found.cloned().unwrap_or_default())
}

pub(crate) fn configure(server: &TestServer, config: &str) -> Result<()> {
    fs::create_dir_all(server.home().join(".dstack/server"))?;
    let text = format!("{config}encryption:\n  keys: []\n");
    fs::write(server.home().join(".dstack/server/config.yml"), text)?;
    Ok(())
}

/// Asks the backends of a project for offers.
pub(crate) fn ask_offers(server: &TestServer, project: &str) -> Result<()> {
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
    // Its section of the file waits for it, and is used by itself.
    wait_for("the new plugin", Duration::from_secs(20), || {
        let is_loaded = plugin(&server, "fake")?["state"] == "loaded";
        let is_used = server.log().contains("sections of config.yml are used now");
        Ok((is_loaded && is_used).then_some(()))
    })?;
    let before = plugin(&server, "fake")?["load"]["calls"].as_u64();
    ask_offers(&server, "main")?;
    let after = plugin(&server, "fake")?["load"]["calls"].as_u64();
    ensure!(after > before, "{before:?} {after:?}");
    fs::remove_file(folder.path().join("libdstack_backend_fake.so"))?;
    // The section with the wrong key is tried again and named.
    let done = server.cli(&["backend", "reload"])?;
    let done = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure!(done.contains("config.yml:6:5"), "{done}");
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

#[test]
fn a_section_that_was_corrected_is_used_at_a_reload_and_one_that_is_wrong_now_stays_as_it_was()
-> Result<()> {
    let folder = plugin_folder(&["local", "fake"])?;
    let dir = folder.path().to_string_lossy().into_owned();
    let mut server = TestServer::prepare(&[("DSTACK_PLUGIN_DIR", &dir)])?;
    let sections = |main: &str, team: &str| {
        format!(
            "projects:\n- name: main\n  backends:\n  - type: fake\n    {main}\n- name: team\n  backends:\n  - type: fake\n    {team}\n"
        )
    };
    let good = format!("folder: {dir}");
    configure(&server, &sections("foldr: nowhere", &good))?;
    server.spawn()?;
    // Nothing was corrected: the same again.
    let again = server.cli(&["backend", "reload"])?;
    let text = String::from_utf8_lossy(&again.stdout).into_owned();
    ensure!(
        again.status.code() == Some(1) && text.contains("config.yml:5:5: projects.0.backends.0"),
        "{text}"
    );
    let calls =
        || -> Result<Option<u64>> { Ok(plugin(&server, "fake")?["load"]["calls"].as_u64()) };

    configure(&server, &sections(&good, &good))?;
    let before = calls()?;
    let text = server.ok(&["backend", "reload"])?;
    ensure!(text.trim() == "configured: main/fake", "{text}");
    ensure!(calls()? > before, "it was not asked");
    let before = calls()?;
    let text = server.ok(&["backend", "reload"])?;
    ensure!(
        text.trim() == "nothing has changed" && calls()? == before,
        "what is used as it stands there is not asked again: {text}"
    );
    ask_offers(&server, "main")?;
    ensure!(calls()? > before, "the corrected section is used");

    // What is wrong now stays as it was, and so does everything if the file cannot be read at all.
    for (main, words) in [("foldr: nowhere", "config.yml:5:5"), ("[", "config.yml")] {
        configure(&server, &sections(main, &good))?;
        let bad = server.cli(&["backend", "reload", "--json"])?;
        let answer: Value = serde_json::from_slice(&bad.stdout)?;
        ensure!(
            bad.status.code() == Some(1)
                && answer["problems"][0]
                    .as_str()
                    .is_some_and(|line| line.contains(words)),
            "{answer}"
        );
        let before = calls()?;
        ask_offers(&server, "main")?;
        ensure!(calls()? > before, "the backend stays");
    }
    // A section that is gone goes.
    configure(&server, "projects:\n- name: main\n  backends: []\n")?;
    server.ok(&["backend", "reload"])?;
    let before = calls()?;
    ask_offers(&server, "main")?;
    ensure!(calls()? == before, "the backend is gone");
    server.stop()?;
    Ok(())
}

#[test]
fn a_lock_file_that_is_not_used_is_listed_and_an_event() -> Result<()> {
    let folder = plugin_folder(&["local", "fake"])?;
    let dir = folder.path().to_string_lossy().into_owned();
    let lock = |server: &TestServer| server.ok(&["backend", "lock", &dir]);
    let mut server = TestServer::prepare(&[("DSTACK_PLUGIN_DIR", &dir)])?;
    configure(
        &server,
        &format!("projects:\n- name: main\n  backends:\n  - type: fake\n    folder: {dir}\n"),
    )?;
    lock(&server)?;
    server.spawn()?;
    ensure!(plugin(&server, "fake")?["isolation"] == "in_process");
    ensure!(plugin(&server, "plugins.lock")?.is_null());
    fs::set_permissions(
        folder.path().join("plugins.lock"),
        fs::Permissions::from_mode(0o666),
    )?;
    server.ok(&["backend", "reload"])?;
    let row = plugin(&server, "plugins.lock")?;
    let reason = row["reason"].as_str().unwrap_or_default();
    ensure!(
        row["state"] == "refused" && reason.contains("writable by everybody"),
        "{row}"
    );
    let events = wait_for("the event", Duration::from_secs(10), || {
        let (status, events) = server.post("/api/events/list", &json!({}))?;
        ensure!(status == 200, "{events}");
        let text = events.to_string();
        Ok(text.contains("is not known to be trusted").then_some(text))
    })?;
    ensure!(events.contains("writable by everybody"), "{events}");
    lock(&server)?;
    server.ok(&["backend", "reload"])?;
    ensure!(plugin(&server, "plugins.lock")?.is_null());
    server.stop()?;
    Ok(())
}

/// The project with this backend in this mode.
fn project(backend: &str, mode: &str) -> String {
    format!("p-{backend}-{}", mode.replace('_', "-"))
}

/// Backend, what it does, and the words that the log must have beside the backend's name.
const WRONGS: [(&str, &str, &str); 18] = [
    ("misbehaving", "null_write", "died of signal 11 (SIGSEGV)"),
    ("misbehaving", "abort", "died of signal 6 (SIGABRT)"),
    ("misbehaving", "exit", "exited with code 3"),
    (
        "misbehaving",
        "stack_overflow",
        "died of signal 6 (SIGABRT)",
    ),
    (
        "misbehaving",
        "allocation_bomb",
        "died of signal 6 (SIGABRT)",
    ),
    ("misbehaving", "babble", "was killed, since it sent"),
    ("misbehaving", "child_left", "died of signal 6 (SIGABRT)"),
    ("misbehaving", "endless", "no answer within 5000 ms"),
    ("misbehaving", "panic", "a bug in the backend"),
    ("misbehaving", "panic_payload", "a payload that is no text"),
    ("misbehaving", "refuse_config", "the token is wrong"),
    ("misbehaving", "slow_drip", ""),
    ("misbehaving", "threads_left", ""),
    (
        "misbehaving",
        "stdout_noise",
        "lines that the backend printed were dropped",
    ),
    ("raw", "malformed", "not understood"),
    ("raw", "utf8", "not understood"),
    ("raw", "huge", "the reply has 1073741824 bytes"),
    ("raw", "bad_error", "an error that is not understood"),
];

/// Everything that a backend can do wrong, each in a project of its own, while runs go on with another backend.
#[test]
fn fifty_runs_finish_while_a_backend_does_everything_wrong() -> Result<()> {
    const RUNS: usize = 50;
    let folder = plugin_folder(&["local", "misbehaving", "raw", "constructor"])?;
    let dir = folder.path().to_string_lossy().into_owned();
    let mut server = TestServer::prepare(&[
        ("DSTACK_PLUGIN_DIR", &dir),
        // For the one that never ends.
        ("DSTACK_BACKEND_DEADLINE_OFFERS", "5"),
    ])?;
    let mut config =
        "projects:\n- name: main\n  backends:\n  - type: local\n    runtime: process\n".to_owned();
    let good = [("misbehaving", "good", ""), ("raw", "good", "")];
    for (backend, mode, _) in WRONGS.into_iter().chain(good) {
        config.push_str(&format!(
            "- name: {}\n  backends:\n  - type: {backend}\n    mode: {mode}\n",
            project(backend, mode)
        ));
        if backend == "misbehaving" {
            config.push_str(&format!("    folder: {dir}\n"));
        }
    }
    // Its code ends the process that loads it, so that it does not even come to say what its section may have.
    config.push_str("- name: p-constructor\n  backends:\n  - type: constructor\n");
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
            for (backend, mode, _) in WRONGS {
                ask_offers(server, &project(backend, mode))?;
                // Somebody must succeed now and then, or calls are refused for a while.
                ask_offers(server, &project(backend, "good"))?;
            }
            let request = json!({"name": "constructor"});
            let (status, body) = server.post("/api/x/plugins/describe", &request)?;
            let text = body.to_string();
            ensure!(
                status == 400 && text.contains("constructor"),
                "{status} {text}"
            );
            rounds += 1;
        }
        let done = runs
            .join()
            .map_err(|_| anyhow::anyhow!("the runs panicked"))??;
        ensure!(done == RUNS, "{done} of {RUNS} runs are done");
        Ok(())
    })?;
    let log = server.log();
    let constructor = [("constructor", "", "died of signal 6 (SIGABRT)")];
    for (backend, mode, words) in WRONGS.into_iter().chain(constructor) {
        ensure!(
            log.lines()
                .any(|line| line.contains(backend) && line.contains(words)),
            "{backend} {mode}: nothing in the log says `{words}`"
        );
    }
    let raw = plugin(&server, "raw")?;
    ensure!(
        raw["isolation"] == "process" && raw["load"]["deaths"] == 0,
        "what it says is wrong, but it lives: {raw}"
    );
    let bad = plugin(&server, "misbehaving")?;
    ensure!(
        bad["isolation"] == "process" && bad["load"]["deaths"].as_u64() >= Some(7),
        "{bad}"
    );
    server.stop()?;
    Ok(())
}

/// What the server itself survives, for an operator who lets a backend into its process.
#[test]
fn runs_finish_while_a_backend_in_the_servers_own_process_panics_hangs_and_talks_nonsense()
-> Result<()> {
    const MODES: [(&str, &str, &str); 8] = [
        ("misbehaving", "panic", "a bug in the backend"),
        ("misbehaving", "panic_payload", "a payload that is no text"),
        ("misbehaving", "slow_drip", ""),
        ("misbehaving", "endless", "no answer within 5000 ms"),
        ("raw", "malformed", "not understood"),
        ("raw", "utf8", "not understood"),
        ("raw", "huge", "the reply has 1073741824 bytes"),
        ("raw", "bad_error", "an error that is not understood"),
    ];
    let folder = plugin_folder(&["local", "misbehaving", "raw"])?;
    let dir = folder.path().to_string_lossy().into_owned();
    let mut server = TestServer::prepare(&[
        ("DSTACK_PLUGIN_DIR", &dir),
        ("DSTACK_BACKEND_DEADLINE_OFFERS", "5"),
    ])?;
    let mut config =
        "projects:\n- name: main\n  backends:\n  - type: local\n    runtime: process\n".to_owned();
    for (backend, mode, _) in MODES {
        config.push_str(&format!(
            "- name: {}\n  backends:\n  - type: {backend}\n    isolation: in_process\n    mode: {mode}\n",
            project(backend, mode)
        ));
    }
    configure(&server, &config)?;
    server.spawn()?;
    let pid = server.pid();
    dstack_e2e::fleet(&server, 1)?;
    let path = server.file("t.dstack.yml", &task("t", Runtime::Process, &["true"]))?;
    std::thread::scope(|threads| -> Result<()> {
        let server = &server;
        let asking = threads.spawn(move || {
            MODES
                .iter()
                .try_for_each(|(backend, mode, _)| ask_offers(server, &project(backend, mode)))
        });
        for number in 0.. {
            let is_last = asking.is_finished();
            let name = format!("t{number}");
            server.ok(&["apply", "-f", &path, "-n", &name, "-y", "-d"])?;
            let run = server.finished(&name, Duration::from_secs(60))?;
            ensure!(run["status"] == "done", "{run}");
            if is_last {
                break;
            }
        }
        asking
            .join()
            .map_err(|_| anyhow::anyhow!("the questions panicked"))?
    })?;
    let log = server.log();
    for (backend, mode, words) in MODES {
        ensure!(
            log.lines()
                .any(|line| line.contains(backend) && line.contains(words)),
            "{backend} {mode}: nothing in the log says `{words}`"
        );
    }
    for name in ["misbehaving", "raw"] {
        let plugin = plugin(&server, name)?;
        ensure!(
            plugin["isolation"] == "in_process" && plugin["state"] == "loaded",
            "{plugin}"
        );
    }
    ensure!(server.pid() == pid);
    server.stop()?;
    Ok(())
}

/// The suite on a built file, as a contributor runs it.
#[test]
fn a_built_file_is_checked_against_the_provider_beside_it() -> Result<()> {
    let file = bin_dir().join("libdstack_backend_hello.so");
    let check = |args: &[&str]| {
        let mut command = Command::new(bin_dir().join("dstack"));
        command.args(["backend", "check"]).arg(&file).args(args);
        let done = command.output()?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        Ok::<_, anyhow::Error>((done.status.code(), text))
    };
    let (code, text) = check(&[])?;
    ensure!(
        code == Some(0)
            && text.contains("examples/hello-provider")
            && text.contains("pass  volumes.attach")
            && text.contains("pass  listing.whole")
            && !text.contains("WERE NOT MADE"),
        "{code:?} {text}"
    );
    let program = bin_dir().join("examples/hello-provider");
    let program = program.to_string_lossy();
    let (code, text) = check(&["--provider", &program, "--only", "create", "--json"])?;
    let report: Value = serde_json::from_str(&text)?;
    ensure!(
        code == Some(0) && report["results"][0]["result"] == "passed",
        "{report}"
    );
    let (code, text) = check(&["--provider", "none", "--only", "create"])?;
    ensure!(
        code == Some(0) && text.contains("WERE NOT MADE") && text.contains("--provider"),
        "{code:?} {text}"
    );
    let (code, _) = check(&["--provider", "/nowhere"])?;
    ensure!(code.is_some_and(|code| code > 0), "{code:?}");
    Ok(())
}
