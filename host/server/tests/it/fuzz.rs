//! Bodies that are almost right, on every operation: no answer of 500, none that our document does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dstack_server::{BodyKind, OperationInfo, operations};
use serde_json::{Map, Value, json};

use crate::client::{ADMIN, Answer, TestServer};
use crate::errors::misshapen;
use crate::openapi::validator;

/// Bodies for each operation; `DSTACK_FUZZ_CASES` is another number.
const CASES: usize = 60;

/// Numbers that look like chance and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).unwrap()).unwrap()
    }

    fn one<'v, T>(&mut self, of: &'v [T]) -> &'v T {
        &of[self.roll(of.len())]
    }
}

/// Values that broke something somewhere.
fn nasty() -> Vec<Value> {
    let long = "a".repeat(70_000);
    let deep = (0..120).fold(json!({}), |inner, _| json!({"a": [inner]}));
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1),
        json!(0.5),
        json!(-0.0),
        json!(65_536),
        json!(4_294_967_296_u64),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e308),
        json!(""),
        json!(" "),
        json!("main"),
        json!("admin"),
        json!("../../../../etc/passwd"),
        json!("a\u{0}b"),
        json!("\u{202e}\u{feff}\u{1f4a5}\u{d7ff}"),
        json!("İıßǅ%00'\"; drop table users; --"),
        json!("${{ secrets.x }} ${{ env.Y }} ${{ run.job_ip }} ${{"),
        json!("%s%n{}{0}$(id)`id`"),
        json!("1..2..3"),
        json!("-5GB"),
        json!("99999999999999999999TB"),
        json!("1e400"),
        json!("off"),
        json!("4w"),
        json!("9999999999999999999d"),
        json!("* * * * * * *"),
        json!("0 0 31 2 *"),
        json!("0001-01-01T00:00:00Z"),
        json!("9999-12-31T23:59:59.999999Z"),
        json!("-009999-01-02T00:00:00Z"),
        json!("2026-02-30T00:00:00Z"),
        json!("00000000-0000-0000-0000-000000000000"),
        json!("ffffffff-ffff-ffff-ffff-ffffffffffff"),
        json!("sha256:zz"),
        json!("http://[::1"),
        json!("git@github.com:a/b.git"),
        json!("ssh-ed25519 AAAA"),
        json!(long),
        json!([]),
        json!([null]),
        json!({}),
        json!({"": ""}),
        json!([[], [[]], {}]),
        json!(vec![0; 3000]),
        json!(vec!["x"; 3000]),
        deep,
    ]
}

/// The places of a value, deepest included.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(inner, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                places(inner, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// One change at one place.
fn bent(body: &Value, dice: &mut Dice, nasty: &[Value]) -> Value {
    let mut bent = body.clone();
    let mut all = Vec::new();
    places(&bent, "", &mut all);
    let at = dice.one(&all).clone();
    let Some(place) = bent.pointer_mut(&at) else {
        return bent;
    };
    match dice.roll(8) {
        0 => {
            if let Value::Object(map) = place {
                let keys: Vec<String> = map.keys().cloned().collect();
                if !keys.is_empty() {
                    map.remove(dice.one(&keys));
                }
            } else {
                *place = json!([place.clone()]);
            }
        }
        1 => match place {
            Value::Object(map) => {
                map.insert("no such key".to_owned(), dice.one(nasty).clone());
            }
            Value::Array(items) => {
                let more = items.clone();
                for _ in 0..=dice.roll(40) {
                    items.extend(more.iter().cloned());
                }
            }
            other => *other = json!({"a": other.clone()}),
        },
        2 => match place {
            Value::Object(map) => {
                let keys: Vec<String> = map.keys().cloned().collect();
                if !keys.is_empty() {
                    let key = dice.one(&keys).clone();
                    let value = map.remove(&key).unwrap();
                    map.insert(dice.one(&keys).clone(), value);
                }
            }
            Value::String(text) => *text = text.chars().rev().collect(),
            Value::Number(number) => *place = json!(number.to_string()),
            _ => {}
        },
        _ => *place = dice.one(nasty).clone(),
    }
    bent
}

/// A text that is almost a body.
fn torn(body: &Value, dice: &mut Dice) -> Vec<u8> {
    let mut text = body.to_string().into_bytes();
    match dice.roll(6) {
        0 => text.truncate(dice.roll(text.len().max(1))),
        1 => {
            let at = dice.roll(text.len().max(1));
            text.insert(at, 0xff);
        }
        2 => text.extend_from_slice(b" {}"),
        3 => text = b"[".repeat(50_000),
        4 => text = b"{\"a\":".repeat(20_000),
        _ => {
            let at = dice.roll(text.len().max(1));
            if let Some(byte) = text.get_mut(at) {
                *byte = *dice.one(b"{}[]:,\"\\0-e.\x00");
            }
        }
    }
    text
}

/// Bodies that are right, by operation: those of recordings, and small ones by our document.
fn seeds(document: &Value) -> BTreeMap<String, Vec<Value>> {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract/wire");
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let file: Value = serde_json::from_str(&text).unwrap();
        let exchanges = file.as_array().or(file["exchanges"].as_array());
        for exchange in exchanges.into_iter().flatten() {
            let (Some(path), request) = (exchange["path"].as_str(), &exchange["request"]) else {
                continue;
            };
            if request.is_object() {
                let path = path.split('?').next().unwrap();
                let mut parts: Vec<&str> = path.split('/').collect();
                let least = match parts.get(2) {
                    Some(&"project") => 4,
                    Some(&"projects") => 5,
                    _ => usize::MAX,
                };
                if parts.len() >= least {
                    parts[3] = "{project_name}";
                }
                all.entry(parts.join("/"))
                    .or_default()
                    .push(request.clone());
            }
        }
    }
    for of in operations() {
        let method = of.method.as_str().to_ascii_lowercase();
        let content = &document["paths"][of.path][method]["requestBody"]["content"];
        let schema = &content["application/json"]["schema"];
        if schema.is_object() {
            let list = all.entry(of.path.to_owned()).or_default();
            list.push(small(document, schema, false));
            list.push(small(document, schema, true));
        }
    }
    all
}

/// A value that a schema takes; `whole`: with all its fields.
fn small(document: &Value, schema: &Value, whole: bool) -> Value {
    if let Some(at) = schema["$ref"].as_str() {
        let named = document.pointer(at.strip_prefix('#').unwrap()).unwrap();
        let mut value = small(document, named, whole);
        if let (Some(value), Value::Object(more)) =
            (value.as_object_mut(), fields(document, schema, whole))
        {
            value.extend(more);
        }
        return value;
    }
    if let Some(word) = schema.get("const") {
        return word.clone();
    }
    if let Some(word) = schema["enum"].get(0) {
        return word.clone();
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(first) = schema[key].get(0) {
            return small(document, first, whole);
        }
    }
    let kind = schema["type"].as_str().or(schema["type"][0].as_str());
    match kind {
        Some("string") => match schema["format"].as_str() {
            Some("uuid") => json!("5f0c3a52-6c60-4ac8-93c5-0d6a7e8e1a11"),
            Some("date-time") => json!("2026-01-02T03:04:05Z"),
            _ => json!("main"),
        },
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(false),
        Some("array") => json!([small(document, &schema["items"], whole)]),
        Some("object") => fields(document, schema, whole),
        _ => json!(null),
    }
}

fn fields(document: &Value, schema: &Value, whole: bool) -> Value {
    let required = schema["required"].as_array();
    let mut map = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if whole || required.is_some_and(|all| all.contains(&json!(name))) {
            map.insert(name.clone(), small(document, field, whole));
        }
    }
    Value::Object(map)
}

/// What is wrong with an answer by the document.
fn unexpected(
    document: &Value,
    of: &OperationInfo,
    known: &mut BTreeMap<String, jsonschema::Validator>,
    answer: &Answer,
) -> Option<String> {
    if let Some(wrong) = misshapen(answer) {
        return Some(wrong);
    }
    let method = of.method.as_str().to_ascii_lowercase();
    let told = &document["paths"][of.path][method]["responses"][answer.status.to_string()];
    if told.is_null() {
        return Some(format!("undocumented: {} {}", answer.status, answer.text));
    }
    let told = match told["$ref"].as_str() {
        Some(at) => document.pointer(at.strip_prefix('#').unwrap()).unwrap(),
        None => told,
    };
    let key = format!("{} {}", of.path, answer.status);
    let validator = known
        .entry(key)
        .or_insert_with(|| validator(document, &told["content"]).unwrap());
    let wrong: Vec<String> = validator
        .iter_errors(&answer.body)
        .take(3)
        .map(|error| format!("{}: {}", error.instance_path(), short(&error.to_string())))
        .collect();
    (!wrong.is_empty()).then(|| format!("{}: {}", answer.status, wrong.join("; ")))
}

fn short(text: &str) -> String {
    text.chars().take(400).collect()
}

fn path(of: &OperationInfo, dice: &mut Dice) -> String {
    let odd = ["nothing", "%00", "..%2f..", "%F0%9F%92%A5", "a%20b"];
    of.path
        .replace("{project_name}", "main")
        .replace("{backend_name}", dice.one::<&str>(&odd))
        .replace("{run_name}", dice.one::<&str>(&odd))
}

#[test]
fn no_body_makes_the_server_fail() {
    let cases = std::env::var("DSTACK_FUZZ_CASES").ok();
    let cases = cases.map_or(CASES, |text| text.parse().unwrap());
    let document = dstack_server::api_document();
    let (seeds, nasty) = (seeds(&document), nasty());
    let start = || {
        TestServer::start(&[
            ("DSTACK_SERVER_SSHPROXY_ADDRESS", "proxy.example:2222"),
            ("DSTACK_SSHPROXY_API_TOKEN", ADMIN),
            ("DSTACK_ENABLE_PROMETHEUS_METRICS", ""),
        ])
    };
    let mut server = start();
    let mut dice = Dice(0x5eed_0fda_7a11);
    let (mut wrong, mut known) = (BTreeSet::new(), BTreeMap::new());
    let (mut statuses, mut panics) = (BTreeMap::new(), Vec::new());
    for of in operations() {
        let bodies = seeds.get(of.path).cloned().unwrap_or_default();
        let is_json = matches!(of.body, BodyKind::Json | BodyKind::Optional);
        assert_eq!(is_json, !bodies.is_empty(), "{}", of.path);
        let mut tell = |case: &str, answer: &Answer| {
            *statuses.entry(answer.status).or_insert(0) += 1;
            if let Some(what) = unexpected(&document, &of, &mut known, answer) {
                let what = format!("{}: {}\n    {}", of.path, short(&what), short(case));
                // Some of each operation are enough to see what it is.
                if wrong
                    .iter()
                    .filter(|one: &&String| one.starts_with(of.path))
                    .count()
                    < 4
                {
                    wrong.insert(what);
                }
            }
        };
        for body in &bodies {
            let text = body.to_string();
            tell(
                &text,
                &server.post_text(&path(&of, &mut dice), &text, Some(ADMIN)),
            );
        }
        for _ in 0..cases {
            let path = path(&of, &mut dice);
            let answer = if of.method == "GET" {
                let (name, value) = (
                    dice.one(&["run_id", "limit", "after", "replica_num", "x"]),
                    dice.one(&[
                        "",
                        "-1",
                        "1e9",
                        "9999-12-31T23:59:59Z",
                        "%00",
                        "18446744073709551616",
                    ]),
                );
                let bearer = format!("Bearer {ADMIN}");
                let path = format!("{path}?{name}={value}");
                let answer = server.get_with(&path, &[("Authorization", &bearer)]);
                tell(&path, &answer);
                continue;
            } else if !is_json {
                let name = dice.one(&["a", "", "../x", "a\\\"b"]);
                let path = format!("{path}?repo_id=x");
                let answer = server.upload(&path, name, b"x");
                tell(name, &answer);
                continue;
            } else if dice.roll(6) == 0 {
                let body = torn(dice.one(&bodies), &mut dice);
                let answer = server.post_bytes(&path, &body, Some(ADMIN));
                tell(&String::from_utf8_lossy(&body), &answer);
                continue;
            } else {
                let mut body = dice.one(&bodies).clone();
                for _ in 0..=dice.roll(2) {
                    body = bent(&body, &mut dice, &nasty);
                }
                let text = body.to_string();
                let answer = server.post_text(&path, &text, Some(ADMIN));
                tell(&text, &answer);
                answer
            };
            // Some bodies are right and take away what the next ones need.
            let is_mine = answer.status == 200
                && ["delete", "update", "refresh", "members"]
                    .iter()
                    .any(|word| of.path.contains(word));
            if is_mine && server.post("/api/projects/main/get", Value::Null).status != 200 {
                panics.push(server.panics());
                server = start();
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{statuses:?}\n{}",
        wrong.into_iter().collect::<Vec<_>>().join("\n")
    );
    panics.push(server.panics());
    assert!(panics.iter().all(|count| *count == 0), "{panics:?}");
    // Bodies must get past the door, and not all of them.
    for status in [200, 400, 422] {
        assert!(statuses[&status] > 200, "{statuses:?}");
    }
}
