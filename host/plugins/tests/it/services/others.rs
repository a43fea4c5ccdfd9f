//! Catalog, ledger, SSH, environment, and what `describe` tells.

use super::{Probe, error_of};
use dstack_backend_types::{AgentUrls, BackendError, ErrorKind, services as wire};
use dstack_plugins::{Caller, ExternalService, ServiceAnswer, Variables};
use serde_json::json;
use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Keeps what it is asked.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<(Caller, String)>>);

impl ExternalService for Kept {
    fn version(&self) -> u32 {
        3
    }
    fn answer<'a>(&'a self, caller: &'a Caller, request: &'a [u8]) -> ServiceAnswer<'a> {
        Box::pin(async move {
            let text = String::from_utf8_lossy(request).into_owned();
            self.0.lock().unwrap().push((caller.clone(), text));
            Ok(b"null".to_vec())
        })
    }
}

/// Never answers.
#[derive(Debug)]
struct Slow;

impl ExternalService for Slow {
    fn answer<'a>(&'a self, _: &'a Caller, _: &'a [u8]) -> ServiceAnswer<'a> {
        Box::pin(std::future::pending())
    }
}

#[derive(Debug)]
struct Vars;

impl Variables for Vars {
    fn get(&self, name: &str) -> Option<String> {
        (name != "PROBE_UNSET").then(|| format!("value of {name}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_learns_who_asks_even_after_a_cancel() {
    let kept = Arc::new(Kept::default());
    let of_host = Arc::clone(&kept);
    let probe = Probe::with(|config| {
        config.external = std::mem::take(&mut config.external).with(wire::LEDGER, of_host);
    });
    let steps = json!([
        {"do": "declare", "provider_ref": "r1", "kind": "disk", "name": "d", "attributes": {"zone": "a"}},
        {"do": "sleep", "ms": 600_000},
        {"do": "settle", "provider_ref": "r1", "kind": "disk", "name": "d"},
    ]);
    let limit = Duration::from_millis(300);
    let error = probe.run_within(steps, limit).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    crate::place::until("both arrive", || kept.0.lock().unwrap().len() == 2).await;
    let kept = kept.0.lock().unwrap();
    let (caller, declared) = &kept[0];
    assert_eq!(caller.backend, "probe");
    assert_eq!(caller.project.as_deref(), Some("project-1"));
    assert!(caller.call > 0);
    let declared: wire::LedgerRequest = serde_json::from_str(declared).unwrap();
    let wire::LedgerRequest::Declare { resource } = declared else {
        panic!("{declared:?}");
    };
    assert_eq!(
        (resource.kind.as_str(), &resource.attributes["zone"]),
        ("disk", &json!("a"))
    );
    assert!(kept[1].1.contains("settle"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_entry_that_names_nothing_is_refused() {
    let kept = Arc::new(Kept::default());
    let of_host = Arc::clone(&kept);
    let probe = Probe::with(|config| {
        config.external = std::mem::take(&mut config.external).with(wire::LEDGER, of_host);
    });
    for step in [
        json!({"do": "declare", "kind": "disk", "name": "d"}),
        json!({"do": "declare", "provider_ref": "r", "name": "d"}),
        json!({"do": "settle", "provider_ref": "r", "kind": "disk"}),
        json!({"do": "declare", "provider_ref": "r", "kind": "disk", "name": "n".repeat(600)}),
        json!({"do": "declare", "provider_ref": "r", "kind": "disk", "name": "d", "attributes": {"a": "x".repeat(20_000)}}),
    ] {
        assert_eq!(
            probe.error(step.clone()).await.kind,
            ErrorKind::Invalid,
            "{step}"
        );
    }
    assert_eq!(kept.0.lock().unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_is_checked_handed_over_and_ends_with_the_call() {
    let probe = Probe::with(|config| {
        config.external = std::mem::take(&mut config.external).with(wire::SSH, Arc::new(Slow));
    });
    let good = json!({"do": "ssh", "host": "h", "user": "u", "key": "k", "command": "true"});
    let error = probe
        .run_within(json!([good]), Duration::from_millis(200))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(probe.plugins.list()[0].error, None);
    let error = probe
        .error(json!({"do": "ssh", "host": "", "user": "u", "key": "k", "command": "true"}))
        .await;
    assert_eq!(error.kind, ErrorKind::Invalid);
    // Without the service it is said so.
    assert_eq!(Probe::new().error(good).await.kind, ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_lies_beside_the_plugin() {
    let probe = Probe::new();
    let step = json!({"do": "catalog", "provider": "acme"});
    let error = probe.error(step.clone()).await;
    assert_eq!(error.kind, ErrorKind::NoCatalog);
    let text =
        "instance_name,location,price,cpu,memory,gpu_count,spot\nsmall,north,1,2,8,0,False\n";
    fs::write(probe.folder.path().join("acme.catalog.csv"), text).unwrap();
    assert_eq!(probe.one(step).await, json!(["small"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_are_those_of_the_manifest() {
    let step = |names: &[&str]| json!({"do": "environment", "names": names});
    let probe = Probe::with(|config| config.variables = Some(Arc::new(Vars)));
    let given = probe.one(step(&["PROBE_TOKEN", "PROBE_UNSET"])).await;
    assert_eq!(given, json!({"PROBE_TOKEN": "value of PROBE_TOKEN"}));
    let error: BackendError = probe.error(step(&["PROBE_TOKEN", "HOME"])).await;
    assert_eq!(error.kind, ErrorKind::Auth);
    assert!(error.message.contains("HOME"), "{error}");
    let error = Probe::new().error(step(&["PROBE_TOKEN"])).await;
    assert_eq!(error.kind, ErrorKind::Auth);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_tells_what_it_has() {
    let agents = AgentUrls {
        shim: "https://s.example/agents/{version}/{arch}/dstack-shim".to_owned(),
        runner: "https://s.example/agents/{version}/{arch}/dstack-runner".to_owned(),
        version: "1.2.3".to_owned(),
    };
    let given = agents.clone();
    let probe = Probe::with(|config| {
        config.agents = Some(given);
        config.external =
            std::mem::take(&mut config.external).with(wire::SSH, Arc::new(Kept::default()));
    });
    let told = probe.one(json!({"do": "describe"})).await;
    let told: wire::Described = serde_json::from_value(told).unwrap();
    assert_eq!(told.agents, Some(agents));
    assert_eq!(told.services["11"], 3);
    for number in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "13"] {
        assert_eq!(told.services[number], 1, "{number}");
    }
    assert_eq!(told.services.get("10"), None, "no ledger here");
    assert_eq!(told.services.get("12"), None, "this machine is for `local`");
    let results = Probe::new()
        .run(json!([{"do": "describe"}, {"do": "raw", "service": 12, "text": "{}"}]))
        .await;
    assert_eq!(results[0]["agents"], json!(null));
    assert_eq!(error_of(&results[1]).kind, ErrorKind::Unsupported);
}
