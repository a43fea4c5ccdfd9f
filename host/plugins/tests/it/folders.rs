//! What is found in folders, and why something is not used.

use crate::place::{config_of, folder, put};
use dstack_plugins::{
    Isolation, LOCK_FILE, LockFile, PluginState, PluginStatus, Plugins, PluginsConfig, What,
    verify_folder, write_lock,
};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
};

fn list(folders: &[&Path]) -> Vec<PluginStatus> {
    let config = PluginsConfig::new(folders.iter().map(|folder| folder.to_path_buf()).collect());
    Plugins::load(config).list()
}

fn reason(status: &PluginStatus) -> &str {
    status.error.as_deref().unwrap_or_default()
}

/// Whether this process has mapped the file.
fn is_mapped(path: &Path) -> bool {
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .contains(path.to_str().unwrap())
}

#[tokio::test]
async fn a_locked_plugin_is_available_and_a_listing_loads_nothing() {
    let folder = folder();
    let path = put(folder.path(), "dstack-backend-fake", "fake");
    let (lock, left_out) = write_lock(folder.path()).unwrap();
    assert!(left_out.is_empty());
    assert_eq!(LockFile::read(folder.path()).unwrap(), lock);
    let plugins = Plugins::load(PluginsConfig::new(vec![
        folder.path().to_owned(),
        "/nowhere".into(),
    ]));
    let all = plugins.list();
    let [fake] = all.as_slice() else {
        panic!("{all:?}")
    };
    assert_eq!(
        (fake.name.as_str(), fake.state, fake.isolation),
        ("fake", PluginState::Available, Some(Isolation::InProcess))
    );
    assert!(
        fake.version.is_some()
            && fake.sdk.is_some()
            && fake.hash.as_ref().unwrap().len() == 64
            && fake.error.is_none()
    );
    assert!(fake.capabilities.contains(&"create_instance".to_owned()));
    assert!(!is_mapped(&path));
    plugins
        .configurator("fake")
        .await
        .unwrap()
        .describe()
        .await
        .unwrap();
    assert!(is_mapped(&path));
    assert_eq!(plugins.list()[0].state, PluginState::Loaded);
}

fn isolation(folder: &Path) -> Option<Isolation> {
    let all = list(&[folder]);
    assert_eq!(all[0].state, PluginState::Available, "{all:?}");
    all[0].isolation
}

#[tokio::test]
async fn what_is_not_in_the_lock_file_runs_in_a_process_of_its_own_unless_it_is_trusted() {
    let folder = folder();
    put(folder.path(), "dstack-backend-fake", "fake");
    assert_eq!(isolation(folder.path()), Some(Isolation::Process));
    let mut config = PluginsConfig::new(vec![folder.path().to_owned()]);
    config
        .isolation
        .insert("fake".to_owned(), Isolation::InProcess);
    let status = Plugins::load(config).list().remove(0);
    assert_eq!(status.isolation, Some(Isolation::InProcess));
}

#[tokio::test]
async fn a_changed_file_is_no_longer_covered_by_the_lock_file() {
    let folder = folder();
    let path = put(folder.path(), "dstack-backend-fake", "fake");
    write_lock(folder.path()).unwrap();
    assert_eq!(isolation(folder.path()), Some(Isolation::InProcess));
    let mut bytes = fs::read(&path).unwrap();
    bytes.push(0);
    fs::write(&path, bytes).unwrap();
    assert_eq!(isolation(folder.path()), Some(Isolation::Process));
}

#[tokio::test]
async fn a_lock_file_that_others_may_write_or_that_nobody_understands_trusts_nothing() {
    let folder = folder();
    put(folder.path(), "dstack-backend-fake", "fake");
    write_lock(folder.path()).unwrap();
    let lock = folder.path().join(LOCK_FILE);
    let mode = |mode| fs::set_permissions(&lock, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o666);
    assert_eq!(isolation(folder.path()), Some(Isolation::Process));
    let refused = list(&[folder.path()]).pop().unwrap();
    assert_eq!(
        (refused.name.as_str(), refused.state, &refused.path),
        (LOCK_FILE, PluginState::Refused, &lock)
    );
    assert!(
        reason(&refused).contains("writable by everybody")
            && reason(&refused).contains("dstack backend lock"),
        "{refused:?}"
    );
    let problems = lock_problems(folder.path());
    assert!(
        problems[0].is_some() && problems[1] == refused.error,
        "both the plugin and the lock file are named: {problems:?}"
    );
    mode(0o644);
    assert_eq!(isolation(folder.path()), Some(Isolation::InProcess));
    assert!(
        verify_folder(folder.path())
            .unwrap()
            .iter()
            .all(|row| row.problem.is_none())
    );

    let text = fs::read_to_string(&lock).unwrap();
    let (half, _) = text.split_at(text.len() / 2);
    fs::write(&lock, half).unwrap();
    assert_eq!(isolation(folder.path()), Some(Isolation::Process));
    let problems = lock_problems(folder.path());
    let problem = problems[1].as_deref().unwrap();
    assert!(problem.contains("line 1 is not understood"), "{problem}");
}

/// What `verify` says of the plugin and of the lock file.
fn lock_problems(folder: &Path) -> [Option<String>; 2] {
    let all = verify_folder(folder).unwrap();
    assert_eq!(all.len(), 2, "{all:?}");
    ["fake", LOCK_FILE].map(|name| {
        let row = all.iter().find(|row| row.name == name).unwrap();
        row.problem.clone()
    })
}

#[tokio::test]
async fn a_lock_file_that_is_not_used_is_an_event_of_its_backends_once() {
    let folder = folder();
    put(folder.path(), "dstack-backend-fake", "fake");
    write_lock(folder.path()).unwrap();
    let lock = folder.path().join(LOCK_FILE);
    let (sender, mut events) = tokio::sync::mpsc::channel(8);
    let mut config = config_of(folder.path());
    config.events = Some(sender);
    let plugins = Plugins::load(config);
    assert!(events.try_recv().is_err());
    fs::write(&lock, "nonsense\n").unwrap();
    plugins.reload().await;
    plugins.reload().await;
    // The plugin is swapped too, since it is not trusted any more.
    let told: Vec<_> = std::iter::from_fn(|| events.try_recv().ok())
        .filter(|event| matches!(event.what, What::LockRefused { .. }))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    let text = told[0].to_string();
    assert!(
        text.starts_with("Backend fake") && text.contains(&lock.display().to_string()),
        "{text}"
    );
}

#[tokio::test]
async fn a_locked_file_runs_in_a_process_if_the_operator_says_so() {
    let folder = folder();
    put(folder.path(), "dstack-backend-fake", "fake");
    write_lock(folder.path()).unwrap();
    let mut config = PluginsConfig::new(vec![folder.path().to_owned()]);
    config
        .isolation
        .insert("fake".to_owned(), Isolation::Process);
    let status = Plugins::load(config).list().remove(0);
    assert_eq!(
        (status.state, status.isolation),
        (PluginState::Available, Some(Isolation::Process))
    );
}

#[tokio::test]
async fn the_earlier_folder_wins_and_the_later_file_is_shadowed() {
    let (first, second) = (folder(), folder());
    for folder in [&first, &second] {
        put(folder.path(), "dstack-backend-fake", "fake");
        write_lock(folder.path()).unwrap();
    }
    let all = list(&[first.path(), second.path()]);
    assert_eq!(
        [all[0].state, all[1].state],
        [PluginState::Available, PluginState::Shadowed]
    );
    assert!(
        all[0]
            .path
            .starts_with(first.path().canonicalize().unwrap())
    );
    assert!(reason(&all[1]).contains(first.path().to_str().unwrap()));
}

#[tokio::test]
async fn a_name_twice_in_one_folder_refuses_both() {
    let folder = folder();
    put(folder.path(), "dstack-backend-fake", "one");
    put(folder.path(), "dstack-backend-fake", "two");
    write_lock(folder.path()).unwrap();
    let all = list(&[folder.path()]);
    assert_eq!(all.len(), 2);
    for (status, other) in [(&all[0], "two.so"), (&all[1], "one.so")] {
        assert_eq!(status.state, PluginState::Refused);
        assert!(
            reason(status).contains("twice") && reason(status).contains(other),
            "{status:?}"
        );
    }
}

#[tokio::test]
async fn a_folder_that_is_given_twice_is_looked_at_once() {
    let folder = folder();
    put(folder.path(), "dstack-backend-fake", "fake");
    write_lock(folder.path()).unwrap();
    let again = folder.path().join(".");
    assert_eq!(list(&[folder.path(), &again]).len(), 1);
}

#[tokio::test]
async fn what_everybody_may_write_is_refused() {
    let folder = folder();
    let path = put(folder.path(), "dstack-backend-fake", "fake");
    write_lock(folder.path()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o646)).unwrap();
    let all = list(&[folder.path()]);
    assert!(
        reason(&all[0]).contains("the file is writable by everybody (mode 0646)"),
        "{all:?}"
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o757)).unwrap();
    let all = list(&[folder.path()]);
    assert!(
        reason(&all[0]).contains("the folder is writable by everybody"),
        "{all:?}"
    );
}

#[tokio::test]
async fn one_broken_file_does_not_harm_the_others() {
    let folder = folder();
    let whole = put(folder.path(), "dstack-backend-fake", "fake");
    let bytes = fs::read(&whole).unwrap();
    fs::write(folder.path().join("cut.so"), &bytes[..bytes.len() / 2]).unwrap();
    let mut other = bytes.clone();
    other[18..20].copy_from_slice(&8_u16.to_le_bytes());
    fs::write(folder.path().join("other.so"), other).unwrap();
    fs::write(folder.path().join("text.so"), "hello").unwrap();
    fs::write(folder.path().join("notes.txt"), "not looked at").unwrap();
    fs::write(folder.path().join(".hidden.so"), "not looked at").unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(folder.path().join("pipe.so"))
            .status()
            .unwrap()
            .success()
    );
    symlink("nowhere", folder.path().join("dangling.so")).unwrap();
    put(folder.path(), "dstack-backend-no-manifest", "nothing");
    put(folder.path(), "dstack-backend-other-border", "border");
    let (lock, left_out) = write_lock(folder.path()).unwrap();
    assert_eq!(
        lock.plugins().map(|p| p.name.as_str()).collect::<Vec<_>>(),
        ["fake", "other-border"]
    );
    assert_eq!(left_out.len(), 6);
    let plugins = Plugins::load(PluginsConfig::new(vec![folder.path().to_owned()]));
    let all = plugins.list();
    let of = |name: &str| {
        all.iter()
            .find(|status| status.name == name)
            .unwrap_or_else(|| panic!("{name}: {all:?}"))
    };
    for (name, words) in [
        ("cut", "past the end of the file"),
        ("other", "built for machine 8"),
        ("text", "not an ELF file"),
        ("pipe", "not a regular file"),
        ("dangling", "No such file"),
        ("nothing", "no manifest"),
    ] {
        assert_eq!(of(name).state, PluginState::Refused);
        assert!(
            reason(of(name)).contains(words),
            "{name}: {}",
            reason(of(name))
        );
    }
    assert_eq!(all.len(), 8);
    // A changed root module is only seen when it is loaded; then it is named, and the rest goes on.
    let error = plugins
        .open("other-border", &serde_json::json!({}))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("incompatible interface"),
        "{error}"
    );
    let list = plugins.list();
    let border = list
        .iter()
        .find(|status| status.name == "other-border")
        .unwrap();
    assert_eq!(border.state, PluginState::Failed);
    let cloud = serde_json::json!({"folder": folder.path()});
    plugins
        .open("fake", &cloud)
        .await
        .unwrap()
        .health()
        .await
        .unwrap();
    let error = plugins.open("cut", &cloud).await.unwrap_err();
    assert!(
        error.to_string().contains("past the end of the file"),
        "{error}"
    );
    assert!(
        plugins
            .open("unknown", &cloud)
            .await
            .unwrap_err()
            .to_string()
            .contains("no such plugin")
    );
}
