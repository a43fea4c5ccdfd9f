use std::process::Command;

use serde_json::{Map, Value, json};

use super::{
    AgentUrls, ContainerSetup, REFERENCE_AGENT_URLS, ShimSetup, container_agent_urls,
    container_commands, gateway_user_data, quote,
};
use crate::arch::normalize_arch;
use crate::testing::{Host, Reply};
use crate::vectors::{contract, rows};

fn urls(version: &str) -> AgentUrls {
    let (shim, runner) = REFERENCE_AGENT_URLS;
    AgentUrls {
        shim: shim.to_owned(),
        runner: runner.to_owned(),
        version: version.to_owned(),
    }
}

fn strings(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

/// The recorded text has line breaks and indentation where ours has single blanks or line breaks.
fn words(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Array(items) => items.iter_mut().for_each(words),
        Value::Object(object) => object.values_mut().for_each(words),
        _ => {}
    }
}

fn document(text: &str) -> Value {
    let mut value = serde_json::from_str(text.strip_prefix("#cloud-config\n").unwrap()).unwrap();
    words(&mut value);
    value
}

fn setup(args: &Map<String, Value>) -> ShimSetup {
    let mut setup = ShimSetup::new(
        urls("0.22.5"),
        normalize_arch(None).unwrap(),
        strings(&args["authorized_keys"]),
    );
    for (key, value) in args {
        match key.as_str() {
            "authorized_keys" => {}
            "backend_specific_commands" => setup.first = strings(value),
            "base_path" => setup.home = value.as_str().unwrap().to_owned(),
            "bin_path" => setup.bin = value.as_str().unwrap().to_owned(),
            "backend_shim_env" => {
                let env: Vec<_> = value.as_object().unwrap().iter().collect();
                setup.env = env
                    .iter()
                    .map(|(k, v)| ((*k).clone(), v.as_str().unwrap().to_owned()))
                    .collect();
            }
            "skip_firewall_setup" => setup.firewall_subnets = None,
            "firewall_allow_from_subnets" => setup.firewall_subnets = Some(strings(value)),
            other => panic!("unknown argument {other}"),
        }
    }
    setup
}

#[test]
fn machines_boot_as_recorded() {
    for row in contract("boot/user-data") {
        let mut expected = row["output"].clone();
        words(&mut expected);
        let text = setup(row["args"].as_object().unwrap()).user_data();
        assert_eq!(document(&text), expected, "{}", row["args"]);
    }
}

#[test]
fn flags_reach_the_shim() {
    let mut setup = ShimSetup::new(urls("1"), normalize_arch(None).unwrap(), Vec::new());
    setup.privileged = true;
    setup.pjrt_device = Some("TPU".to_owned());
    assert!(
        setup
            .commands()
            .last()
            .unwrap()
            .contains("dstack-shim --privileged --pjrt-device=TPU\n")
    );
}

#[test]
fn without_a_place_to_download_from_the_host_brings_the_agents() {
    let setup = ShimSetup::new(None, normalize_arch(None).unwrap(), Vec::new());
    let script = setup.commands().join("\n");
    assert!(
        !script.contains("curl") && !script.contains("DOWNLOAD_URL"),
        "{script}"
    );
    assert!(script.contains("mkdir /root/.dstack") && script.contains("while true"));
    let host = Host::new(|_| Reply::cut());
    host.answer(
        0,
        &json!({"host_version": "1", "log_level": 3, "services": {}}),
    );
    let error = container_agent_urls().unwrap_err();
    assert!(error.message.contains("DSTACK_SERVER_URL"), "{error}");
}

#[test]
fn a_container_starts_by_two_kilobytes() {
    let key = format!("ssh-ed25519 {} user@machine", "A".repeat(68));
    let mut setup =
        ContainerSetup::new(urls("0.22.5"), normalize_arch(None).unwrap(), vec![key; 3]);
    setup.bin = "/opt/bin".to_owned();
    let script = setup.script();
    assert!(script.len() <= 2048, "{} bytes", script.len());
    assert!(script.contains("--output /opt/bin/dstack-runner "));
}

#[test]
fn the_shim_gets_its_variables() {
    for row in rows("shim-env") {
        let arch = normalize_arch(row["arch"].as_str()).unwrap();
        let env: Map<String, Value> = ShimSetup::new(urls("0.22.5"), arch, Vec::new())
            .shim_env()
            .into_iter()
            .map(|(k, v)| (k, json!(v)))
            .collect();
        assert_eq!(Value::Object(env), row["output"]);
    }
    let mut setup = ShimSetup::new(urls("1"), normalize_arch(None).unwrap(), Vec::new());
    setup.env = vec![("DSTACK_SHIM_LOG_LEVEL".to_owned(), "6".to_owned())];
    let levels: Vec<_> = setup
        .shim_env()
        .into_iter()
        .filter(|(name, _)| name == "DSTACK_SHIM_LOG_LEVEL")
        .collect();
    assert_eq!(levels, setup.env, "a backend's value replaces ours");
}

#[test]
fn our_shim_is_told_when_an_idle_machine_ends_itself() {
    let own = AgentUrls {
        shim: "https://dstack.example/agents/{version}/{arch}/dstack-shim".to_owned(),
        runner: "https://dstack.example/agents/{version}/{arch}/dstack-runner".to_owned(),
        version: "1".to_owned(),
    };
    let limit = |urls: Option<AgentUrls>, env: &[(&str, &str)]| {
        let mut setup = ShimSetup::new(urls, normalize_arch(None).unwrap(), Vec::new());
        setup.env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let exported = setup.commands().join("\n");
        let found = setup
            .shim_env()
            .into_iter()
            .find(|(name, _)| name == "DSTACK_SHIM_IDLE_SHUTDOWN");
        let value = found.map(|(_, value)| value);
        let line = value
            .as_ref()
            .map(|value| format!("export \"DSTACK_SHIM_IDLE_SHUTDOWN={value}\""));
        assert_eq!(
            exported.contains("IDLE_SHUTDOWN"),
            line.as_ref().is_some_and(|line| exported.contains(line))
        );
        value
    };
    assert_eq!(limit(Some(own), &[]).as_deref(), Some("1800"));
    assert_eq!(limit(None, &[]).as_deref(), Some("1800"));
    let off = [("DSTACK_SHIM_IDLE_SHUTDOWN", "0")];
    assert_eq!(limit(None, &off).as_deref(), Some("0"));
    // The reference's shim does not know the variable.
    assert_eq!(limit(Some(urls("0.22.5")), &[]), None);
}

#[test]
fn addresses_are_filled_in() {
    for row in rows("urls") {
        let arch = normalize_arch(row["arch"].as_str()).unwrap();
        let urls = urls(row["version"].as_str().unwrap_or("0.22.5"));
        let url = if row["kind"] == "shim" {
            urls.shim_url(arch)
        } else {
            urls.runner_url(arch)
        };
        assert_eq!(url, row["output"]);
    }
}

#[test]
fn containers_boot_as_recorded() {
    for row in rows("docker-commands") {
        let keys = strings(&row["args"]["authorized_keys"]);
        let commands =
            container_commands(&urls("0.22.5"), normalize_arch(None).unwrap(), &keys, &[]);
        assert_eq!(json!(commands), row["output"]);
    }
}

#[test]
fn gateways_boot_as_recorded() {
    for row in contract("boot/gateway-user-data") {
        let key = row["authorized_key"].as_str().unwrap();
        let text = gateway_user_data(
            key,
            "dstack[gateway]==0.22.5",
            "dstack._internal.proxy.gateway.systemd",
        );
        let mut expected = row["output"].clone();
        words(&mut expected);
        assert_eq!(document(&text), expected);
    }
}

#[test]
fn a_real_shell_reads_our_commands() {
    let mut setup = ShimSetup::new(urls("1"), normalize_arch(None).unwrap(), Vec::new());
    setup.first = vec!["true".to_owned()];
    let machine = setup.commands().join(" && ");
    let keys = ["it's a key".to_owned()];
    let container = container_commands(
        &urls("1"),
        normalize_arch(None).unwrap(),
        &keys,
        &["echo before".to_owned()],
    )
    .join(" && ");
    for script in [machine, container] {
        let status = Command::new("sh")
            .args(["-n", "-c", &script])
            .status()
            .unwrap();
        assert!(status.success(), "{script}");
    }
    for word in ["", "plain", "two words", "it's", "$HOME `id` \"x\"", "a\nb"] {
        let out = Command::new("sh")
            .args(["-c", &format!("printf %s {}", quote(word))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
    }
}
