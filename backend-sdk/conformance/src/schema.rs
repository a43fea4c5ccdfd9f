//! What a configuration's JSON schema says: where credentials stand, what is required, what an example would be.

use serde_json::{Map, Value};

const MAX_DEPTH: usize = 24;

/// Puts the provider's address in the place of `{provider}`.
pub(crate) fn fill(value: &mut Value, provider: &str) {
    match value {
        Value::String(text) => *text = text.replace("{provider}", provider),
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, provider)),
        Value::Object(object) => object.values_mut().for_each(|item| fill(item, provider)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// All forms that a place may take: references followed, alternatives spread.
fn forms<'a>(root: &'a Value, place: &'a Value, depth: usize, found: &mut Vec<&'a Value>) {
    if depth > MAX_DEPTH {
        return;
    }
    found.push(place);
    if let Some(target) = place.get("$ref").and_then(Value::as_str)
        && let Some(target) = target
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer))
    {
        forms(root, target, depth + 1, found);
    }
    for word in ["anyOf", "oneOf", "allOf"] {
        for item in place
            .get(word)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            forms(root, item, depth + 1, found);
        }
    }
}

fn forms_of<'a>(root: &'a Value, place: &'a Value) -> Vec<&'a Value> {
    let mut found = Vec::new();
    forms(root, place, 0, &mut found);
    found
}

fn is_secret(forms: &[&Value]) -> bool {
    forms
        .iter()
        .any(|form| form.get("writeOnly") == Some(&Value::Bool(true)))
}

/// A property of a configuration, found in its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Property {
    /// `creds.token`
    pub(crate) path: Vec<String>,
    pub(crate) is_secret: bool,
    pub(crate) is_required: bool,
}

/// All properties, outer ones first. Of alternatives all are named.
pub(crate) fn properties(root: &Value) -> Vec<Property> {
    let mut found = Vec::new();
    walk(root, root, &mut Vec::new(), false, &mut found);
    found
}

fn walk(
    root: &Value,
    place: &Value,
    path: &mut Vec<String>,
    is_in_secret: bool,
    found: &mut Vec<Property>,
) {
    if path.len() > 8 {
        return;
    }
    for form in forms_of(root, place) {
        let required: Vec<&str> = form
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for (name, inner) in form
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            path.push(name.clone());
            let is_secret = is_in_secret || is_secret(&forms_of(root, inner));
            let property = Property {
                path: path.clone(),
                is_secret,
                is_required: required.contains(&name.as_str()),
            };
            if !found.iter().any(|known| known.path == property.path) {
                found.push(property);
                walk(root, inner, path, is_secret, found);
            }
            path.pop();
        }
        if let Some(items) = form.get("items") {
            walk(root, items, path, is_in_secret, found);
        }
    }
}

/// Values of a configuration that stand at secret places.
pub(crate) fn secret_values(root: &Value, config: &Map<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    collect(
        root,
        &[root],
        &Value::Object(config.clone()),
        false,
        &mut found,
    );
    found
}

fn collect(
    root: &Value,
    places: &[&Value],
    value: &Value,
    is_in_secret: bool,
    found: &mut Vec<String>,
) {
    let all: Vec<&Value> = places
        .iter()
        .flat_map(|place| forms_of(root, place))
        .collect();
    let is_secret = is_in_secret || is_secret(&all);
    match value {
        Value::String(text) if is_secret => found.push(text.clone()),
        Value::Object(object) => {
            for (name, inner) in object {
                let next: Vec<&Value> = all
                    .iter()
                    .filter_map(|form| form.get("properties")?.get(name))
                    .collect();
                collect(root, &next, inner, is_secret, found);
            }
        }
        Value::Array(items) => {
            let next: Vec<&Value> = all.iter().filter_map(|form| form.get("items")).collect();
            for item in items {
                collect(root, &next, item, is_secret, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An example of a configuration: what is required, with defaults and examples where the schema has them.
pub(crate) fn sample(root: &Value, provider: &str) -> Map<String, Value> {
    match example(root, root, "", provider, 0) {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn example(root: &Value, place: &Value, name: &str, provider: &str, depth: usize) -> Value {
    let all = forms_of(root, place);
    for form in &all {
        let given = form
            .get("const")
            .or_else(|| form.get("default"))
            .or_else(|| form.get("examples")?.get(0))
            .or_else(|| form.get("example"))
            .or_else(|| form.get("enum")?.get(0));
        if let Some(given) = given
            && !given.is_null()
        {
            return given.clone();
        }
    }
    if depth > MAX_DEPTH {
        return Value::Null;
    }
    // Of alternatives the first is taken; all parts of an `allOf` count.
    let mut object = Map::new();
    let mut is_object = false;
    let mut single = vec![place];
    single.extend(first_form(root, place, 0));
    for form in &single {
        is_object |= form.get("properties").is_some() || form.get("type") == Some(&"object".into());
        for required in form
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let Some(key) = required.as_str() else {
                continue;
            };
            if let Some(inner) = form.get("properties").and_then(|all| all.get(key)) {
                object.insert(
                    key.to_owned(),
                    example(root, inner, key, provider, depth + 1),
                );
            }
        }
    }
    if is_object {
        return Value::Object(object);
    }
    let kind = all.iter().find_map(|form| match form.get("type")? {
        Value::String(kind) => Some(kind.as_str()),
        Value::Array(kinds) => kinds.first()?.as_str(),
        _ => None,
    });
    let is_address = all
        .iter()
        .any(|form| form.get("format") == Some(&"uri".into()))
        || ["url", "endpoint", "api_url", "base_url"].contains(&name);
    match kind {
        Some("string") if is_address => provider.into(),
        Some("string") => format!(
            "conformance-{}",
            if name.is_empty() { "value" } else { name }
        )
        .into(),
        Some("integer" | "number") => 1.into(),
        Some("boolean") => false.into(),
        Some("array") => Value::Array(Vec::new()),
        _ => Value::Null,
    }
}

/// References followed, the first of each alternative taken.
fn first_form<'a>(root: &'a Value, place: &'a Value, depth: usize) -> Vec<&'a Value> {
    let mut found = Vec::new();
    if depth > MAX_DEPTH {
        return found;
    }
    let target = place
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|target| root.pointer(target.strip_prefix('#')?));
    let mut next: Vec<&Value> = target.into_iter().collect();
    for word in ["anyOf", "oneOf"] {
        next.extend(place.get(word).and_then(|all| all.get(0)));
    }
    next.extend(
        place
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten(),
    );
    for form in next {
        found.push(form);
        found.extend(first_form(root, form, depth + 1));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{properties, sample, secret_values};

    fn schema() -> Value {
        json!({
            "type": "object", "required": ["creds", "endpoint"],
            "properties": {
                "endpoint": {"type": "string"},
                "regions": {"type": "array", "items": {"type": "string"}, "default": ["north"]},
                "creds": {"anyOf": [{"$ref": "#/$defs/Key"}, {"type": "null"}]},
            },
            "$defs": {"Key": {
                "type": "object", "required": ["type", "key"],
                "properties": {"type": {"const": "key"}, "key": {"type": "string", "writeOnly": true}},
            }},
        })
    }

    #[test]
    fn secrets_are_found_through_references() {
        let config = json!({"endpoint": "x", "creds": {"type": "key", "key": "hush"}});
        assert_eq!(
            secret_values(&schema(), config.as_object().unwrap()),
            ["hush"]
        );
        let all: Vec<String> = properties(&schema())
            .into_iter()
            .filter(|property| property.is_secret && property.is_required)
            .map(|property| property.path.join("."))
            .collect();
        assert_eq!(all, ["creds.key"]);
    }

    #[test]
    fn an_example_has_what_is_required() {
        let made = Value::Object(sample(&schema(), "http://p"));
        assert_eq!(
            made,
            json!({"endpoint": "http://p", "creds": {"type": "key", "key": "conformance-key"}})
        );
    }
}
