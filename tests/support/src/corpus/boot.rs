//! Vectors about the start of machines and containers.

use dstack_api::yaml::Document;
use dstack_backend_sdk::arch::normalize_arch;
use dstack_backend_sdk::boot::{
    AgentUrls, REFERENCE_AGENT_URLS, ShimSetup, container_commands, gateway_user_data,
};
use dstack_backend_types::CpuArchitecture;
use serde_json::{Map, Value, json};

use super::vectors::Answer;

/// The version the texts were recorded with.
const VERSION: &str = "0.22.5";

fn urls(version: Option<&str>) -> AgentUrls {
    let (shim, runner) = REFERENCE_AGENT_URLS;
    AgentUrls {
        shim: shim.to_owned(),
        runner: runner.to_owned(),
        version: version.unwrap_or(VERSION).to_owned(),
    }
}

/// The answer to a row; none if the file is not about this.
pub(super) fn answer(name: &str, row: &Value) -> Option<Answer> {
    Some(match name {
        "urls" => arch(&row["arch"]).map(|arch| {
            let urls = urls(row["version"].as_str());
            match row["kind"] == "shim" {
                true => json!(urls.shim_url(arch)),
                false => json!(urls.runner_url(arch)),
            }
        }),
        "shim-env" => arch(&row["arch"]).map(|arch| {
            let setup = ShimSetup::new(urls(None), arch, Vec::new());
            let env = setup.shim_env().into_iter();
            Value::Object(env.map(|(name, value)| (name, json!(value))).collect())
        }),
        "user-data" => setup(&row["args"]).and_then(|setup| document(&setup.user_data())),
        "docker-commands" => arch(&Value::Null).map(|arch| {
            let keys = strings(&row["args"]["authorized_keys"]);
            json!(container_commands(&urls(None), arch, &keys, &[]))
        }),
        "gateway-user-data" => document(&gateway_user_data(
            row["authorized_key"].as_str().unwrap_or_default(),
            "dstack[gateway]==0.22.5",
            "dstack._internal.proxy.gateway.systemd",
        )),
        _ => return None,
    })
}

/// A document for cloud-init as a value. Shells do not mind how much blank there is between words, nor do we.
pub(super) fn document(text: &str) -> Answer {
    let mut value = Document::parse(text)
        .and_then(|document| document.to_json())
        .map_err(|e| e.to_string())?;
    words(&mut value);
    Ok(value)
}

fn words(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Array(items) => items.iter_mut().for_each(words),
        Value::Object(object) => object.values_mut().for_each(words),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn arch(word: &Value) -> Result<CpuArchitecture, String> {
    normalize_arch(word.as_str()).map_err(|e| e.to_string())
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn setup(args: &Value) -> Result<ShimSetup, String> {
    let none = Map::new();
    let args = args.as_object().unwrap_or(&none);
    let keys = args.get("authorized_keys").map(strings).unwrap_or_default();
    let mut setup = ShimSetup::new(urls(None), arch(&Value::Null)?, keys);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (key, value) in args {
        match key.as_str() {
            "authorized_keys" => {}
            "backend_specific_commands" => setup.first = strings(value),
            "base_path" => setup.home = text(value),
            "bin_path" => setup.bin = text(value),
            "backend_shim_env" => {
                let env = value.as_object().into_iter().flatten();
                setup.env = env.map(|(k, v)| (k.clone(), text(v))).collect();
            }
            "skip_firewall_setup" => setup.firewall_subnets = None,
            "firewall_allow_from_subnets" => setup.firewall_subnets = Some(strings(value)),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(setup)
}
