//! The examples of this repository are what they say.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dstack_api::config::{Configuration, Mode, ProfilesConfig};
use dstack_api::{plan, yaml};
use serde_json::{Value, json};

use crate::corpus::plan_form;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

/// What is read of a file, strictly, and without a warning.
fn read<T: dstack_api::config::FromValue>(name: &str) -> T {
    let parsed = yaml::parse::<T>(name, &text(name), Mode::Strict)
        .unwrap_or_else(|errors| panic!("{}", errors.render()));
    assert_eq!(parsed.warnings, [], "{name}");
    parsed.value
}

/// What each example shows, by JSON pointers into its plan form (`configuration`, `merged_profile`, `jobs`…), or into its
/// canonical form for what has none.
fn facts() -> Vec<(&'static str, Value)> {
    vec![
        (
            "amd",
            json!({"/jobs/0/requirements/resources/gpu/vendor": "amd", "/jobs/0/requirements/resources/gpu/name": ["MI300X"]}),
        ),
        (
            "arm",
            json!({"/jobs/0/requirements/resources/cpu": {"arch": "arm", "count": {"min": 4, "max": 8}}}),
        ),
        (
            "checkpoints",
            json!({
                "/jobs/0/retry/duration": 86400, "/jobs/0/requirements/spot": true, "/jobs/0/stop_duration": 300,
                "/configuration/volumes/0/name": ["checkpoints-east", "checkpoints-west"],
            }),
        ),
        (
            "cloud-fleet",
            json!({"/configuration/nodes": {"min": 2, "max": 4}, "/configuration/placement": "cluster", "/merged_profile/idle_duration": 1800}),
        ),
        (
            "dev-environment",
            json!({"/configuration/ide": "vscode", "/configuration/inactivity_duration": 7200, "/jobs/0/requirements/resources/gpu/memory/min": 24.0}),
        ),
        (
            "distributed",
            json!({"/initial_job_count": 4, "/jobs/0/jobs_per_replica": 4, "/merged_profile/startup_order": "master-first"}),
        ),
        (
            "files",
            json!({"/configuration/files/1/path": "/srv/hello", "/configuration/repos/0/url": "https://github.com/rust-lang/log"}),
        ),
        (
            "fleet",
            json!({"/configuration/nodes": {"min": 0, "max": 1}}),
        ),
        (
            "gateway",
            json!({"/domain": "${{ run.project_name }}.example.com"}),
        ),
        (
            "mounts",
            json!({"/configuration/volumes/1/instance_path": "/mnt/cache", "/configuration/volumes/2/optional": true}),
        ),
        (
            "node-groups",
            json!({"/initial_job_count": 5, "/configuration/groups/1/nodes": 4, "/jobs/1/requirements/resources/cpu/count/min": 16}),
        ),
        (
            "prefill-decode",
            json!({
                "/initial_job_count": 4, "/configuration/groups/0/router/type": "sglang", "/configuration/groups/1/replicas/max": 4,
                "/jobs/2/requirements/resources/gpu/count/min": 4,
            }),
        ),
        (
            "schedule",
            json!({"/merged_profile/schedule/cron/0": "15 6 * * mon-fri", "/jobs/0/max_duration": 3600}),
        ),
        (
            "secrets",
            json!({"/configuration/registry_auth/username": "${{ secrets.registry_user }}", "/configuration/env/WANDB_API_KEY": "${{ secrets.wandb_key }}"}),
        ),
        (
            "service",
            json!({
                "/configuration/replicas": {"min": 1, "max": 4}, "/configuration/model/name": "Qwen/Qwen2.5-7B-Instruct",
                "/configuration/scaling/scale_up_delay": 60, "/jobs/0/probes/0/ready_after": 2, "/initial_job_count": 1,
            }),
        ),
        (
            "ssh-fleet",
            json!({"/configuration/ssh_config/hosts/2/blocks": 8, "/configuration/ssh_config/proxy_jump/user": "jump"}),
        ),
        (
            "task",
            json!({"/configuration/env/LIMIT": "20000", "/initial_job_count": 1}),
        ),
        ("task-docker", json!({"/configuration/python": "3.12"})),
        (
            "tenstorrent",
            json!({"/jobs/0/requirements/resources/gpu/vendor": "tenstorrent", "/jobs/0/requirements/resources/gpu/count/min": 2}),
        ),
        (
            "tpu",
            json!({"/jobs/0/requirements/resources/gpu/vendor": "google", "/jobs/0/requirements/resources/gpu/name": ["v5litepod-4"]}),
        ),
        (
            "volume",
            json!({"/size": 500.0, "/auto_cleanup_duration": 2_592_000}),
        ),
    ]
}

#[test]
fn every_example_is_what_it_says() {
    let mut names = BTreeSet::new();
    for (name, facts) in facts() {
        let file = format!("{name}.dstack.yml");
        assert!(
            text(&file).starts_with("# "),
            "{file} starts with what it is"
        );
        let configuration: Configuration = read(&file);
        assert_eq!(
            configuration.name().map(str::is_empty),
            Some(false),
            "{file} has a name"
        );
        let canonical = serde_json::to_value(&configuration).unwrap();
        let planned = plan_form(&configuration).unwrap_or_else(|e| panic!("{file}: {e:?}"));
        let form = if planned.is_null() {
            canonical
        } else {
            planned
        };
        for (pointer, expected) in facts.as_object().unwrap() {
            assert_eq!(
                form.pointer(pointer),
                Some(expected),
                "{file}: {pointer} in {form:#}"
            );
        }
        names.insert(file);
    }
    let there = std::fs::read_dir(folder()).unwrap();
    let there = there.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<_> = there.filter(|name| name.ends_with(".dstack.yml")).collect();
    assert_eq!(there, names, "each example has its facts here");
    let readme = text("../README.md");
    for name in &names {
        assert!(
            readme.contains(&format!("`{name}`")),
            "{name} is in the list of README.md"
        );
    }
}

#[test]
fn profiles_and_domains_are_what_they_say() {
    let profiles: ProfilesConfig = read("profiles.yml");
    assert_eq!(profiles.default_entry().unwrap().name, "careful");
    assert_eq!(profiles.named("cheap").unwrap().params.max_price, Some(1.5));
    let Configuration::Gateway(gateway) = read("gateway.dstack.yml") else {
        panic!("a gateway")
    };
    let domain = plan::gateway_domain(gateway.domain.as_deref().unwrap(), "team").unwrap();
    assert_eq!(domain, "team.example.com");
}
