use serde_json::json;

use super::{Kind, Mode, nearest_key, read};
use crate::resources::ResourcesSpec;

#[test]
fn unknown_key_names_its_path_and_the_nearest_known_key() {
    let value = json!({"gpu": {"naem": "H100"}});
    let problems = read::<ResourcesSpec>(&value, Mode::Strict).unwrap_err().0;
    assert_eq!(problems[0].path.to_string(), "gpu.naem");
    assert_eq!(
        problems[0].kind,
        Kind::UnknownKey {
            nearest: Some("name".to_owned())
        }
    );
    assert!(read::<ResourcesSpec>(&value, Mode::Tolerant).is_ok());
}

#[test]
fn all_problems_of_a_document_are_reported() {
    let value = json!({"cpu": "riscv", "memory": "16Gi", "dsk": 1});
    let problems = read::<ResourcesSpec>(&value, Mode::Strict).unwrap_err().0;
    let paths: Vec<_> = problems.iter().map(|p| p.path.to_string()).collect();
    assert_eq!(paths, ["cpu", "memory", "dsk"]);
}

#[test]
fn only_near_keys_are_suggested() {
    let known = || ["commands", "nodes", "working_dir"].into_iter();
    assert_eq!(nearest_key("command", known()), Some("commands"));
    assert_eq!(nearest_key("noeds", known()), Some("nodes"));
    assert_eq!(nearest_key("working-dir", known()), Some("working_dir"));
    assert_eq!(nearest_key("image", known()), None);
}

#[test]
fn scalars_convert_where_nothing_is_lost() {
    let int = |v: serde_json::Value| read::<i64>(&v, Mode::Strict).ok().map(|r| r.value);
    assert_eq!(int(json!("2")), Some(2));
    assert_eq!(int(json!(2.0)), Some(2));
    assert_eq!(int(json!(2.5)), None);
    assert_eq!(int(json!(true)), None);
    let text = |v: serde_json::Value| read::<String>(&v, Mode::Strict).ok().map(|r| r.value);
    assert_eq!(text(json!(8080)).as_deref(), Some("8080"));
    assert_eq!(text(json!(1.5)).as_deref(), Some("1.5"));
    assert_eq!(text(json!(null)), None);
    let flag = |v: serde_json::Value| read::<bool>(&v, Mode::Strict).ok().map(|r| r.value);
    assert_eq!(flag(json!("OFF")), Some(false));
    assert_eq!(flag(json!(1)), Some(true));
    assert_eq!(flag(json!(2)), None);
}
