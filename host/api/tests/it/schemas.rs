//! The JSON Schemas: what the parser accepts they accept, and most of what it refuses they refuse.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dstack_api::config::{Configuration, Mode, SchemaType, json_schema, read};
use dstack_api::yaml::Document;
use jsonschema::Validator;
use serde_json::{Value, json};

fn corpus() -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap())
        .join("../../tests/contract/config-corpus")
}

fn json_file(path: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

struct Schemas(BTreeMap<&'static str, Validator>);

impl Schemas {
    fn new() -> Self {
        let all = SchemaType::ALL.iter().map(|of| {
            let schema = json_schema(*of);
            let validator = jsonschema::draft7::options()
                .build(&schema)
                .unwrap_or_else(|error| panic!("the schema of {of}: {error}"));
            (of.as_str(), validator)
        });
        Self(all.collect())
    }

    fn refuses(&self, of: &str, value: &Value) -> Option<String> {
        let validator = self.0.get(of).unwrap_or_else(|| panic!("no schema {of}"));
        let errors: Vec<_> = validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        (!errors.is_empty()).then(|| errors.join("\n  "))
    }
}

/// What a file of the corpus is: its answer says so, else its name.
fn kind_of(name: &str, answer: Option<&Value>) -> &'static str {
    match answer.and_then(|answer| answer["kind"].as_str()) {
        Some("profiles") => "profiles",
        Some("server-config") => "server-config",
        Some("client-config") => "client-config",
        Some(_) => "configuration",
        None if name.starts_with("edge-profiles") => "profiles",
        None if name.starts_with("edge-server") => "server-config",
        None if name.starts_with("edge-client") => "client-config",
        None => "configuration",
    }
}

const COUNTS: &str = "a schema cannot count the parts of a text";
const COMPARES: &str = "a schema cannot compare two values";
const ACROSS: &str = "a rule across keys that the parser explains better";
const PLUGIN: &str = "any plugin may bring a backend";

/// Files that the parser refuses and the schema cannot, with the reason.
const BEYOND: &[(&str, &str)] = &[
    ("edge-backend-bad", PLUGIN),
    ("edge-server-unknown-backend", PLUGIN),
    ("edge-cpu-range-reversed", COMPARES),
    ("edge-dev-dstack-inactivity", ACROSS),
    ("edge-env-list-dup", COMPARES),
    ("edge-env-list-dup-sentinel", COMPARES),
    ("edge-fleet-nodes-target-high", COMPARES),
    ("edge-fleet-nodes-target-low", COMPARES),
    (
        "edge-gpu-mapping-cc-int",
        "8 and 8.0 are the same number in JSON, but not in YAML",
    ),
    ("edge-gpu-memory-reversed", COMPARES),
    ("edge-gpu-two-counts", COUNTS),
    ("edge-gpu-two-memories", COUNTS),
    ("edge-gpu-two-names", COUNTS),
    ("edge-groups-dup", COMPARES),
    ("edge-groups-dup-positional", COMPARES),
    ("edge-groups-no-commands", ACROSS),
    ("edge-memory-reversed", COMPARES),
    ("edge-preset-prefix", COMPARES),
    ("edge-svc-groups-image-both", ACROSS),
    ("edge-svc-groups-image-docker", ACROSS),
    ("edge-svc-groups-nothing", ACROSS),
    ("edge-svc-groups-python-both", ACROSS),
    ("edge-svc-groups-router-2", ACROSS),
    ("edge-svc-groups-spot-both", ACROSS),
    ("edge-svc-groups-two-routers", ACROSS),
    ("edge-svc-range-noscaling", ACROSS),
    ("edge-svc-rate-dup", COMPARES),
    ("edge-svc-scaling-fixed", ACROSS),
    (
        "edge-utilization-short",
        "a schema cannot compare a number that is written as a text",
    ),
];

struct File {
    name: String,
    value: Value,
    answer: Option<Value>,
}

fn files(folder: &Path) -> Vec<File> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "yml"))
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        // Broken YAML never comes to a schema.
        let value = Document::parse(&text).ok()?.to_json().ok()?;
        Some(File {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            value,
            answer: json_file(&path.with_extension("json")),
        })
    };
    paths.into_iter().filter_map(read).collect()
}

fn check_valid(schemas: &Schemas, files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in files {
        let Some(answer) = &file.answer else { continue };
        let kind = kind_of(&file.name, Some(answer));
        let of_type = match (kind, file.value["type"].as_str()) {
            ("configuration", Some(of)) => Some(of),
            _ => None,
        };
        for of in std::iter::once(kind).chain(of_type) {
            let forms = [
                ("as written", &file.value),
                ("canonical", &answer["parsed"]),
            ];
            for (form, value) in forms {
                // The reference fills in what backends leave out; it may be of another version than a plugin.
                if let Some(why) = schemas.refuses(of, value) {
                    wrong.push(format!("{} {form}, by {of}:\n  {why}", file.name));
                }
            }
        }
    }
    wrong
}

#[test]
fn every_valid_file_passes_its_schema_as_written_and_in_canonical_form() {
    let schemas = Schemas::new();
    let files = files(&corpus());
    assert!(files.len() > 400);
    let wrong = check_valid(&schemas, &files);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Other people's files, which are not in this repository.
#[test]
fn published_files_pass_their_schemas() {
    let shared = std::env::var("DSTACK_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    let folder = root.join(shared).join("spec/config-corpus");
    if !folder.is_dir() {
        println!("skipped: no corpus at {}", folder.display());
        return;
    }
    let wrong = check_valid(&Schemas::new(), &files(&folder));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn refused_files_fail_their_schema_but_for_what_a_schema_cannot_say() {
    let schemas = Schemas::new();
    let (mut passed, mut stale, mut refused) = (Vec::new(), Vec::new(), 0);
    for file in files(&corpus()).iter().filter(|file| file.answer.is_none()) {
        let is_beyond = BEYOND.iter().any(|(name, _)| *name == file.name);
        match schemas.refuses(kind_of(&file.name, None), &file.value) {
            Some(_) if is_beyond => stale.push(file.name.clone()),
            Some(_) => refused += 1,
            None if is_beyond => {}
            None => passed.push(file.name.clone()),
        }
    }
    assert!(
        passed.is_empty(),
        "accepted by their schema:\n{}",
        passed.join("\n")
    );
    assert!(stale.is_empty(), "refused by now: {}", stale.join(", "));
    assert!(refused > 150, "only {refused} were refused");
}

/// Where a vector's input goes in a document.
fn document(vector: &str, input: &Value) -> Option<Value> {
    let task = |key: &str, value: Value| json!({"type": "task", "commands": ["make"], key: value});
    let resource = |key: &str| task("resources", json!({key: input}));
    Some(match vector {
        "duration" => task("retry", json!({"duration": input})),
        "duration-off" => task("max_duration", input.clone()),
        "duration-idle" => task("idle_duration", input.clone()),
        "memory" => resource("shm_size"),
        "range-int" => task("resources", json!({"gpu": {"count": input}})),
        "range-memory" => resource("memory"),
        "cpu-spec" => resource("cpu"),
        "gpu-spec" => resource("gpu"),
        "disk-spec" => resource("disk"),
        "compute-capability" => task("resources", json!({"gpu": {"compute_capability": input}})),
        "port-mapping" => task("ports", json!([input])),
        "mount-point" => task("volumes", json!([input])),
        "file-mapping" => task("files", json!([input])),
        "repo-spec" => task("repos", json!([input])),
        "env-item" => task("env", json!([input])),
        "unix-user" => task("user", input.clone()),
        "entity-ref" => task("fleets", json!([input])),
        "instance-selector" => task("instances", json!([input])),
        "tag-key" => task("tags", json!({input.as_str()?: "x"})),
        "tag-value" => task("tags", json!({"x": input})),
        "replica-group-name" => {
            json!({"type": "task", "groups": [{"name": input, "commands": ["make"]}]})
        }
        "python-version" => task("python", input.clone()),
        "max-price" => task("max_price", input.clone()),
        _ => return None,
    })
}

#[test]
fn what_the_parser_accepts_of_a_small_grammar_the_schema_accepts() {
    let schemas = Schemas::new();
    let (mut wrong, mut rows, mut refused_by_both, mut refused) = (Vec::new(), 0, 0, 0);
    let mut paths: Vec<_> = std::fs::read_dir(corpus().join("vectors"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        let vector = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let vectors = json_file(&path).unwrap();
        for row in vectors.as_array().into_iter().flatten() {
            let Some(document) = document(&vector, &row["input"]) else {
                continue;
            };
            rows += 1;
            let is_valid = read::<Configuration>(&document, Mode::Strict).is_ok();
            match schemas.refuses("task", &document) {
                Some(why) if is_valid => wrong.push(format!("{vector} {}:\n  {why}", row["input"])),
                None if !is_valid => refused += 1,
                Some(_) => (refused, refused_by_both) = (refused + 1, refused_by_both + 1),
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows > 370, "only {rows} rows");
    // Most of what is wrong is marked while it is typed.
    assert!(
        refused_by_both * 10 > refused * 8,
        "{refused_by_both} of {refused}"
    );
}

/// What an editor shows: titles, texts and examples must be there, and no key may go unexplained.
#[test]
fn keys_are_explained() {
    for of in SchemaType::ALL {
        let schema = json_schema(*of);
        assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
        assert!(schema["title"].is_string(), "{of}");
        let definitions = schema["definitions"].as_object().into_iter().flatten();
        let named = definitions.map(|(name, schema)| (name.as_str(), schema));
        for (name, schema) in named.chain([(of.as_str(), &schema)]) {
            for (key, property) in schema["properties"].as_object().into_iter().flatten() {
                let is_explained = property["description"].is_string()
                    || property["const"].is_string()
                    || key == "type";
                assert!(is_explained, "{of}: {name}.{key} has no description");
            }
        }
    }
}
