//! Our OpenAPI document: whole in itself, and with every path, field and type of the compatible server's.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::client::TestServer;

const PLACE: &str = "#/components/schemas/";

/// Where ours differs on purpose: how a finding begins, and why.
const ON_PURPOSE: &[(&str, &str)] = &[
    (
        "ApplyRunPlanInput.current_resource.latest_job_submission.job_runtime_data.memory: no string",
        "an echo of what we sent, which is a number",
    ),
    (
        "JobSubmission-Input.job_runtime_data.memory: no string",
        "an echo of what we sent, which is a number",
    ),
    (
        "BackendInfo.config: ours does",
        "plugins say what their configurations look like: `/api/x/plugins/describe`",
    ),
    (
        "POST /api/project/{project_name}/backends/",
        "plugins say what their configurations look like: `/api/x/plugins/describe`",
    ),
    (
        "CreateVolumeRequest.configuration: requests must have backend",
        "theirs are told apart by this word too, so it must be there",
    ),
    (
        "GatewayConfiguration.certificate: requests must have type",
        "theirs are told apart by this word too, so it must be there",
    ),
    (
        "GatewayConfiguration.load_balancer: requests must have type",
        "theirs are told apart by this word too, so it must be there",
    ),
    (
        "JobSpec-Input.repo_data: requests must have repo_type",
        "theirs are told apart by this word too, so it must be there",
    ),
    (
        "RateLimit.key: requests must have type",
        "theirs are told apart by this word too, so it must be there",
    ),
    (
        "RunSpec-Input.configuration: requests must have type",
        "theirs are told apart by this word too, so it must be there",
    ),
    (
        "RunSpec-Input.repo_data: requests must have repo_type",
        "theirs are told apart by this word too, so it must be there",
    ),
    (
        "SaveRepoCredsRequest.repo_info: requests must have repo_type",
        "theirs are told apart by this word too, so it must be there",
    ),
    (
        "VastAIProfileOptions: requests must have type",
        "theirs are told apart by this word too, so it must be there",
    ),
    (
        "ReplicaGroup-Output: answers may leave out replicas",
        "configurations have one schema, that of files, which may leave it out",
    ),
    (
        "Volume.configuration: answers may leave out region",
        "configurations have one schema, that of files, which may leave it out",
    ),
    (
        "ReplicaGroup-Input.replicas",
        "a range of replicas ends there too; only its schema does not say so",
    ),
    (
        "ReplicaGroup-Output.replicas.max: no null",
        "a range of replicas ends there too; only its schema does not say so",
    ),
    (
        "RunSpec-Input.configuration.replicas",
        "a range of replicas ends there too; only its schema does not say so",
    ),
    (
        "RunSpec-Output.configuration.replicas.max: no null",
        "a range of replicas ends there too; only its schema does not say so",
    ),
    (
        "RunPlan.effective_run_spec.configuration.replicas.max: no null",
        "a range of replicas ends there too; only its schema does not say so",
    ),
    (
        "ReplicaGroup-Input.scaling.window: some words only",
        "other windows are refused there too; only its schema does not say so",
    ),
    (
        "ReplicaGroup-Output.scaling.window: some words only",
        "other windows are refused there too; only its schema does not say so",
    ),
    (
        "RunSpec-Input.configuration.scaling.window: some words only",
        "other windows are refused there too; only its schema does not say so",
    ),
    (
        "RunSpec-Output.configuration.scaling.window: some words only",
        "other windows are refused there too; only its schema does not say so",
    ),
    (
        "RunPlan.effective_run_spec.configuration.scaling.window: some words only",
        "other windows are refused there too; only its schema does not say so",
    ),
    (
        "ReplicaGroup-Output.router.type: some words only",
        "there are no other routers",
    ),
    (
        "RunSpec-Input.configuration.repos[]: requests must have local_path",
        "one of `local_path` and `url` is needed there too",
    ),
    (
        "UITemplate",
        "the schema of a struct with a tag does not tell the tag; it is always written",
    ),
    (
        "VastAIProfileOptions: ours does not say which fields",
        "requirements keep options for their backend as they are",
    ),
];

#[test]
fn the_served_document_is_the_one_of_the_code_and_whole() {
    let server = TestServer::start(&[]);
    let served = server.get("/api/openapi.json");
    assert_eq!(served.status, 200);
    let document = dstack_server::api_document();
    assert_eq!(served.body, document);
    assert_eq!(document["openapi"], "3.1.0");
    let mut references = BTreeSet::new();
    refer(&document, &mut references);
    assert!(references.len() > 150, "{}", references.len());
    for at in &references {
        let at = at.strip_prefix('#').unwrap();
        assert!(document.pointer(at).is_some(), "{at} is not there");
    }
    // Every definition is used by something.
    for name in document["components"]["schemas"]
        .as_object()
        .unwrap()
        .keys()
    {
        let at = format!("{PLACE}{name}");
        assert!(references.contains(&at), "nobody uses {name}");
    }
    let mut ids = BTreeSet::new();
    let mut count = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            count += 1;
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{method} {path}: {id} again");
            assert!(operation["responses"]["200"].is_object(), "{method} {path}");
            let answer = validator(&document, &operation["responses"]["200"]["content"]);
            assert!(answer.is_ok(), "{method} {path}: {answer:?}");
        }
    }
    assert_eq!(count, dstack_server::operations().len() + 3);
}

/// A validator for the schema of some content.
pub(crate) fn validator(
    document: &Value,
    content: &Value,
) -> Result<jsonschema::Validator, String> {
    let (_, content) = content
        .as_object()
        .and_then(|all| all.iter().next())
        .unwrap();
    let mut schema = json!({"components": {"schemas": document["components"]["schemas"]}});
    // `true` is anything.
    for (key, value) in content["schema"].as_object().into_iter().flatten() {
        schema[key] = value.clone();
    }
    jsonschema::draft202012::new(&schema).map_err(|error| error.to_string())
}

fn refer(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(at) = map.get("$ref").and_then(Value::as_str) {
                found.insert(at.to_owned());
            }
            map.values().for_each(|value| refer(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| refer(item, found)),
        _ => {}
    }
}

#[test]
fn no_path_field_or_type_of_the_compatible_server_is_missing() {
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract/http-api/openapi.json"),
    )
    .unwrap();
    let theirs: Value = serde_json::from_str(&text).unwrap();
    let document = dstack_server::api_document();
    let found = findings(&theirs, &document);
    let is_meant = |one: &String| ON_PURPOSE.iter().any(|(start, _)| one.starts_with(start));
    let wrong: Vec<&String> = found.iter().filter(|one| !is_meant(one)).collect();
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong
            .iter()
            .map(|one| one.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    );
    for (start, why) in ON_PURPOSE {
        assert!(
            found.iter().any(|one| one.starts_with(start)),
            "no longer a difference: {start} ({why})"
        );
    }
}

#[test]
fn a_document_with_less_is_told() {
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract/http-api/openapi.json"),
    )
    .unwrap();
    let theirs: Value = serde_json::from_str(&text).unwrap();
    let whole = dstack_server::api_document();
    let before = findings(&theirs, &whole);
    for (what, expected, change) in [
        (
            "a path",
            "POST /api/runs/list: no such operation",
            &(|document: &mut Value| {
                document["paths"]
                    .as_object_mut()
                    .unwrap()
                    .remove("/api/runs/list");
            }) as &dyn Fn(&mut Value),
        ),
        ("a field", "Event.actor_user: no such field", &|document| {
            let event = &mut document["components"]["schemas"]["Event"];
            event["properties"]
                .as_object_mut()
                .unwrap()
                .remove("actor_user");
        }),
        ("null", "Event.actor_user: no null", &|document| {
            document["components"]["schemas"]["Event"]["properties"]["actor_user"]["type"] =
                json!("string");
        }),
        ("a word", "RunStatus: no word \"running\"", &|document| {
            let words = &mut document["components"]["schemas"]["RunStatus"]["enum"];
            words
                .as_array_mut()
                .unwrap()
                .retain(|word| word != "running");
        }),
        (
            "what must be there",
            "Event: answers may leave out message",
            &|document| {
                let event = &mut document["components"]["schemas"]["Event"]["required"];
                event.as_array_mut().unwrap().retain(|key| key != "message");
            },
        ),
        (
            "what may be missing",
            "ListRunsRequest: requests must have limit",
            &|document| {
                document["components"]["schemas"]["ListRunsRequest"]["required"] = json!(["limit"]);
            },
        ),
    ] {
        let mut document = whole.clone();
        change(&mut document);
        let found = findings(&theirs, &document);
        let new: Vec<_> = found.difference(&before).collect();
        assert!(
            new.iter().any(|one| one.starts_with(expected)),
            "{what}: {new:?}"
        );
    }
}

/// What of theirs is missing in ours.
fn findings(theirs: &Value, ours: &Value) -> BTreeSet<String> {
    let mut compare = Compare {
        theirs: &theirs["schemas"],
        ours,
        seen: BTreeSet::new(),
        found: BTreeSet::new(),
    };
    for operation in theirs["operations"].as_array().unwrap() {
        compare.operation(operation);
    }
    compare.found
}

/// One way a value may look: its keywords, with references followed and alternatives apart.
type Node = Map<String, Value>;

struct Compare<'d> {
    theirs: &'d Value,
    ours: &'d Value,
    /// What was compared already.
    seen: BTreeSet<(String, bool, String)>,
    found: BTreeSet<String>,
}

impl Compare<'_> {
    fn operation(&mut self, theirs: &Value) {
        let (method, path) = (
            theirs["method"].as_str().unwrap(),
            theirs["path"].as_str().unwrap(),
        );
        let at = format!("{method} {path}");
        let ours = self.ours;
        let ours = &ours["paths"][path][method.to_ascii_lowercase()];
        if ours.is_null() {
            self.found.insert(format!("{at}: no such operation"));
            return;
        }
        for one in theirs["parameters"].as_array().into_iter().flatten() {
            let (name, place) = (one["name"].as_str().unwrap(), &one["in"]);
            let mut all = ours["parameters"].as_array().into_iter().flatten();
            let Some(same) = all.find(|same| same["name"] == name && same["in"] == *place) else {
                self.found.insert(format!("{at}: no parameter {name}"));
                continue;
            };
            if same["required"] == true && one["required"] != true {
                self.found.insert(format!("{at}: {name} must be given"));
            }
            self.values(
                &format!("{at} {name}"),
                &one["schema"],
                &[&same["schema"]],
                true,
            );
        }
        let body = &theirs["body"];
        if body.is_object() {
            let content = body["content"].as_str().unwrap();
            let same = &ours["requestBody"]["content"][content]["schema"];
            if same.is_null() {
                self.found.insert(format!("{at}: no body of {content}"));
            } else {
                if ours["requestBody"]["required"] == true && body["required"] != true {
                    self.found.insert(format!("{at}: a body must be given"));
                }
                self.values(&format!("{at} body"), &body["schema"], &[same], true);
            }
        }
        let content = theirs["answer"]["content"].as_str().unwrap();
        let same = &ours["responses"]["200"]["content"][content]["schema"];
        if same.is_null() {
            self.found.insert(format!("{at}: no answer of {content}"));
        } else {
            self.values(
                &format!("{at} answer"),
                &theirs["answer"]["schema"],
                &[same],
                false,
            );
        }
    }

    /// Every value that theirs may be, ours may be too.
    fn values(&mut self, at: &str, theirs: &Value, ours: &[&Value], is_request: bool) {
        let ours: Vec<Node> = ours.iter().flat_map(|one| self.ours_of(one)).collect();
        // What has a name is told by it, and once.
        let named = theirs["$ref"].as_str().map(str::to_owned);
        let at = named.as_deref().unwrap_or(at);
        if named.is_some() {
            let text = serde_json::to_string(&ours).unwrap();
            if !self.seen.insert((at.to_owned(), is_request, text)) {
                return;
            }
        }
        for node in self.theirs_of(theirs) {
            for kind in types(&node) {
                let fits: Vec<&Node> = ours.iter().filter(|one| takes(one, &kind)).collect();
                if fits.is_empty() {
                    self.found.insert(format!("{at}: no {kind}"));
                } else {
                    self.kind(at, &kind, &node, &fits, is_request);
                }
            }
        }
    }

    fn kind(&mut self, at: &str, kind: &str, theirs: &Node, ours: &[&Node], is_request: bool) {
        match kind {
            "array" => {
                let items: Vec<&Value> = ours.iter().filter_map(|one| one.get("items")).collect();
                match theirs.get("items") {
                    Some(wanted) if wanted != &json!({}) => {
                        if items.is_empty() {
                            self.found.insert(format!("{at}[]: ours does not say what"));
                        } else {
                            self.values(&format!("{at}[]"), wanted, &items, is_request);
                        }
                    }
                    _ => {}
                }
            }
            "object" => self.object(at, theirs, ours, is_request),
            "null" => {}
            _ => {
                let is_open = |one: &&Node| !one.contains_key("enum") && !one.contains_key("const");
                if ours.iter().any(is_open) {
                    return;
                }
                let known: Vec<&Value> = ours.iter().flat_map(|one| words(one)).collect();
                for word in words(theirs).filter(|word| !known.contains(word)) {
                    self.found.insert(format!("{at}: no word {word}"));
                }
                if words(theirs).next().is_none() {
                    self.found.insert(format!("{at}: some words only"));
                }
            }
        }
    }

    fn object(&mut self, at: &str, theirs: &Node, ours: &[&Node], is_request: bool) {
        if let Some(wanted @ Value::Object(_)) = theirs.get("additionalProperties") {
            let values: Vec<&Value> = ours
                .iter()
                .filter_map(|one| one.get("additionalProperties"))
                .collect();
            let is_open = |one: &&Node| {
                !one.contains_key("additionalProperties") || one["additionalProperties"] == true
            };
            if values.iter().any(|one| one.is_object()) {
                self.values(&format!("{at}.*"), wanted, &values, is_request);
            } else if !ours.iter().any(is_open) {
                self.found.insert(format!("{at}: no object with any keys"));
            }
        }
        let Some(Value::Object(fields)) = theirs.get("properties") else {
            return;
        };
        // Of several sorts of objects the one with the same word.
        let mut ours: Vec<&Node> = ours
            .iter()
            .copied()
            .filter(|one| one.get("properties").is_some_and(Value::is_object))
            .collect();
        for key in ["type", "repo_type", "backend"] {
            let Some(word) = fields.get(key).and_then(|field| field.get("const")) else {
                continue;
            };
            let same = |one: &&Node| {
                let field = &one["properties"][key];
                field["const"] == *word
                    || field["enum"]
                        .as_array()
                        .is_some_and(|all| all.contains(word))
            };
            let of_word: Vec<&Node> = ours.iter().copied().filter(same).collect();
            if !of_word.is_empty() {
                ours = of_word;
            }
        }
        if ours.is_empty() {
            self.found
                .insert(format!("{at}: ours does not say which fields"));
            return;
        }
        for (name, wanted) in fields {
            let same: Vec<&Value> = ours
                .iter()
                .filter_map(|one| one["properties"].get(name))
                .collect();
            if same.is_empty() {
                self.found.insert(format!("{at}.{name}: no such field"));
            } else {
                self.values(&format!("{at}.{name}"), wanted, &same, is_request);
            }
        }
        let theirs = required(theirs);
        // Of several sorts of objects those that have what must be there.
        let has_all = |one: &&&Node| theirs.iter().all(|key| !one["properties"][key].is_null());
        let same: Vec<&Node> = ours.iter().filter(has_all).copied().collect();
        let same = if same.is_empty() { ours } else { same };
        let mut lists = same.iter().map(|one| required(one));
        if is_request {
            let more = |ours: BTreeSet<String>| ours.difference(&theirs).cloned().collect();
            let least: BTreeSet<String> = lists.map(more).min_by_key(BTreeSet::len).unwrap();
            for name in least {
                self.found
                    .insert(format!("{at}: requests must have {name}"));
            }
        } else if let Some(first) = lists.next() {
            let all = lists.fold(first, |all, one| all.intersection(&one).cloned().collect());
            for name in theirs.difference(&all) {
                self.found
                    .insert(format!("{at}: answers may leave out {name}"));
            }
        }
    }

    fn theirs_of(&self, schema: &Value) -> Vec<Node> {
        let theirs = self.theirs;
        apart(schema, &|name| &theirs[name])
    }

    fn ours_of(&self, schema: &Value) -> Vec<Node> {
        let ours = &self.ours["components"]["schemas"];
        apart(schema, &|at| &ours[at.strip_prefix(PLACE).unwrap()])
    }
}

fn required(node: &Node) -> BTreeSet<String> {
    let keys = node.get("required").and_then(Value::as_array);
    let keys = keys.into_iter().flatten().filter_map(Value::as_str);
    keys.map(str::to_owned).collect()
}

fn words(node: &Node) -> impl Iterator<Item = &Value> {
    let listed = node.get("enum").and_then(Value::as_array);
    listed.into_iter().flatten().chain(node.get("const"))
}

/// The types of a node; none for one that may be anything.
fn types(node: &Node) -> Vec<String> {
    match node.get("type") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(all)) => all
            .iter()
            .map(|one| one.as_str().unwrap().to_owned())
            .collect(),
        _ => {
            let of_words: BTreeSet<&str> = words(node)
                .map(|word| match word {
                    Value::Null => "null",
                    Value::Bool(_) => "boolean",
                    Value::Number(_) => "number",
                    _ => "string",
                })
                .collect();
            of_words.into_iter().map(str::to_owned).collect()
        }
    }
}

fn takes(node: &Node, kind: &str) -> bool {
    let types = types(node);
    types.is_empty()
        || types.iter().any(|one| one == kind)
        || (kind == "integer" && types.iter().any(|one| one == "number"))
}

/// The alternatives of a schema, each with what stands beside them.
fn apart<'v>(schema: &Value, find: &dyn Fn(&str) -> &'v Value) -> Vec<Node> {
    let Value::Object(schema) = schema else {
        return vec![Node::new()];
    };
    let mut base = schema.clone();
    let mut all = vec![];
    for key in ["$ref", "anyOf", "oneOf", "allOf", "if", "then", "else"] {
        base.remove(key);
    }
    all.push(base);
    if let Some(at) = schema.get("$ref").and_then(Value::as_str) {
        all = joined(&all, &apart(find(at), find));
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(cases)) = schema.get(key) {
            let cases: Vec<Node> = cases.iter().flat_map(|case| apart(case, find)).collect();
            all = joined(&all, &cases);
        }
    }
    let branches: Vec<Node> = ["then", "else"]
        .iter()
        .filter_map(|key| schema.get(*key))
        .flat_map(|branch| apart(branch, find))
        .collect();
    if !branches.is_empty() {
        all = joined(&all, &branches);
    }
    if let Some(Value::Array(parts)) = schema.get("allOf") {
        let (mut cases, mut more) = (Vec::new(), Vec::new());
        for part in parts {
            match part.get("then") {
                Some(then) => cases.extend(apart(then, find)),
                None => more.push(apart(part, find)),
            }
        }
        if !cases.is_empty() {
            all = joined(&all, &cases);
        }
        for part in more.iter().filter(|part| part.len() == 1) {
            all = joined(&all, part);
        }
    }
    all
}

/// Each of both sides together.
fn joined(left: &[Node], right: &[Node]) -> Vec<Node> {
    let mut all = Vec::new();
    for one in left {
        for other in right {
            let mut node = one.clone();
            for (key, value) in other {
                match (node.get_mut(key), value) {
                    (Some(Value::Object(here)), Value::Object(there)) if key == "properties" => {
                        for (name, field) in there {
                            here.entry(name.clone()).or_insert_with(|| field.clone());
                        }
                    }
                    (Some(Value::Array(here)), Value::Array(there)) if key == "required" => {
                        here.extend(there.iter().cloned());
                    }
                    (Some(_), _) => {}
                    (None, value) => {
                        node.insert(key.clone(), value.clone());
                    }
                }
            }
            all.push(node);
        }
    }
    all
}
