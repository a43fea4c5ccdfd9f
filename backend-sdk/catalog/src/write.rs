//! Items as CSV, in the published form.

use std::fmt::Write as _;

use dstack_backend_types::CatalogItem;
use dstack_backend_types::catalog::COLUMNS;
use serde_json::Value;

/// The text of a file: a header, and a line for each item.
///
/// # Panics
/// Never: writing to memory does not fail.
pub fn write_csv<'a>(items: impl IntoIterator<Item = &'a CatalogItem>) -> String {
    let mut writer = csv::WriterBuilder::new()
        .terminator(csv::Terminator::Any(b'\n'))
        .from_writer(Vec::new());
    writer
        .write_record(COLUMNS)
        .expect("writing to memory does not fail");
    for item in items {
        let optional = |number: Option<f64>| number.map(float).unwrap_or_default();
        let fields = [
            item.instance_name.clone(),
            item.location.clone(),
            float(item.price),
            item.cpu.to_string(),
            float(item.memory),
            item.gpu_count.to_string(),
            item.gpu_name.clone().unwrap_or_default(),
            optional(item.gpu_memory),
            if item.spot { "True" } else { "False" }.to_owned(),
            optional(item.disk_size),
            item.gpu_vendor
                .map(|vendor| vendor.as_str().to_owned())
                .unwrap_or_default(),
            item.flags.join(" "),
            item.cpu_arch.as_str().to_owned(),
            spaced(&Value::Object(item.provider_data.clone())),
        ];
        writer
            .write_record(fields)
            .expect("each record has as many fields as the header");
    }
    let bytes = writer
        .into_inner()
        .expect("writing to memory does not fail");
    String::from_utf8(bytes).expect("made of texts")
}

/// The shortest text that reads back as the same number, with a digit after the dot.
fn float(number: f64) -> String {
    format!("{number:?}")
}

/// JSON with a blank after each comma and colon.
fn spaced(value: &Value) -> String {
    let mut text = String::new();
    spaced_into(value, &mut text);
    text
}

fn spaced_into(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            text.push('{');
            for (at, (key, value)) in fields.iter().enumerate() {
                text.push_str(if at > 0 { ", " } else { "" });
                write!(text, "{}: ", Value::from(key.as_str())).expect("a text takes everything");
                spaced_into(value, text);
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for (at, value) in values.iter().enumerate() {
                text.push_str(if at > 0 { ", " } else { "" });
                spaced_into(value, text);
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            write!(text, "{value}").expect("a text takes everything");
        }
    }
}
