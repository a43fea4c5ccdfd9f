//! Every recorded exchange of the official client with the official server, replayed in its order and compared.
//!
//! Ids are matched by place: what was one id in the record is one id here. Times, costs, tokens and keys are compared by
//! kind. What else differs stands in [`DIFFERENCES`] with its reason, and nothing stands there that does not differ.

mod compare;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{ADMIN, TestServer};
use compare::{Ids, compare};

const NO_MACHINE: &str =
    "no machine is written down for a job that no offer fits; so there are no events of it either";
const OWN_WORDS: &str = "why there is no machine is told in our own words";
const SUPPORTED: &str = "exports and imports are supported, so they are not refused";
const NEEDS_MORE: &str = "the record had runs, machines and volumes in its database";

/// What differs on purpose: the file, what is found there, and why.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("*", "termination_reason_message: \"No offers", OWN_WORDS),
    (
        "dev_apply",
        "commands[3]",
        "our own texts and commands around the editor",
    ),
    (
        "dev_abort",
        "commands[3]",
        "our own texts and commands around the editor",
    ),
    ("export_list", "status 400 became 200", SUPPORTED),
    ("import_list", "status 400 became 200", SUPPORTED),
    ("api_exports_list", "status 400 became 200", SUPPORTED),
    ("export_create", "detail[0].msg", SUPPORTED),
    (
        "sshfleet_apply",
        "instance_type",
        "the resources of a machine are not guessed before it was entered",
    ),
    (
        "sshfleet_list",
        "instance_type",
        "the resources of a machine are not guessed before it was entered",
    ),
    (
        "fleet_delete_instance",
        "instance_type",
        "the resources of a machine are not guessed before it was entered",
    ),
    (
        "login",
        ": \"<html>\"",
        "there is no web page yet, but an answer to the client that looks for the scheme",
    ),
    (
        "api_templates_list",
        "0 items became 3",
        "three templates are there without a repository of templates",
    ),
];

#[derive(Debug)]
struct Exchange {
    file: String,
    number: usize,
    recorded: Value,
}

impl Exchange {
    fn text(&self, key: &str) -> &str {
        self.recorded[key].as_str().unwrap_or_default()
    }

    /// Reads change nothing, and may be repeated until the server has done its work.
    fn is_read(&self) -> bool {
        let path = self.text("path");
        self.text("method") == "GET"
            || ["/get", "/list", "/poll"]
                .iter()
                .any(|end| path.ends_with(end))
    }
}

fn folder() -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../tests/contract/wire")
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The exchanges of the files from one to another, in the order in which they were recorded.
fn exchanges(first: &str, last: &str) -> Vec<Exchange> {
    let order = read("../http-api/order");
    let names: Vec<&str> = order
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let at = |name| names.iter().position(|one| *one == name).unwrap();
    let mut found = Vec::new();
    for name in &names[at(first)..=at(last)] {
        for (number, recorded) in read(name).as_array().unwrap().iter().enumerate() {
            found.push(Exchange {
                file: (*name).to_owned(),
                number,
                recorded: recorded.clone(),
            });
        }
    }
    found
}

/// A server, and what is known of the world of the record.
struct Replay {
    server: TestServer,
    ids: Ids,
    tokens: BTreeMap<String, String>,
    /// What differed, by file.
    found: Vec<(String, String)>,
}

struct Answer {
    status: u16,
    body: Value,
}

impl Replay {
    fn new(server: TestServer) -> Self {
        let tokens = [("TOKEN-ADMIN".to_owned(), ADMIN.to_owned())];
        Self {
            server,
            ids: Ids::new(),
            tokens: tokens.into(),
            found: Vec::new(),
        }
    }

    fn send(&self, exchange: &Exchange) -> Answer {
        let mut headers = Vec::new();
        for (name, value) in exchange.recorded["request_headers"].as_object().unwrap() {
            let mut value = value.as_str().unwrap().to_owned();
            if name == "Accept-Encoding" {
                continue;
            }
            for (theirs, ours) in &self.tokens {
                value = value.replace(theirs, ours);
            }
            headers.push((name.clone(), value));
        }
        let body = match &exchange.recorded["request"] {
            Value::Null => Vec::new(),
            Value::String(form) => {
                let form = form.strip_prefix("(multipart) ").unwrap();
                let bytes = if exchange.file.contains("too_large") {
                    3 << 20
                } else {
                    10
                };
                form.replace("<bytes>", &"x".repeat(bytes))
                    .into_bytes()
                    .into_iter()
                    .chain(*b"\r\n--BOUNDARY--\r\n")
                    .collect()
            }
            request => serde_json::to_vec(&self.ids.ours(request)).unwrap(),
        };
        let (status, text) = self.server.raw(
            exchange.text("method"),
            exchange.text("path"),
            &headers,
            &body,
        );
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answer { status, body }
    }

    fn differences(&self, exchange: &Exchange, answer: &Answer) -> (Vec<String>, Ids) {
        let mut ids = self.ids.clone();
        let status = exchange.recorded["status"].as_u64().unwrap();
        if u64::from(answer.status) != status {
            let found = format!("status {status} became {}", answer.status);
            return (vec![found], ids);
        }
        let mut found = Vec::new();
        match status {
            // Texts of the library that checks there.
            422 => {
                let is_list = answer.body["detail"]
                    .as_array()
                    .is_some_and(|list| !list.is_empty());
                found.extend((!is_list).then(|| "no list of problems".to_owned()));
            }
            _ => compare(
                &exchange.recorded["response"],
                &answer.body,
                "",
                &mut ids,
                &mut found,
            ),
        }
        (found, ids)
    }

    fn replay(&mut self, exchange: &Exchange) {
        let patience = if exchange.is_read() {
            Duration::from_secs(3)
        } else {
            Duration::ZERO
        };
        let is_known = |found: &String| known(&exchange.file, found).is_some();
        let began = Instant::now();
        loop {
            let answer = self.send(exchange);
            let (found, ids) = self.differences(exchange, &answer);
            if found.iter().all(is_known) || began.elapsed() >= patience {
                let place = format!(
                    "{}#{} {}",
                    exchange.file,
                    exchange.number,
                    exchange.text("path")
                );
                self.ids = ids;
                self.learn(&answer.body);
                let found = found.into_iter().map(|what| (place.clone(), what));
                self.found.extend(found);
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The token of the user that the record has.
    fn learn(&mut self, body: &Value) {
        if let (Some(token), Some(name)) =
            (body["creds"]["token"].as_str(), body["username"].as_str())
            && name != "admin"
        {
            self.tokens
                .insert("TOKEN-USER".to_owned(), token.to_owned());
        }
    }

    fn all(mut self, exchanges: &[Exchange]) -> Vec<(String, String)> {
        for exchange in exchanges {
            self.replay(exchange);
        }
        self.found
    }
}

/// The entry of the table for this.
fn known(file: &str, found: &str) -> Option<usize> {
    DIFFERENCES
        .iter()
        .position(|(known, what, _)| (*known == "*" || *known == file) && found.contains(what))
}

/// Fails with everything that differs and is not in the table.
fn judge(found: &[(String, String)], used: &mut BTreeSet<usize>) {
    let mut new = Vec::new();
    for (place, what) in found {
        let file = place.split('#').next().unwrap();
        match known(file, what) {
            Some(entry) => {
                used.insert(entry);
            }
            None => new.push(format!("{place}: {what}")),
        }
    }
    assert!(new.is_empty(), "{} differ:\n{}", new.len(), new.join("\n"));
}

#[test]
fn every_recorded_exchange_is_answered_as_recorded() {
    let mut used = BTreeSet::new();
    // A fresh server whose loops run, and no backends: runs find no machine.
    let env = [
        ("DSTACK_LOCAL_BACKEND_ENABLED", "0"),
        ("DSTACK_ENABLE_PROMETHEUS_METRICS", "1"),
    ];
    let fresh = Replay::new(TestServer::with_loops(&env));
    judge(&fresh.all(&exchanges("get_info", "login")), &mut used);
    // One without loops, in whose database runs, machines and a volume stand.
    let full = Replay::new(TestServer::start(&env));
    state::put(&full.server);
    judge(
        &full.all(&exchanges("running_ps", "export_delete")),
        &mut used,
    );
    let unused: Vec<_> = DIFFERENCES
        .iter()
        .enumerate()
        .filter(|(entry, _)| !used.contains(entry))
        .map(|(_, difference)| difference)
        .collect();
    assert!(
        unused.is_empty(),
        "these do not differ any more: {unused:?}"
    );
}
