//! Plugins in a child process: whatever they do, the host goes on, and the error says whose fault it was.

use crate::place::{Bad, all_offers, config_of, folder, put, until};
use dstack_backend_types::{ErrorKind, methods::HealthRequest};
use dstack_plugins::{
    Backend, CallError, Isolation, Limits, PluginState, Plugins, What, WorkerLimits,
};
use serde_json::json;
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

const SHORT: Duration = Duration::from_millis(200);

fn limits() -> Limits {
    Limits {
        grace: Duration::from_millis(100),
        worker: WorkerLimits {
            memory_bytes: 512 << 20,
            ..WorkerLimits::default()
        },
        ..Limits::default()
    }
}

fn bad() -> Bad {
    Bad::with(limits(), Isolation::Process)
}

async fn health(backend: &Backend) -> Result<String, CallError> {
    backend
        .health()
        .await
        .map(|reply| reply.message.unwrap_or_default())
}

async fn pid(bad: &Bad) -> i32 {
    let text = health(&bad.open("process_id").await).await.unwrap();
    text.parse().unwrap()
}

fn lives(pid: i32) -> bool {
    // A zombie has no command line.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_die_is_an_error_that_names_the_plugin_and_the_way() {
    let mut bad = bad();
    let good = bad.open("good").await;
    for (mode, words) in [
        ("null_write", "signal 11 (SIGSEGV)"),
        ("abort", "signal 6 (SIGABRT)"),
        ("exit", "exited with code 3"),
        ("stack_overflow", "signal 6 (SIGABRT)"),
        ("allocation_bomb", "signal 6 (SIGABRT)"),
        ("babble", "bytes, at most"),
    ] {
        let error = health(&bad.open(mode).await).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transport, "{mode}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("backend misbehaving") && text.contains(words),
            "{mode}: {text}"
        );
        // The next call finds a new process, and what was open is open again.
        assert_eq!(health(&good).await.unwrap(), "good", "{mode}");
    }
    let status = &bad.plugins.list()[0];
    assert_eq!(
        (status.state, status.isolation),
        (PluginState::Loaded, Some(Isolation::Process))
    );
    let stats = status.stats.as_ref().unwrap();
    assert_eq!((stats.deaths, stats.respawns), (6, 6));
    assert_eq!(stats.methods["health"].errors["transport"], 6);
    let told = bad.told();
    assert!(matches!(&told[0], What::Loaded { .. }), "{told:?}");
    let died = told.iter().filter(|what| matches!(what, What::Died { .. }));
    assert_eq!(died.count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_and_a_refused_configuration_cost_no_process() {
    let bad = bad();
    let before = pid(&bad).await;
    for mode in ["panic", "panic_payload"] {
        let error = health(&bad.open(mode).await).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panic);
    }
    let error = bad
        .plugins
        .open("misbehaving", &bad.config("refuse_config"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert_eq!(error.error.details["fields"], json!(["token"]));
    assert_eq!(pid(&bad).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_what_waits_for_the_host_and_the_process_stays() {
    let bad = bad();
    let before = pid(&bad).await;
    for mode in ["sleep", "ignore_cancel", "threads"] {
        let backend = bad.open(mode).await;
        let error = backend
            .call_within(&HealthRequest {}, SHORT)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{mode}");
        assert_eq!(health(&bad.open("good").await).await.unwrap(), "good");
    }
    tokio::time::sleep(SHORT).await;
    assert_eq!(pid(&bad).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_never_comes_back_costs_its_process_and_no_other_call() {
    let bad = bad();
    let before = pid(&bad).await;
    // This one runs on while the other one is given up.
    let patient = bad.open("block").await;
    let waiting = tokio::spawn(async move {
        patient
            .call_within(&HealthRequest {}, Duration::from_secs(30))
            .await
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let busy = bad.open("endless").await;
    let error = busy
        .call_within(&HealthRequest {}, SHORT)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    until("a new process takes the calls", || {
        bad.plugins.list()[0].stats.as_ref().unwrap().running == 2
    })
    .await;
    tokio::time::sleep(SHORT).await;
    let after = pid(&bad).await;
    assert_ne!(after, before);
    assert!(lives(before), "the patient call still runs in it");
    bad.release();
    waiting.await.unwrap().unwrap();
    until("the old process is killed", || !lives(before)).await;
    assert!(lives(after));
}

#[tokio::test(flavor = "multi_thread")]
async fn three_deaths_in_a_row_open_the_breaker_and_an_answer_closes_it() {
    let mut bad = bad();
    let (abort, good) = (bad.open("abort").await, bad.open("good").await);
    for _ in 0..3 {
        assert_eq!(
            health(&abort).await.unwrap_err().kind(),
            ErrorKind::Transport
        );
    }
    let status = &bad.plugins.list()[0];
    assert_eq!(status.state, PluginState::Unhealthy);
    assert!(
        status.error.as_ref().unwrap().contains("SIGABRT"),
        "{status:?}"
    );
    let error = health(&good).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unavailable && error.error.retry_after_ms.is_some(),
        "{error}"
    );
    let begun = Instant::now();
    while health(&good).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(bad.plugins.list()[0].state, PluginState::Loaded);
    let told = bad.told();
    assert!(
        told.iter()
            .any(|what| matches!(what, What::Refusing { .. })),
        "{told:?}"
    );
    assert_eq!(told.last(), Some(&What::Recovered));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_during_many_calls_is_one_death() {
    let bad = bad();
    let sleep = bad.open("sleep").await;
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let sleep = sleep.clone();
            tokio::spawn(async move { health(&sleep).await })
        })
        .collect();
    until("all run", || {
        bad.plugins.list()[0].stats.as_ref().unwrap().running == 8
    })
    .await;
    health(&bad.open("abort").await).await.unwrap_err();
    for call in calls {
        assert_eq!(
            call.await.unwrap().unwrap_err().kind(),
            ErrorKind::Transport
        );
    }
    assert_eq!(health(&bad.open("good").await).await.unwrap(), "good");
    assert_eq!(bad.plugins.list()[0].stats.as_ref().unwrap().deaths, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_process_has_started_dies_with_it() {
    let bad = bad();
    health(&bad.open("child_left").await).await.unwrap_err();
    let orphans = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| {
            let folder = entry.path();
            let is_sleep =
                fs::read(folder.join("cmdline")).is_ok_and(|line| line == b"sleep\x003600\0");
            let is_ours = fs::read(folder.join("environ"))
                .is_ok_and(|all| String::from_utf8_lossy(&all).contains("MALLOC_ARENA_MAX=2"));
            is_sleep && is_ours
        })
        .count()
    };
    until("no child is left", || orphans() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_naps_and_threads_do_no_harm() {
    let bad = bad();
    for mode in ["stdout_noise", "slow_drip", "threads_left", "log"] {
        assert_eq!(
            health(&bad.open(mode).await).await.unwrap(),
            "good",
            "{mode}"
        );
    }
    assert_eq!(bad.plugins.list()[0].stats.as_ref().unwrap().deaths, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_confined() {
    let bad = bad();
    let text = health(&bad.open("confinement").await).await.unwrap();
    assert_eq!(text, format!("{} 1024 0 1 []", 512 << 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_again_and_again_is_not_started_without_end() {
    let mut limits = limits();
    limits.worker.starts_per_minute = 2;
    let bad = Bad::with(limits, Isolation::Process);
    let (abort, good) = (bad.open("abort").await, bad.open("good").await);
    for _ in 0..2 {
        let error = health(&abort).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transport);
    }
    let error = health(&good).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error
            .to_string()
            .contains("its process ended 2 times within a minute")
            && error.error.retry_after_ms.is_some(),
        "{error}"
    );
    assert_eq!(bad.plugins.stats()["misbehaving"].respawns, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn services_work_over_the_socket() {
    let bad = bad();
    let text = health(&bad.open("services").await).await.unwrap();
    assert!(text.contains(",8,9") && text.contains(" 8 20"), "{text}");
    let cached = bad.open("cached").await;
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let cached = cached.clone();
            tokio::spawn(async move { health(&cached).await.unwrap() })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), "1");
    }
    let error = health(&bad.open("machine").await).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_backend_is_closed_in_the_process_and_a_shutdown_ends_it() {
    let bad = bad();
    let before = pid(&bad).await;
    let closed = bad.folder.path().join("closed");
    drop(bad.open("good").await);
    until("the backend is closed", || closed.exists()).await;
    fs::remove_file(&closed).unwrap();
    let kept = bad.open("good").await;
    bad.plugins.shut_down().await;
    assert!(closed.exists() && !lives(before));
    drop(kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_constructor_that_aborts_is_named_and_tried_again_later() {
    let folder = folder();
    put(folder.path(), "dstack-backend-constructor", "constructor");
    put(folder.path(), "dstack-backend-other-border", "border");
    let plugins = Plugins::load(config_of(folder.path()));
    let error = plugins.open("constructor", &json!({})).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unavailable && error.to_string().contains("SIGABRT"),
        "{error}"
    );
    let error = plugins.open("other-border", &json!({})).await.unwrap_err();
    assert!(
        error.to_string().contains("incompatible interface"),
        "{error}"
    );
    for status in plugins.list() {
        assert_eq!(status.state, PluginState::Failed, "{status:?}");
    }
}

async fn raw(isolation: Isolation) {
    let folder = folder();
    let file = put(folder.path(), "dstack-backend-raw", "raw");
    let mut config = config_of(folder.path());
    config.limits.worker.memory_bytes = 3 << 30;
    let plugins = Plugins::of_file(config, &file, isolation).unwrap();
    for (mode, words) in [
        ("malformed", "not understood"),
        ("utf8", "not understood"),
        ("huge", "the reply has 1073741824 bytes, at most"),
        ("bad_error", "an error that is not understood"),
        ("malformed", "not understood"),
    ] {
        let error = plugins
            .open("raw", &json!(mode))
            .await
            .unwrap()
            .health()
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            error.kind() == ErrorKind::Internal
                && text.contains(words)
                && text.contains("backend raw"),
            "{mode}: {text}"
        );
    }
    let good = plugins.open("raw", &json!("good")).await.unwrap();
    assert_eq!(
        good.health().await.unwrap().message.as_deref(),
        Some("good")
    );
    assert_eq!(plugins.stats()["raw"].deaths, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_that_make_no_sense_are_errors_in_a_process_too() {
    raw(Isolation::Process).await;
}

#[tokio::test]
async fn replies_that_make_no_sense_are_errors() {
    raw(Isolation::InProcess).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offers_come_in_chunks_through_a_process() {
    let (folder, cloud) = (folder(), tempfile::tempdir().unwrap());
    put(folder.path(), "dstack-backend-fake", "fake");
    let plugins = Plugins::load(config_of(folder.path()));
    assert_eq!(plugins.list()[0].isolation, Some(Isolation::Process));
    fs::write(
        cloud.path().join("knobs.json"),
        json!({"offers": 1750}).to_string(),
    )
    .unwrap();
    let fake = plugins
        .open("fake", &json!({"type": "fake", "folder": cloud.path()}))
        .await
        .unwrap();
    let mut sizes = Vec::new();
    fake.get_offers_in_chunks(&all_offers(), |chunk| sizes.push(chunk.len()))
        .await
        .unwrap();
    assert_eq!(sizes, [500, 500, 500, 250]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_at_once_in_a_process_too() {
    let bad = Bad::with(
        Limits {
            threads: 2,
            queue: 3,
            ..limits()
        },
        Isolation::Process,
    );
    let backend = bad.open("block").await;
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let backend = backend.clone();
            tokio::spawn(async move { backend.health().await })
        })
        .collect();
    until("two run, three wait", || {
        let stats = bad.plugins.stats();
        (stats["misbehaving"].running, stats["misbehaving"].waiting) == (2, 3)
    })
    .await;
    let error = backend.health().await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unavailable && error.to_string().contains("3 calls are waiting"),
        "{error}"
    );
    bad.release();
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_written_over_in_place_is_not_loaded_again() {
    let bad = bad();
    health(&bad.open("abort").await).await.unwrap_err();
    let path = bad.folder.path().join("bad.so");
    rewrite_in_place(&path);
    let error = bad
        .plugins
        .open("misbehaving", &bad.config("good"))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("rename it over this one"),
        "{error}"
    );
    // A look through the folders takes the new content.
    bad.plugins.reload().await;
    assert_eq!(health(&bad.open("good").await).await.unwrap(), "good");
}

fn rewrite_in_place(path: &Path) {
    let bytes = fs::read(path).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    fs::write(path, bytes).unwrap();
}
