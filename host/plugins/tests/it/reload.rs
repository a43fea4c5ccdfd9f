//! Files come, go and are replaced while the host runs.

use crate::place::{config_of, folder, put, until};
use dstack_backend_types::{ErrorKind, methods::HealthRequest};
use dstack_plugins::{
    Isolation, PluginEvent, PluginState, PluginStatus, Plugins, Reloaded, What, write_lock,
};
use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};

const PACKAGE: &str = "dstack-backend-misbehaving";

fn of<'a>(list: &'a [PluginStatus], name: &str) -> &'a PluginStatus {
    list.iter()
        .find(|status| status.name == name)
        .unwrap_or_else(|| panic!("{name}: {list:?}"))
}

fn config(folder: &Path, mode: &str) -> Value {
    json!({"type": "misbehaving", "mode": mode, "folder": folder})
}

/// Another build of the same plugin, as far as its hash goes, put in place as an installer does.
fn upgrade(path: &Path, add: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes.extend([add; 8]);
    let temporary = path.with_extension("new");
    fs::write(&temporary, bytes).unwrap();
    fs::rename(temporary, path).unwrap();
}

async fn pid(plugins: &Plugins, folder: &Path) -> String {
    let backend = plugins
        .backend("main", "misbehaving", &config(folder, "process_id"))
        .await
        .unwrap();
    backend.health().await.unwrap().message.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_process_a_new_file_is_used_at_once_and_calls_end_in_the_old_one() {
    let folder = folder();
    let path = put(folder.path(), PACKAGE, "bad");
    let (sender, mut events) = tokio::sync::mpsc::channel(16);
    let mut settings = config_of(folder.path());
    settings.events = Some(sender);
    let plugins = Plugins::load(settings);
    let before = pid(&plugins, folder.path()).await;
    let old = plugins
        .backend("other", "misbehaving", &config(folder.path(), "block"))
        .await
        .unwrap();
    let running = tokio::spawn(async move {
        old.call_within(&HealthRequest {}, Duration::from_secs(30))
            .await
    });
    until("it runs", || plugins.stats()["misbehaving"].running == 1).await;

    upgrade(&path, 1);
    let done = plugins.reload().await;
    assert_eq!(done.replaced, ["misbehaving"]);
    let after = pid(&plugins, folder.path()).await;
    assert_ne!(after, before);
    assert!(Path::new("/proc").join(&before).exists());
    fs::write(folder.path().join("release"), "").unwrap();
    running.await.unwrap().unwrap();
    until("the old process has ended", || {
        !Path::new("/proc").join(&before).exists()
    })
    .await;
    // Counters are those of the name, not of the file.
    assert_eq!(plugins.stats()["misbehaving"].methods["health"].calls, 3);
    let told: Vec<PluginEvent> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    assert!(
        told.iter()
            .any(|event| matches!(event.what, What::Replaced { is_used: true, .. })),
        "{told:?}"
    );
    assert_eq!(plugins.reload().await, Reloaded::default());
    plugins.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_this_process_a_new_file_waits_for_a_restart() {
    let folder = folder();
    let path = put(folder.path(), PACKAGE, "bad");
    let mut settings = config_of(folder.path());
    settings
        .isolation
        .insert("misbehaving".to_owned(), Isolation::InProcess);
    let plugins = Plugins::load(settings);
    upgrade(&path, 1);
    // Nothing of it was loaded yet, so it is simply the other file.
    assert_eq!(plugins.reload().await.replaced, ["misbehaving"]);
    let own = std::process::id().to_string();
    assert_eq!(pid(&plugins, folder.path()).await, own);
    let hash = plugins.list()[0].hash.clone();

    upgrade(&path, 2);
    assert_eq!(plugins.reload().await.after_restart, ["misbehaving"]);
    let status = plugins.list().remove(0);
    assert_eq!((status.state, &status.hash), (PluginState::Loaded, &hash));
    assert!(
        status
            .error
            .unwrap()
            .contains("restart the server to use it")
    );
    assert_eq!(pid(&plugins, folder.path()).await, own);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_locked_later_stays_in_its_process_until_a_restart() {
    let folder = folder();
    let path = put(folder.path(), PACKAGE, "bad");
    write_lock(folder.path()).unwrap();
    let plugins = Plugins::load(config_of(folder.path()));
    let own = std::process::id().to_string();
    assert_eq!(pid(&plugins, folder.path()).await, own);

    upgrade(&path, 1);
    assert_eq!(plugins.reload().await.replaced, ["misbehaving"]);
    let child = pid(&plugins, folder.path()).await;
    assert_ne!(child, own);
    write_lock(folder.path()).unwrap();
    assert_eq!(plugins.reload().await, Reloaded::default());
    assert_eq!(pid(&plugins, folder.path()).await, child);
    let status = plugins.list().remove(0);
    assert_eq!(status.isolation, Some(Isolation::Process));
    assert!(status.error.unwrap().contains("until a restart"));
    plugins.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_gone_is_named_until_it_is_back() {
    let folder = folder();
    let path = put(folder.path(), PACKAGE, "bad");
    let plugins = Plugins::load(config_of(folder.path()));
    pid(&plugins, folder.path()).await;
    let aside = folder.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    assert_eq!(plugins.reload().await.removed, ["misbehaving"]);
    let error = plugins
        .backend("main", "misbehaving", &config(folder.path(), "good"))
        .await
        .unwrap_err();
    assert!(
        error.kind() == ErrorKind::NotFound && error.to_string().contains("is gone; put it back"),
        "{error}"
    );
    assert_eq!(plugins.list()[0].state, PluginState::Removed);
    fs::rename(&aside, &path).unwrap();
    assert_eq!(plugins.reload().await.added, ["misbehaving"]);
    pid(&plugins, folder.path()).await;
    assert_eq!(plugins.list().len(), 1);
    plugins.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_watched_and_a_half_copied_file_is_taken_when_it_is_whole() {
    let parent = folder();
    let folder = parent.path().join("backends");
    let plugins = Plugins::load(config_of(&folder));
    let watch = tokio::spawn({
        let plugins = plugins.clone();
        async move { plugins.watch().await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    // The folder was not even there.
    fs::create_dir(&folder).unwrap();
    let aside = put(parent.path(), PACKAGE, "aside");
    let bytes = fs::read(&aside).unwrap();
    let path = folder.join("bad.so");
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    until("the half is seen", || plugins.list().len() == 1).await;
    let half = plugins.list().remove(0);
    assert_eq!(half.state, PluginState::Refused);
    assert!(half.error.unwrap().contains("past the end of the file"));
    fs::write(&path, &bytes).unwrap();
    until("the whole is seen", || {
        plugins.manifest("misbehaving").is_some() && plugins.list().len() == 1
    })
    .await;
    // Trust that is given later counts too.
    write_lock(&folder).unwrap();
    until("the lock file is seen", || {
        plugins.list()[0].isolation == Some(Isolation::InProcess)
    })
    .await;
    fs::remove_file(&path).unwrap();
    until("it is gone", || plugins.manifest("misbehaving").is_none()).await;
    assert_eq!(
        of(&plugins.list(), "misbehaving").state,
        PluginState::Removed
    );
    assert!(!watch.is_finished());
    watch.abort();
}
