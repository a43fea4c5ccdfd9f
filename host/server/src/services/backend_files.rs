//! Files that a backend's section of `config.yml` names in place of their content: `filename` for `data`, `path` for `content`,
//! `x_file` for `x_content`.
//!
//! Only the administrator's own file is read so: what comes over the API names no file of the server.

use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};

use dstack_backend_types::reading::{Kind, Path, Problem, Step};
use serde_json::{Map, Value};

/// A key or a certificate is small; a device has no end.
const MAX_BYTES: u64 = 1 << 20;

/// The key of a file, and the key that its content fills.
type Pairs = BTreeMap<String, String>;

/// The section with the content of the files that it names. Whether a key names one is told by the plugin's schema: it has both
/// keys.
pub(crate) fn fill(
    schema: &Value,
    config: Map<String, Value>,
    home: Option<&FilePath>,
) -> Result<Map<String, Value>, Vec<Problem>> {
    let mut pairs = Pairs::new();
    collect(schema, &mut pairs);
    let mut walk = Walk {
        pairs,
        home,
        path: Vec::new(),
        problems: Vec::new(),
    };
    let mut config = config;
    walk.object(&mut config);
    if walk.problems.is_empty() {
        Ok(config)
    } else {
        Err(walk.problems)
    }
}

fn collect(schema: &Value, pairs: &mut Pairs) {
    match schema {
        Value::Object(object) => {
            let properties = object.get("properties").and_then(Value::as_object);
            for key in properties.into_iter().flat_map(Map::keys) {
                let content = match key.as_str() {
                    "filename" => Some("data".to_owned()),
                    "path" => Some("content".to_owned()),
                    other => other
                        .strip_suffix("_file")
                        .map(|start| format!("{start}_content")),
                };
                let is_there = |content: &String| {
                    properties.is_some_and(|properties| properties.contains_key(content))
                };
                if let Some(content) = content.filter(is_there) {
                    pairs.insert(key.clone(), content);
                }
            }
            object.values().for_each(|inner| collect(inner, pairs));
        }
        Value::Array(items) => items.iter().for_each(|inner| collect(inner, pairs)),
        _ => {}
    }
}

struct Walk<'a> {
    pairs: Pairs,
    home: Option<&'a FilePath>,
    path: Vec<Step>,
    problems: Vec<Problem>,
}

impl Walk<'_> {
    fn object(&mut self, object: &mut Map<String, Value>) {
        let named: Vec<(String, String, String)> = self
            .pairs
            .iter()
            .filter(|(_, content)| object.get(*content).is_none_or(Value::is_null))
            .filter_map(|(key, content)| {
                let name = object.get(key)?.as_str().filter(|name| !name.is_empty())?;
                Some((key.clone(), content.clone(), name.to_owned()))
            })
            .collect();
        for (key, content, name) in named {
            match self.read(&name) {
                Ok(text) => {
                    object.insert(content, Value::String(text));
                }
                Err(message) => {
                    let mut path = self.path.clone();
                    path.push(Step::Key(key));
                    self.problems.push(Problem {
                        path: Path(path),
                        kind: Kind::Invalid,
                        message,
                    });
                }
            }
        }
        for (key, value) in object.iter_mut() {
            self.path.push(Step::Key(key.clone()));
            self.value(value);
            self.path.pop();
        }
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Object(object) => self.object(object),
            Value::Array(items) => {
                for (number, item) in items.iter_mut().enumerate() {
                    self.path.push(Step::Index(number));
                    self.value(item);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    fn read(&self, name: &str) -> Result<String, String> {
        let file = match (name.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(name),
        };
        let is_small = |facts: std::fs::Metadata| facts.is_file() && facts.len() <= MAX_BYTES;
        match std::fs::metadata(&file).map(is_small) {
            Ok(true) => std::fs::read_to_string(&file)
                .map_err(|error| format!("cannot read {}: {error}", file.display())),
            Ok(false) => Err(format!(
                "{} is no file of at most {MAX_BYTES} bytes",
                file.display()
            )),
            Err(error) => Err(format!("cannot read {}: {error}", file.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::fill;

    fn filled(config: Value, home: &Path) -> Result<Value, Vec<String>> {
        let schema = json!({
            "properties": {"clusters": {"items": {"$ref": "#/$defs/Cluster"}}, "path": {}},
            "$defs": {
                "Cluster": {"properties": {"key": {"$ref": "#/$defs/Key"}, "token_file": {}, "token_content": {}}},
                "Key": {"properties": {"path": {}, "content": {}}},
            },
        });
        let Value::Object(config) = config else {
            panic!("no mapping")
        };
        match fill(&schema, config, Some(home)) {
            Ok(config) => Ok(Value::Object(config)),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn a_file_fills_the_key_beside_it() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("key"), "secret\n").unwrap();
        let absolute = home.path().join("key");
        let config = json!({"clusters": [
            {"key": {"path": "~/key"}, "token_file": absolute},
            {"key": {"path": absolute, "content": "mine"}},
            {"key": {"path": "", "content": null}},
        ]});
        let expected = json!({"clusters": [
            {"key": {"path": "~/key", "content": "secret\n"}, "token_file": absolute, "token_content": "secret\n"},
            {"key": {"path": absolute, "content": "mine"}},
            {"key": {"path": "", "content": null}},
        ]});
        assert_eq!(filled(config, home.path()), Ok(expected));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_its_place() {
        let home = tempfile::tempdir().unwrap();
        let config =
            json!({"clusters": [{"key": {"path": "~/none"}}, {"token_file": "/dev/zero"}]});
        let problems = filled(config, home.path()).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[0].starts_with("clusters.0.key.path: cannot read "),
            "{problems:?}"
        );
        assert!(
            problems[1].starts_with("clusters.1.token_file: /dev/zero is no file"),
            "{problems:?}"
        );
    }
}
