//! A fake of the API in the README.

use dstack_backend_conformance::{FakeProvider, Reply, Request, Resource, Scenario};
use serde_json::{Value, json};

const KEY: &str = "hello-secret-key";
const SERVERS: &str = "servers";
const VOLUMES: &str = "volumes";
/// Items of a page.
const PAGE: usize = 2;

/// A section of `config.yml` that this cloud accepts.
pub(crate) fn config() -> Value {
    json!({"type": "hello", "regions": [], "creds": {"api_key": KEY}})
}

#[derive(Default)]
pub(crate) struct Cloud {
    servers: Vec<Value>,
    volumes: Vec<Value>,
    made: u64,
    fails_late: bool,
}

impl Cloud {
    fn items(&mut self, kind: &str) -> &mut Vec<Value> {
        if kind == SERVERS {
            &mut self.servers
        } else {
            &mut self.volumes
        }
    }

    fn add(&mut self, kind: &str, request: &Request, more: Value) -> Reply {
        self.made += 1;
        let mut item = request.json();
        item["id"] = json!(format!("{kind}-{}", self.made));
        for (key, value) in more.as_object().into_iter().flatten() {
            item[key] = value.clone();
        }
        self.items(kind).push(item.clone());
        Reply::json(201, &item)
    }

    /// A page of the items with the tag asked for.
    fn page(&mut self, kind: &str, request: &Request) -> Reply {
        let tag = request.query("tag").and_then(|tag| tag.split_once(':'));
        let begin = request.query("after").and_then(|word| word.parse().ok());
        let begin: usize = begin.unwrap_or_default();
        let fits = |item: &&Value| tag.is_none_or(|(key, value)| item["tags"][key] == value);
        let found: Vec<Value> = self.items(kind).iter().filter(fits).cloned().collect();
        let end = (begin + PAGE).min(found.len());
        let next = (end < found.len()).then(|| end.to_string());
        let page = found.get(begin..end).unwrap_or_default();
        Reply::json(200, &json!({kind: page, "next": next}))
    }

    fn with(&mut self, kind: &str, id: &str, answer: impl FnOnce(&mut Value) -> Reply) -> Reply {
        match self.items(kind).iter_mut().find(|item| item["id"] == id) {
            Some(item) => answer(item),
            None => refused(404, "not_found"),
        }
    }
}

fn refused(status: u16, code: &str) -> Reply {
    let message = format!("refused: {code}");
    Reply::json(status, &json!({"code": code, "message": message}))
}

fn plan(name: &str, region: &str, price: f64, cpu: u32, gpus: u32) -> Value {
    json!({
        "instance_name": name, "location": region, "price": price, "cpu": cpu, "memory": cpu * 4, "gpu_count": gpus,
        "gpu_name": (gpus > 0).then_some("L4"), "gpu_memory": (gpus > 0).then_some(24), "availability": "available",
    })
}

/// A look finds the machine one step further than the last: this cloud has no clock.
fn look(cloud: &mut Cloud, request: &Request) -> Reply {
    let (id, fails_late) = (request.param("id").to_owned(), cloud.fails_late);
    let reply = cloud.with(SERVERS, &id, |server| {
        let seen = Reply::json(200, server);
        match server["state"].as_str() {
            Some("deleting") => server["state"] = json!("gone"),
            _ if fails_late => server["state"] = json!("failed"),
            _ => {
                server["state"] = json!("running");
                server["ip"] = json!("203.0.113.7");
                server["private_ip"] = json!("10.0.0.7");
            }
        }
        seen
    });
    cloud.servers.retain(|server| server["state"] != "gone");
    reply
}

fn attach(cloud: &mut Cloud, request: &Request) -> Reply {
    let body = request.json();
    cloud.with(VOLUMES, request.param("id"), |volume| {
        if !volume["server_id"].is_null() && volume["server_id"] != body["server_id"] {
            return refused(409, "in_use");
        }
        volume["server_id"] = body["server_id"].clone();
        volume["device"] = json!("/dev/vdb");
        Reply::json(200, volume)
    })
}

fn volumes(provider: FakeProvider<Cloud>) -> FakeProvider<Cloud> {
    provider
        .route("GET /v1/volumes", |cloud, request| {
            cloud.page(VOLUMES, request)
        })
        .route("POST /v1/volumes", |cloud, request| {
            cloud.add(VOLUMES, request, json!({"server_id": null}))
        })
        .route("GET /v1/volumes/{id}", |cloud, request| {
            cloud.with(VOLUMES, request.param("id"), |volume| {
                Reply::json(200, volume)
            })
        })
        .route("DELETE /v1/volumes/{id}", |cloud, request| {
            let count = cloud.volumes.len();
            cloud
                .volumes
                .retain(|volume| volume["id"] != request.param("id"));
            Reply::empty(if cloud.volumes.len() < count {
                204
            } else {
                404
            })
        })
        .route("POST /v1/volumes/{id}/attach", attach)
        .route("POST /v1/volumes/{id}/detach", |cloud, request| {
            let server_id = request.json()["server_id"].clone();
            cloud.with(VOLUMES, request.param("id"), |volume| {
                if volume["server_id"] == server_id {
                    volume["server_id"] = Value::Null;
                }
                Reply::json(200, volume)
            })
        })
}

pub(crate) fn fake() -> FakeProvider<Cloud> {
    volumes(FakeProvider::new(Cloud::default))
        .guard(|_, request| (request.bearer() != Some(KEY)).then(|| refused(401, "unauthorized")))
        .route("GET /v1/account", |_, _| {
            Reply::json(200, &json!({"name": "me"}))
        })
        .route("GET /v1/plans", |_, _| {
            Reply::json(
                200,
                &json!([
                    plan("small", "moon", 0.05, 2, 0),
                    plan("small", "mars", 0.06, 2, 0),
                    plan("gpu", "moon", 0.8, 8, 1),
                    plan("gpu8", "mars", 6.4, 64, 8),
                ]),
            )
        })
        .route("GET /v1/servers", |cloud, request| {
            cloud.page(SERVERS, request)
        })
        .route("POST /v1/servers", |cloud, request| {
            let made = json!({"state": "booting", "created_at_us": 1_767_225_600_000_000_i64});
            cloud.add(SERVERS, request, made)
        })
        .route("GET /v1/servers/{id}", look)
        .route("DELETE /v1/servers/{id}", |cloud, request| {
            let id = request.param("id").to_owned();
            for volume in cloud
                .volumes
                .iter_mut()
                .filter(|volume| volume["server_id"] == *id)
            {
                volume["server_id"] = Value::Null;
            }
            cloud.with(SERVERS, &id, |server| {
                server["state"] = json!("deleting");
                Reply::empty(202)
            })
        })
        .inventory(|cloud| {
            let resource = |kind: &str, item: &Value| {
                let id = item["id"].as_str().unwrap_or_default();
                Resource::new(kind, id).with_ref(item["tags"]["dstack_provider_ref"].as_str())
            };
            let servers = cloud
                .servers
                .iter()
                .filter(|server| server["state"] != "deleting");
            let servers = servers.map(|item| resource("server", item));
            servers
                .chain(cloud.volumes.iter().map(|item| resource("volume", item)))
                .collect()
        })
        .scenario(Scenario::NoCapacity, |_, request| {
            request
                .is("POST /v1/servers")
                .then(|| refused(409, "sold_out"))
        })
        .scenario(Scenario::NoCapacityLate, |cloud, _| {
            cloud.fails_late = true;
            None
        })
        .scenario(Scenario::Quota, |_, request| {
            request
                .is("POST /v1/servers")
                .then(|| refused(403, "limit_reached"))
        })
        .scenario(Scenario::VolumeQuota, |_, request| {
            request
                .is("POST /v1/volumes")
                .then(|| refused(403, "limit_reached"))
        })
}
