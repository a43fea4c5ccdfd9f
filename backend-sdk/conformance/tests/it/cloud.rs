//! The fake provider of the plugin `wrong`: machines, disks, volumes.

use std::path::PathBuf;

use dstack_backend_conformance::{
    FakeProvider, Provider, Reply, Request, Resource, Scenario, Suite,
};
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "wrong-token-0123456789";

#[derive(Debug, Default)]
pub(crate) struct Cloud {
    things: Vec<Value>,
    next: u32,
}

fn text<'a>(thing: &'a Value, key: &str) -> &'a str {
    thing[key].as_str().unwrap_or_default()
}

impl Cloud {
    fn add(&mut self, kind: &str, request: &Request) -> Value {
        self.next += 1;
        let mut thing = request.json();
        thing["kind"] = json!(kind);
        thing["id"] = json!(format!("{kind}-{}", self.next));
        thing["state"] = json!("booting");
        self.things.push(thing.clone());
        thing
    }

    fn list(&self, kind: &str, request: &Request) -> Reply {
        let fits = |thing: &&Value| {
            text(thing, "kind") == kind
                && ["reference", "region"].iter().all(|key| {
                    request
                        .query(key)
                        .is_none_or(|asked| asked == text(thing, key))
                })
        };
        Reply::json(200, &self.things.iter().filter(fits).collect::<Vec<_>>())
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.things.iter().position(|thing| text(thing, "id") == id)
    }

    /// A look finds a machine one step further: this cloud has no clock.
    fn look(&mut self, id: &str) -> Reply {
        let Some(at) = self.position(id) else {
            return Reply::json(404, &json!({"code": "unknown"}));
        };
        let seen = self.things[at].clone();
        match text(&seen, "state") {
            "booting" => {
                self.things[at]["state"] = json!("running");
                self.things[at]["address"] = json!("203.0.113.7");
            }
            "deleting" => {
                self.things.remove(at);
            }
            _ => {}
        }
        Reply::json(200, &seen)
    }

    /// Puts a machine behind a load balancer, or takes it out: 404 if it is not behind it.
    fn join(&mut self, id: &str, member: &str, is_in: bool) -> Reply {
        let Some(at) = self.position(id) else {
            return Reply::json(404, &json!({"code": "unknown"}));
        };
        let was_in = self.things[at][member] == json!(true);
        self.things[at][member] = json!(is_in);
        if is_in || was_in {
            Reply::empty(204)
        } else {
            Reply::json(404, &json!({"code": "no member"}))
        }
    }

    fn delete(&mut self, id: &str) -> Reply {
        match self.position(id) {
            None => Reply::json(404, &json!({"code": "unknown"})),
            Some(at) if text(&self.things[at], "kind") == "machine" => {
                self.things[at]["state"] = json!("deleting");
                Reply::empty(202)
            }
            Some(at) => {
                self.things.remove(at);
                Reply::empty(204)
            }
        }
    }
}

fn types() -> Value {
    let gpu = json!([{"name": "A100", "memory_mib": 81_920}]);
    json!([
        {"name": "gpu", "region": "south", "cpus": 12, "memory_gib": 96, "gpus": gpu, "price": 2.5},
        {"name": "small", "region": "north", "cpus": 2, "memory_gib": 8, "gpus": [], "price": 0.05},
        {"name": "large", "region": "north", "cpus": 16, "memory_gib": 64, "gpus": [], "price": 0.4},
        {"name": "small", "region": "south", "cpus": 2, "memory_gib": 8, "gpus": [], "price": 0.06},
    ])
}

fn is_creation(request: &Request) -> bool {
    request.is("POST /v1/machines")
}

/// Gateways, load balancers, placement groups, nodes.
fn with_extras(provider: FakeProvider<Cloud>) -> FakeProvider<Cloud> {
    provider
        .route("GET /v1/gateways", |cloud, request| {
            cloud.list("gateway", request)
        })
        .route("POST /v1/gateways", |cloud, request| {
            Reply::json(201, &cloud.add("gateway", request))
        })
        .route("GET /v1/gateways/{id}", |cloud, request| {
            cloud.look(request.param("id"))
        })
        .route("DELETE /v1/gateways/{id}", |cloud, request| {
            cloud.delete(request.param("id"))
        })
        .route("POST /v1/balancers", |cloud, request| {
            Reply::json(201, &cloud.add("balancer", request))
        })
        .route("DELETE /v1/balancers/{id}", |cloud, request| {
            cloud.delete(request.param("id"))
        })
        .route(
            "PUT /v1/balancers/{id}/members/{member}",
            |cloud, request| cloud.join(request.param("id"), request.param("member"), true),
        )
        .route(
            "DELETE /v1/balancers/{id}/members/{member}",
            |cloud, request| cloud.join(request.param("id"), request.param("member"), false),
        )
        .route("POST /v1/groups", |cloud, request| {
            Reply::json(201, &cloud.add("group", request))
        })
        .route("DELETE /v1/groups/{id}", |cloud, request| {
            cloud.delete(request.param("id"))
        })
        .route("POST /v1/nodes", |cloud, request| {
            Reply::json(201, &cloud.add("node", request))
        })
        .route("DELETE /v1/nodes/{id}", |cloud, request| {
            cloud.delete(request.param("id"))
        })
}

pub(crate) fn provider() -> Provider {
    with_extras(FakeProvider::new(Cloud::default))
        .guard(|_, request| {
            (request.bearer() != Some(TOKEN)).then(|| Reply::json(401, &json!({"code": "login"})))
        })
        .guard(|_, request| {
            (request.asked_host() != "api.wrong.example").then(|| Reply::text(421, "another host"))
        })
        .route("GET /v1/account", |_, _| {
            Reply::json(200, &json!({"name": "me"}))
        })
        .route("GET /v1/types", |_, _| Reply::json(200, &types()))
        .route("GET /v1/machines", |cloud, request| {
            let reply = cloud.list("machine", request);
            // What is being deleted is gone by the next listing.
            cloud
                .things
                .retain(|thing| text(thing, "state") != "deleting");
            reply
        })
        .route("POST /v1/machines", |cloud, request| {
            Reply::json(201, &cloud.add("machine", request))
        })
        .route("GET /v1/machines/{id}", |cloud, request| {
            cloud.look(request.param("id"))
        })
        .route("DELETE /v1/machines/{id}", |cloud, request| {
            cloud.delete(request.param("id"))
        })
        .route("GET /v1/disks", |cloud, request| {
            cloud.list("disk", request)
        })
        .route("POST /v1/disks", |cloud, request| {
            Reply::json(201, &cloud.add("disk", request))
        })
        .route("DELETE /v1/disks/{id}", |cloud, request| {
            cloud.delete(request.param("id"))
        })
        .route("GET /v1/volumes", |cloud, request| {
            cloud.list("volume", request)
        })
        .route("POST /v1/volumes", |cloud, request| {
            Reply::json(201, &cloud.add("volume", request))
        })
        .route("GET /v1/volumes/{id}", |cloud, request| {
            cloud.look(request.param("id"))
        })
        .route("DELETE /v1/volumes/{id}", |cloud, request| {
            cloud.delete(request.param("id"))
        })
        .route("POST /v1/volumes/{id}/{verb}", |_, _| {
            Reply::json(200, &json!({}))
        })
        .inventory(|cloud| {
            let things = cloud
                .things
                .iter()
                .filter(|thing| text(thing, "state") != "deleting");
            things
                .map(|thing| {
                    Resource::new(text(thing, "kind"), text(thing, "id"))
                        .with_ref(thing["reference"].as_str())
                })
                .collect()
        })
        .scenario(Scenario::NoCapacity, |_, request| {
            is_creation(request).then(|| Reply::json(409, &json!({"code": "sold_out"})))
        })
        .scenario(Scenario::Quota, |_, request| {
            is_creation(request).then(|| Reply::json(409, &json!({"code": "quota"})))
        })
        .scenario(Scenario::NoCapacityLate, |cloud, request| {
            is_creation(request).then(|| {
                let mut made = cloud.add("machine", request);
                made["state"] = json!("failed");
                if let Some(last) = cloud.things.last_mut() {
                    *last = made.clone();
                }
                Reply::json(201, &made)
            })
        })
        .start()
}

pub(crate) fn plugin() -> PathBuf {
    crate::built::plugins(&["dstack-backend-wrong"]).remove(0)
}

/// A suite for the plugin with this defect.
pub(crate) fn suite(defect: &str) -> Suite {
    Suite::new(plugin())
        .config(json!({"token": TOKEN, "defect": defect}))
        .provider(provider())
}
