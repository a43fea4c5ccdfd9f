//! A fake of the provider.
// FILL-IN: answers as the provider's documentation says: paths, shapes, states, codes of errors.

use dstack_backend_conformance::{FakeProvider, Reply, Request, Resource, Scenario};
use serde_json::{Value, json};

/// Items of a page.
const PAGE: usize = 2;
//? vm
const ITEMS: &str = "servers";
const MAKE: &str = "POST /v1/servers";
//? container
const ITEMS: &str = "pods";
const MAKE: &str = "POST /v1/pods";
//?

fn creds() -> Value {
    //? bearer
    json!({"api_key": "secret-key-of-a-test"})
    //? basic
    json!({"user": "me", "password": "secret-word-of-a-test"})
    //? signed
    json!({"access_key": "AKIDTEST", "secret_key": "secret-key-of-a-test"})
    //?
}

/// A section of `config.yml` that this cloud accepts.
pub(crate) fn config() -> Value {
    json!({"type": "__name__", "creds": creds()})
}

fn is_logged_in(request: &Request) -> bool {
    //? bearer
    request.bearer() == creds()["api_key"].as_str()
    //? basic
    let (user, password) = request.basic().unwrap_or_default();
    creds() == json!({"user": user, "password": password})
    //? signed
    let header = request.header("authorization").unwrap_or_default();
    header.starts_with("AWS4-HMAC-SHA256 Credential=AKIDTEST/")
    //?
}

#[derive(Default)]
pub(crate) struct Cloud {
    items: Vec<Value>,
    made: u64,
    fails_late: bool,
}

fn refused(status: u16, code: &str) -> Reply {
    let message = format!("refused: {code}");
    Reply::json(status, &json!({"code": code, "message": message}))
}

fn list(cloud: &mut Cloud, request: &Request) -> Reply {
    let tag = request.query("tag").and_then(|tag| tag.split_once(':'));
    let begin = request.query("after").and_then(|word| word.parse().ok());
    let begin: usize = begin.unwrap_or_default();
    let fits = |item: &&Value| tag.is_none_or(|(key, value)| item["tags"][key] == value);
    let found: Vec<Value> = cloud.items.iter().filter(fits).cloned().collect();
    let end = (begin + PAGE).min(found.len());
    let next = (end < found.len()).then(|| end.to_string());
    let page = found.get(begin..end).unwrap_or_default();
    Reply::json(200, &json!({ITEMS: page, "next": next}))
}

fn make(cloud: &mut Cloud, request: &Request) -> Reply {
    cloud.made += 1;
    let mut item = request.json();
    item["id"] = json!(format!("i-{}", cloud.made));
    item["state"] = json!("starting");
    item["created_at_us"] = json!(1_767_225_600_000_000_i64);
    //? container
    item["ports"] = json!({});
    //?
    cloud.items.push(item.clone());
    Reply::json(201, &item)
}

/// A look finds the instance one step further than the last: this cloud has no clock.
fn look(cloud: &mut Cloud, request: &Request) -> Reply {
    let (id, fails_late) = (request.param("id"), cloud.fails_late);
    let Some(item) = cloud.items.iter_mut().find(|item| item["id"] == id) else {
        return refused(404, "not_found");
    };
    let seen = Reply::json(200, item);
    if item["state"] == "deleting" {
        cloud.items.retain(|item| item["id"] != id);
    } else if fails_late {
        item["state"] = json!("failed");
    } else {
        item["state"] = json!("running");
        //? vm
        item["ip"] = json!("203.0.113.7");
        item["private_ip"] = json!("10.0.0.7");
        //? container
        item["host"] = json!("203.0.113.9");
        item["ports"] = json!({"10022": 31022});
        //?
    }
    seen
}

fn delete(cloud: &mut Cloud, request: &Request) -> Reply {
    let id = request.param("id");
    match cloud.items.iter_mut().find(|item| item["id"] == id) {
        Some(item) => {
            item["state"] = json!("deleting");
            Reply::empty(202)
        }
        None => refused(404, "not_found"),
    }
}

fn resource(item: &Value) -> Resource {
    let id = item["id"].as_str().unwrap_or_default();
    //? vm
    let reference = item["tags"]["dstack_provider_ref"].as_str();
    //? container
    let name = item["name"].as_str().unwrap_or_default();
    let reference = name.rsplit_once("-r").map(|(_, reference)| reference);
    //?
    Resource::new("instance", id).with_ref(reference)
}

pub(crate) fn fake() -> FakeProvider<Cloud> {
    FakeProvider::new(Cloud::default)
        .guard(|_, request| (!is_logged_in(request)).then(|| refused(401, "unauthorized")))
        .route("GET /v1/account", |_, _| {
            Reply::json(200, &json!({"name": "me"}))
        })
        .route(MAKE, make)
        .route(&MAKE.replace("POST", "GET"), list)
        .route(&format!("{}/{{id}}", MAKE.replace("POST", "GET")), look)
        .route(
            &format!("{}/{{id}}", MAKE.replace("POST", "DELETE")),
            delete,
        )
        // What costs money now: the suite looks for things that were left behind.
        .inventory(|cloud| {
            let items = cloud.items.iter();
            let standing = items.filter(|item| item["state"] != "deleting");
            standing.map(resource).collect()
        })
        .scenario(Scenario::NoCapacity, |_, request| {
            request.is(MAKE).then(|| refused(409, "sold_out"))
        })
        .scenario(Scenario::NoCapacityLate, |cloud, _| {
            cloud.fails_late = true;
            None
        })
        .scenario(Scenario::Quota, |_, request| {
            request.is(MAKE).then(|| refused(403, "limit_reached"))
        })
}
