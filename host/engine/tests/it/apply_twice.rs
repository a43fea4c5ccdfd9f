//! What is applied again without a change is no change, for every valid file of the corpus.

use std::path::PathBuf;

use dstack_api::config::{Configuration, Mode, RunConfiguration};
use dstack_api::fleets::FleetSpec;
use dstack_api::plan::{self, PlanLimits};
use dstack_api::runs::RunSpec;
use dstack_api::yaml;
use dstack_engine::plan_diff::{FleetUpdate, fleet_update, update_in_place};
use serde_json::json;

/// The file as its client sends it.
fn read(name: &str, text: &str) -> Option<Configuration> {
    let mut configuration = yaml::parse::<Configuration>(name, text, Mode::Strict)
        .ok()?
        .value;
    plan::prepare(&mut configuration, &[], |name| Some(format!("<{name}>"))).ok()?;
    Some(configuration)
}

/// As the server fills it in; none if it refuses it.
fn effective(run: &RunConfiguration) -> Option<RunSpec> {
    let spec = serde_json::from_value(json!({"run_name": "a-run", "configuration": run})).unwrap();
    Some(plan::effective_run(spec, &PlanLimits::default()).ok()?.spec)
}

/// As the database and the wire give it back.
fn stored<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

#[test]
fn apply_twice_reports_no_change() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract/config-corpus");
    let (mut runs, mut fleets) = (0, 0);
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let is_valid = path.with_extension("json").exists();
        if path.extension().is_none_or(|kind| kind != "yml") || !is_valid {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let (Some(first), Some(second)) = (read(&name, &text), read(&name, &text)) else {
            continue;
        };
        match (first, second) {
            (Configuration::Run(first), Configuration::Run(second)) => {
                let (Some(old), Some(new)) = (effective(&first), effective(&second)) else {
                    continue;
                };
                let old = stored(&old);
                assert_eq!(update_in_place(&old, &new), Ok(Vec::new()), "{name}");
                assert_eq!(old, new, "{name}");
                // A client that sends back what it was shown.
                let again = plan::effective_run(old.clone(), &PlanLimits::default()).unwrap();
                assert_eq!(again.spec, old, "{name}");
                runs += 1;
            }
            (Configuration::Fleet(first), Configuration::Fleet(second)) => {
                let spec = |fleet| FleetSpec {
                    configuration: fleet,
                    configuration_path: None,
                    profile: serde_json::from_value(json!({"name": "default"})).unwrap(),
                    autocreated: false,
                };
                let (old, new) = (stored(&spec(*first)), spec(*second));
                assert_eq!(
                    fleet_update(&old, &new),
                    Ok(FleetUpdate::default()),
                    "{name}"
                );
                fleets += 1;
            }
            _ => {}
        }
    }
    assert!(runs > 100 && fleets > 10, "{runs} runs, {fleets} fleets");
}
