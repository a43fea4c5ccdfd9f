use dstack_backend_types::reading::Mode;
use serde_json::{Value, json};

use super::{Data, Document, Node, parse, to_yaml};
use crate::config::Configuration;

/// Rows that may differ: what the reference refuses for a tab or for `::` in brackets, and what neither can hold.
const ACCEPTED_HERE: &[&str] = &[
    "a:\tb\n",
    "\ta: b\n",
    "- :\n- \":\"",
    "a: [x:y, ::z]\n",
    "a: ::1\nb: [::1]\n::1: c\n",
];

fn as_vector(node: &Node) -> Value {
    match &node.data {
        Data::Null => Value::Null,
        Data::Bool(b) => json!(b),
        // The vectors write what does not fit 64 signed bits as a text.
        Data::Int(i) => i64::try_from(*i).map_or_else(|_| json!(format!("int:{i}")), |i| json!(i)),
        Data::Float(f) if f.is_nan() => json!("float:nan"),
        Data::Float(f) if f.is_infinite() => json!(format!("float:{f}")),
        Data::Float(f) => json!(f),
        Data::Date(_) => json!("date"),
        Data::Text(text) => json!(text),
        Data::List(items) => items.iter().map(as_vector).collect(),
        Data::Map(entries) => {
            let dates = |key: &str| {
                Document::parse(key).is_ok_and(|d| matches!(d.root().data, Data::Date(_)))
            };
            let key = |key: &str| match key {
                "inf" | "-inf" | "NaN" => format!("\"float:{}\"", key.to_lowercase()),
                date if dates(date) => "date".to_owned(),
                int if int.len() > 18
                    && int.parse::<i64>().is_err()
                    && int.parse::<i128>().is_ok() =>
                {
                    format!("\"int:{int}\"")
                }
                other => other.to_owned(),
            };
            Value::Object(
                entries
                    .iter()
                    .map(|e| (key(&e.key), as_vector(&e.value)))
                    .collect(),
            )
        }
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|b| same(v, b)))
        }
        (a, b) => a == b,
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells tests where they are"
)]
fn every_vector_reads_as_in_the_reference() {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let file = std::path::Path::new(&root).join("../../tests/contract/yaml/vectors.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let mut wrong = Vec::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let yaml = row["yaml"].as_str().unwrap();
        let unsupported =
            row["json"].to_string().contains("\"odd\"") || yaml.contains("!!timestamp");
        match (Document::parse(yaml), row.get("json")) {
            (Ok(document), Some(expected)) => {
                let got = as_vector(document.root());
                if !same(&got, expected) {
                    wrong.push(format!("{yaml:?}: got {got}, expected {expected}"));
                }
            }
            (Err(error), Some(_)) if !unsupported => {
                wrong.push(format!("{yaml:?}: refused: {error}"))
            }
            (Ok(_), None) if !ACCEPTED_HERE.contains(&yaml) => {
                wrong.push(format!("{yaml:?}: accepted"))
            }
            _ => {}
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn errors_show_file_line_column_and_what_was_meant() {
    let text = "type: task\ncommands: [make]\nresources:\n  gpu:\n    naem: H100\n";
    let errors = parse::<Configuration>("job.yml", text, Mode::Strict).unwrap_err();
    assert_eq!(
        errors.render(),
        "job.yml:5:5: resources.gpu.naem: the key `naem` is not known here, did you mean `name`?\n 5 |     naem: H100\n   |     ^\n"
    );
    let broken = parse::<Configuration>("job.yml", "a: [1\n", Mode::Strict).unwrap_err();
    assert!(
        broken
            .to_string()
            .starts_with("job.yml:1:4: not valid YAML: "),
        "{broken}"
    );
    for text in ["", "[]", "word"] {
        assert!(parse::<Configuration>("job.yml", text, Mode::Strict).is_err());
    }
}

#[test]
fn a_double_key_takes_the_last_and_warns_with_both_lines() {
    let text = "type: task\nnodes: 1\ncommands: [a]\nnodes: 2\n";
    let parsed = parse::<Configuration>("f", text, Mode::Strict).unwrap();
    assert_eq!(serde_json::to_value(&parsed.value).unwrap()["nodes"], 2);
    assert_eq!(
        parsed.warnings[0].to_string(),
        "4:1: the key `nodes` occurs twice (lines 2 and 4); the last one counts"
    );
}

#[test]
fn base_sixty_and_octal_are_told() {
    let document = Document::parse("a: 22:22\nb: 0755\nc: 80:8000\nd: 0x1F\n").unwrap();
    let warnings: Vec<_> = document.warnings().iter().map(|w| w.line).collect();
    assert_eq!(warnings, [1, 2]);
}

#[test]
fn bombs_and_deep_nesting_are_refused() {
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for i in 1..9 {
        let refs = vec![format!("*a{}", i - 1); 10].join(",");
        bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
    }
    assert!(
        Document::parse(&bomb)
            .unwrap_err()
            .message
            .contains("more than 50000 nodes")
    );
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert!(
        Document::parse(&deep)
            .unwrap_err()
            .message
            .contains("nested deeper")
    );
}

#[test]
fn written_yaml_reads_back() {
    let value = json!({
        "projects": [{"name": "main", "url": "http://h:3000", "token": "123", "default": true, "e": []}],
        "words": ["yes", "1e3", "22:22", "a: b", "- x", "", "null", "x\ny", "#c", "a #b", "0o7", "2024-01-01", "~", "*a", "é", "true"],
        "n": {"x": null, "y": 1.5, "z": {"w": [[1, 2], [{"a": 1, "b": 2}]]}},
    });
    let text = to_yaml(&value);
    assert_eq!(
        Document::parse(&text).unwrap().to_json().unwrap(),
        value,
        "{text}"
    );
    assert!(
        text.starts_with("\"n\":\n  x: null\n")
            && text.contains("- default: true\n  e: []\n  name: main\n"),
        "{text}"
    );
}

proptest::proptest! {
    #[test]
    fn any_text_written_reads_back(texts in proptest::collection::vec("[ -~\\n\\té🦀]{0,12}|[0-9:._e+-]{0,8}", 0..4)) {
        let value = json!({"list": texts, "map": {texts.first().cloned().unwrap_or_default(): texts.last()}});
        let yaml = to_yaml(&value);
        proptest::prop_assert_eq!(Document::parse(&yaml).unwrap().to_json().unwrap(), value, "{}", yaml);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z0-9:\\-#&*!|>'\"%@`{}\\[\\], \\n\\t?~<=.]{0,60}") {
        match parse::<Configuration>("f", &text, Mode::Strict) {
            Ok(parsed) => drop(parsed),
            Err(errors) => proptest::prop_assert!(!errors.render().is_empty()),
        }
    }
}

fn shown(text: &str) -> String {
    let errors = parse::<Configuration>("x.yml", text, Mode::Strict).unwrap_err();
    errors.render()
}

/// The place and the words that tell the remedy.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn broken_files_are_told_with_a_remedy() {
    let cases = [
        (
            "type:task\ncommands: [make]\n",
            "x.yml:2:9",
            "a blank after the colon in line 1",
        ),
        (
            "type: task\ncommands:[make]\n",
            "x.yml:2:1",
            "a blank after the colon in line 2",
        ),
        (
            "type task\ncommands: [make]\n",
            "x.yml:2:9",
            "line 1 has no colon",
        ),
        (
            "type: task\n  commands: [make]\n",
            "x.yml:2:11",
            "line 1 has a value already",
        ),
        (
            "type: task\ncommands:\n  - echo a: b: c\n",
            "x.yml:3:14",
            "in quotes",
        ),
        (
            "type: task\ncommands:\n  - echo a: b\n",
            "x.yml:3:5",
            "in quotes",
        ),
        (
            "type: task\ncommands:\n  - *.py\n",
            "x.yml:3:5",
            "starts with `*` in quotes",
        ),
        (
            "type: task\ncommands:\n  - @x\n",
            "x.yml:3:5",
            "starts with `@` in quotes",
        ),
        (
            "type: task\ncommands:\n  - !x y\n",
            "x.yml:3:8",
            "starts with `!` in quotes",
        ),
        (
            "type: task\nresources:\n\tgpu: 1\n",
            "x.yml:3:1",
            "blanks only",
        ),
        (
            "type: task\nresources:\n  gpu: 1\n\tcpu: 2\n",
            "x.yml:4:1",
            "blanks only",
        ),
        (
            "type: task\ncommands: [make\nname: x\n",
            "x.yml:3:5",
            "close the bracket",
        ),
        (
            "type: task\ncommands:\n  - make\n - test\n",
            "x.yml:4:2",
            "in the same column",
        ),
        ("# nothing\n", "x.yml:1:1", "there is nothing in the file"),
        (
            "type: task\ncommands: make\n",
            "x.yml:2:11",
            "one item a line after `- `",
        ),
        (
            "type: task\ncommands: [make]\ngpu: 1\n",
            "x.yml:3:1",
            "below `resources`",
        ),
        (
            "type: task\ncommands: [make]\nregions: [no]\n",
            "x.yml:3:11",
            "put it in quotes",
        ),
        (
            "type: task\ncommands: [make]\nenv:\n  - A: 1\n",
            "x.yml:4:5",
            "without a dash",
        ),
        (
            "type: task\ncommands: [make]\nenv:\n  A: {key: B}\n",
            "x.yml:4:3",
            "`key: A`",
        ),
        (
            "type: task\ncommands: [make]\nports: [8080:22]\n",
            "x.yml:3:9",
            "base 60",
        ),
    ];
    for (text, place, remedy) in cases {
        let shown = shown(text);
        assert!(shown.starts_with(&format!("{place}: ")), "{text}{shown}");
        assert!(shown.contains(remedy), "{text}{shown}");
    }
}

#[test]
fn what_cannot_be_seen_reaches_no_terminal() {
    let text = "type: task\ncommands: [make]\nspot_policy: \"\\e[31m\\n\\u202E\"\n\"\\e[2J\": 1\nna\u{202E}me: 1\n";
    let shown = shown(text);
    assert!(
        shown
            .chars()
            .all(|c| c == '\n' || !(c.is_control() || c == '\u{202E}'))
    );
    assert!(shown.contains(r#"got "\u{1b}[31m\n\u{202e}""#), "{shown}");
    assert_eq!(shown.lines().count(), 9, "{shown}");
}

#[test]
fn the_caret_stands_below_the_place_whatever_is_before_it() {
    for before in ["e\u{301}e\u{301}", "日本", "👍🏽", "👨‍👩‍👧", "ab"] {
        let shown = shown(&format!(
            "type: task\ncommands: [make]\nenv: {{A: {before}, B: [1]}}\n"
        ));
        let mut lines = shown.lines().skip(1);
        let (line, caret) = (lines.next().unwrap(), lines.next().unwrap());
        let start = line.split_once("B:").unwrap().0;
        use unicode_width::UnicodeWidthStr;
        assert_eq!(start.width(), caret.width() - 1, "{shown}");
    }
}
