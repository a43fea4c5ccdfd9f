//! Calls that go wrong in every way: the host stays well.

use crate::place::{Bad, until};
use dstack_backend_types::{
    BackendError, ErrorKind, Requirements,
    methods::{CreateConfigRequest, GetOffersRequest, HealthRequest, ListResourceGroupsRequest},
    resources::ResourcesSpec,
};
use dstack_plugins::{Backend, CallError, Limits, PluginState};
use serde_json::json;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(150);

fn limits() -> Limits {
    Limits {
        grace: Duration::from_millis(100),
        ..Limits::default()
    }
}

async fn health(backend: &Backend) -> Result<String, CallError> {
    backend
        .health()
        .await
        .map(|reply| reply.message.unwrap_or_default())
}

async fn short(backend: &Backend) -> ErrorKind {
    backend
        .call_within(&HealthRequest {}, SHORT)
        .await
        .unwrap_err()
        .kind()
}

#[tokio::test]
async fn a_panic_is_a_typed_error_and_the_backend_goes_on() {
    let bad = Bad::new(limits());
    let panics = bad.open("panic").await;
    for _ in 0..10 {
        let error = health(&panics).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panic);
        assert_eq!(
            error.to_string(),
            "backend misbehaving: health: the backend panicked: a bug in the backend"
        );
    }
    assert_eq!(health(&bad.open("good").await).await.unwrap(), "good");
    assert_eq!(bad.plugins.list()[0].state, PluginState::Loaded);
}

#[tokio::test(flavor = "multi_thread")]
async fn naps_threads_that_stay_and_an_endless_loop_harm_no_other_call() {
    let bad = Bad::new(limits());
    let good = bad.open("good").await;
    assert_eq!(short(&bad.open("endless").await).await, ErrorKind::Timeout);
    for mode in ["slow_drip", "threads_left", "log"] {
        let answer = health(&bad.open(mode).await).await.unwrap();
        assert_eq!(answer, "good", "{mode}");
        assert_eq!(health(&good).await.unwrap(), "good", "{mode}");
    }
    let error = bad.plugins.list()[0].error.clone().unwrap_or_default();
    assert!(error.contains('1'), "one thread is lost: {error}");
}

#[tokio::test]
async fn a_refused_configuration_is_its_own_error() {
    let bad = Bad::new(limits());
    let error = bad
        .plugins
        .open("misbehaving", &bad.config("refuse_config"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert_eq!(error.error.details["fields"], json!(["token"]));
    let error = bad
        .plugins
        .open("misbehaving", &json!({"mode": "no such"}))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_deadline_ends_what_waits_for_the_host_and_its_thread_comes_back() {
    let bad = Bad::new(limits());
    for mode in ["sleep", "ignore_cancel", "threads"] {
        let backend = bad.open(mode).await;
        assert_eq!(short(&backend).await, ErrorKind::Timeout, "{mode}");
        // A success closes the breaker, which three time-outs in a row would open.
        assert_eq!(health(&bad.open("good").await).await.unwrap(), "good");
    }
    // No thread was lost: the state would say so.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bad.plugins.list()[0].error, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_that_never_come_back_are_lost_and_the_third_switches_the_backend_off() {
    let bad = Bad::new(limits());
    let good = bad.open("good").await;
    for (lost, mode) in [(1, "block"), (2, "busy"), (3, "block")] {
        let backend = bad.open(mode).await;
        assert_eq!(short(&backend).await, ErrorKind::Timeout);
        until("the thread is lost", || {
            bad.plugins.list()[0]
                .error
                .as_deref()
                .is_some_and(|e| e.contains(&lost.to_string()))
        })
        .await;
        if lost < 3 {
            assert_eq!(health(&good).await.unwrap(), "good");
        }
    }
    assert_eq!(bad.plugins.list()[0].state, PluginState::Unavailable);
    let error = health(&good).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unavailable
            && error.to_string().contains("3 calls never came back"),
        "{error}"
    );
    // What was lost comes back: it is counted no more.
    bad.release();
    until("the threads are back", || {
        bad.plugins.list()[0].state == PluginState::Loaded
    })
    .await;
    assert_eq!(health(&good).await.unwrap(), "good");
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_what_waits_is_served() {
    let bad = Bad::new(Limits {
        threads: 2,
        queue: 3,
        ..limits()
    });
    let backend = bad.open("block").await;
    let deadline = Duration::from_secs(20);
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let backend = backend.clone();
            tokio::spawn(async move { backend.call_within(&HealthRequest {}, deadline).await })
        })
        .collect();
    tokio::task::yield_now().await;
    // Two run or are about to, three wait.
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

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_call() {
    let bad = Bad::new(limits());
    let backend = bad.open("sleep").await;
    let call = tokio::spawn({
        let backend = backend.clone();
        async move { backend.health().await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let folder = bad.folder.path().join("closed");
    drop(backend);
    // Closing waits for the last running call, so it shows that the call is over.
    until("the backend is closed", || folder.exists()).await;
}

#[tokio::test]
async fn three_timeouts_in_a_row_open_the_breaker_and_an_answer_closes_it() {
    let bad = Bad::new(Limits {
        lost_threads: 100,
        ..limits()
    });
    let backend = bad.open("sleep").await;
    for _ in 0..3 {
        assert_eq!(short(&backend).await, ErrorKind::Timeout);
    }
    assert_eq!(bad.plugins.list()[0].state, PluginState::Unhealthy);
    let good = bad.open("good").await;
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
}

#[tokio::test]
async fn offers_that_hang_hold_up_nothing_else() {
    let bad = Bad::new(Limits {
        threads: 4,
        ..limits()
    });
    let backend = bad.open("block").await;
    let request = GetOffersRequest {
        requirements: Requirements::of(ResourcesSpec::default()),
        full_offers: false,
        unallocated_resources: false,
        image: None,
    };
    let hanging: Vec<_> = (0..8)
        .map(|_| {
            let (backend, request) = (backend.clone(), request.clone());
            tokio::spawn(async move { backend.get_offers(&request).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    backend.terminate_instance("x", "y", None).await.unwrap();
    bad.release();
    for call in hanging {
        assert!(call.await.unwrap().unwrap().is_empty());
    }
}

#[tokio::test]
async fn one_computation_serves_all_that_wait() {
    let bad = Bad::new(limits());
    let backend = bad.open("cached").await;
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let backend = backend.clone();
            tokio::spawn(async move { health(&backend).await.unwrap() })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), "1");
    }
    // Another opened backend has a cache of its own.
    assert_eq!(health(&bad.open("cached").await).await.unwrap(), "1");
}

#[tokio::test]
async fn services_are_described_and_answer() {
    let bad = Bad::new(limits());
    let text = health(&bad.open("services").await).await.unwrap();
    let (services, rest) = text.split_once(' ').unwrap();
    let numbers: Vec<u32> = services
        .split(',')
        .map(|number| number.parse().unwrap())
        .collect();
    assert!(
        [0, 3, 4, 5, 6, 7, 8, 9]
            .iter()
            .all(|number| numbers.contains(number))
            && !numbers.contains(&12),
        "{text}"
    );
    assert!(rest.starts_with("8 20"), "{text}");
}

#[tokio::test]
async fn what_a_plugin_may_not_do_is_unsupported() {
    let bad = Bad::new(limits());
    assert_eq!(
        health(&bad.open("machine").await).await.unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(
        health(&bad.open("emit").await).await.unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    let good = bad.open("good").await;
    let error = good
        .call(&ListResourceGroupsRequest::default())
        .await
        .unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unsupported && error.to_string().contains("resource_listing"),
        "{error}"
    );
}

#[tokio::test]
async fn a_backend_is_kept_while_its_configuration_is_the_same_and_closed_after() {
    let bad = Bad::new(limits());
    let closed = bad.folder.path().join("closed");
    let first = bad
        .plugins
        .backend("main", "misbehaving", &bad.config("cached"))
        .await
        .unwrap();
    assert_eq!(health(&first).await.unwrap(), "1");
    let again = bad
        .plugins
        .backend("main", "misbehaving", &bad.config("cached"))
        .await
        .unwrap();
    assert_eq!(health(&again).await.unwrap(), "1");
    drop((first, again));
    assert!(!closed.exists());
    bad.plugins
        .backend("main", "misbehaving", &bad.config("good"))
        .await
        .unwrap();
    until("the old one is closed", || closed.exists()).await;
    std::fs::remove_file(&closed).unwrap();
    bad.plugins.forget("other", None);
    bad.plugins.forget("main", Some("other"));
    assert!(!closed.exists());
    bad.plugins.forget("main", None);
    until("the forgotten one is closed", || closed.exists()).await;
}

#[tokio::test]
async fn shutting_down_ends_running_calls() {
    let bad = Bad::new(limits());
    let backend = bad.open("sleep").await;
    let call = tokio::spawn(async move { backend.health().await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    bad.plugins.shut_down().await;
    assert_eq!(
        call.await.unwrap().unwrap_err().kind(),
        ErrorKind::Cancelled
    );
}

#[tokio::test]
async fn a_request_that_is_too_large_never_leaves() {
    let bad = Bad::new(limits());
    let configurator = bad.open("good").await;
    let mut config = serde_json::Map::new();
    config.insert("mode".to_owned(), "x".repeat(9 << 20).into());
    let request = CreateConfigRequest {
        project_name: String::new(),
        config: dstack_backend_types::methods::ConfigWithCreds(config),
    };
    let error: BackendError = configurator.call(&request).await.unwrap_err().error;
    assert!(
        error.kind == ErrorKind::Invalid && error.message.contains("at most"),
        "{error}"
    );
}
