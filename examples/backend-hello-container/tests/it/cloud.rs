//! A fake of the API in the README.

use dstack_backend_conformance::{FakeProvider, Reply, Request, Resource, Scenario};
use serde_json::{Value, json};

const KEY: &str = "hello-secret-key";
/// Items of a page.
const PAGE: usize = 2;

/// A section of `config.yml` that this cloud accepts.
pub(crate) fn config() -> Value {
    json!({"type": "hello-container", "regions": [], "creds": {"api_key": KEY}})
}

#[derive(Default)]
pub(crate) struct Cloud {
    pods: Vec<Value>,
    made: u64,
    fails_late: bool,
}

fn refused(status: u16, code: &str) -> Reply {
    let message = format!("refused: {code}");
    Reply::json(status, &json!({"code": code, "message": message}))
}

fn list(cloud: &mut Cloud, request: &Request) -> Reply {
    let page = request.query("page").and_then(|word| word.parse().ok());
    let page: usize = page.unwrap_or(1);
    let pods = cloud.pods.iter().skip(page.saturating_sub(1) * PAGE);
    let items: Vec<&Value> = pods.take(PAGE).collect();
    let pages = cloud.pods.len().div_ceil(PAGE);
    Reply::json(200, &json!({"items": items, "pages": pages}))
}

fn add(cloud: &mut Cloud, request: &Request) -> Reply {
    cloud.made += 1;
    let mut pod = request.json();
    pod["id"] = json!(format!("pod-{}", cloud.made));
    pod["state"] = json!("pulling");
    pod["ports"] = json!({});
    pod["created_at_us"] = json!(1_767_225_600_000_000_i64);
    cloud.pods.push(pod.clone());
    Reply::json(201, &pod)
}

/// A look finds the container one step further than the last: this cloud has no clock.
fn look(cloud: &mut Cloud, request: &Request) -> Reply {
    let fails_late = cloud.fails_late;
    let id = request.param("id");
    let Some(pod) = cloud.pods.iter_mut().find(|pod| pod["id"] == id) else {
        return refused(404, "not_found");
    };
    let seen = Reply::json(200, pod);
    if fails_late {
        pod["state"] = json!("failed");
    } else {
        pod["state"] = json!("running");
        pod["host"] = json!("203.0.113.9");
        pod["ports"] = json!({"10022": 31022});
    }
    seen
}

pub(crate) fn fake() -> FakeProvider<Cloud> {
    FakeProvider::new(Cloud::default)
        .guard(|_, request| {
            (request.header("x-api-key") != Some(KEY)).then(|| refused(401, "unauthorized"))
        })
        .route("GET /v1/account", |_, _| {
            Reply::json(200, &json!({"name": "me"}))
        })
        .route("GET /v1/pods", list)
        .route("POST /v1/pods", add)
        .route("GET /v1/pods/{id}", look)
        .route("DELETE /v1/pods/{id}", |cloud, request| {
            let count = cloud.pods.len();
            cloud.pods.retain(|pod| pod["id"] != request.param("id"));
            Reply::empty(if cloud.pods.len() < count { 204 } else { 404 })
        })
        .inventory(|cloud| {
            let resource = |pod: &Value| {
                let name = pod["name"].as_str().unwrap_or_default();
                let reference = name.rsplit_once("-r").map(|(_, reference)| reference);
                Resource::new("pod", pod["id"].as_str().unwrap_or_default()).with_ref(reference)
            };
            cloud.pods.iter().map(resource).collect()
        })
        .scenario(Scenario::NoCapacity, |_, request| {
            request
                .is("POST /v1/pods")
                .then(|| refused(409, "sold_out"))
        })
        .scenario(Scenario::NoCapacityLate, |cloud, _| {
            cloud.fails_late = true;
            None
        })
        .scenario(Scenario::Quota, |_, request| {
            request
                .is("POST /v1/pods")
                .then(|| refused(403, "limit_reached"))
        })
}
