use std::collections::BTreeMap;

use dstack_backend_types::CpuArchitecture;
use serde_json::{Value, json};

use super::{
    DefaultImages, DefaultRegistry, EffectiveRun, ImageFacts, JobSettings, PlanError, PlanLimits,
    ProfileChoice, StandardBootstrap, choose_profile, effective_run, image_names, merge_ports,
    prepare_run, replica_jobs,
};
use crate::config::{Mode, PortMapping, ProfilesConfig, PythonVersion, RunConfiguration, read};
use crate::jobs::JobSpec;
use crate::runs::RunSpec;

fn run(value: Value) -> RunConfiguration {
    read(&value, Mode::Strict).unwrap().value
}

fn spec(value: Value) -> RunSpec {
    serde_json::from_value(json!({"run_name": "my-run", "configuration": run(value)})).unwrap()
}

fn jobs_with(
    value: Value,
    replica: u32,
    registry: Option<&DefaultRegistry>,
    facts: &ImageFacts,
) -> Result<Vec<JobSpec>, PlanError> {
    let effective = effective_run(spec(value), &PlanLimits::default())?;
    let named = image_names(&effective.spec.configuration)
        .into_iter()
        .flatten();
    let facts: BTreeMap<_, _> = named.map(|(image, _)| (image, facts.clone())).collect();
    jobs_knowing(&effective, replica, registry, &facts)
}

fn jobs_knowing(
    effective: &EffectiveRun,
    replica: u32,
    registry: Option<&DefaultRegistry>,
    facts: &BTreeMap<String, ImageFacts>,
) -> Result<Vec<JobSpec>, PlanError> {
    let images = DefaultImages::default();
    let settings = JobSettings {
        images: &images,
        registry,
        python: PythonVersion::Py312,
        bootstrap: &StandardBootstrap::default(),
        facts,
    };
    replica_jobs(&effective.spec, &effective.profile, replica, 0, &settings)
}

fn jobs(value: Value) -> Vec<JobSpec> {
    jobs_with(value, 0, None, &ImageFacts::default()).unwrap()
}

#[test]
fn every_node_has_its_number_and_its_own_volume() {
    let jobs = jobs(json!({
        "type": "task", "nodes": 3, "commands": ["a"], "volumes": ["data-${{ dstack.node_rank }}:/d"],
    }));
    let names: Vec<_> = jobs.iter().map(|job| job.job_name.as_str()).collect();
    assert_eq!(names, ["my-run-0-0", "my-run-1-0", "my-run-2-0"]);
    let volumes: Vec<_> = jobs
        .iter()
        .map(|job| json!(job.volumes)[0]["name"][0].clone())
        .collect();
    assert_eq!(volumes, ["data-0", "data-1", "data-2"]);
    assert!(
        jobs.iter()
            .all(|job| job.requirements.multinode == Some(true))
    );
    assert_eq!(jobs[2].node_group_job_index, 2);
}

#[test]
fn nodes_of_groups_are_counted_through() {
    let jobs = jobs(json!({"type": "task", "groups": [
        {"name": "head", "commands": ["h"]}, {"nodes": 2, "commands": ["w"]},
    ]}));
    let places: Vec<_> = jobs
        .iter()
        .map(|job| {
            (
                job.job_num,
                job.node_group_name.as_str(),
                job.node_group_job_index,
            )
        })
        .collect();
    assert_eq!(places, [(0, "head", 0), (1, "1", 0), (2, "1", 1)]);
}

#[test]
fn replicas_are_named_by_their_number() {
    let value = json!({"type": "service", "port": 80, "commands": ["s"], "replicas": 2});
    let jobs = jobs_with(value, 1, None, &ImageFacts::default()).unwrap();
    assert_eq!((jobs.len(), jobs[0].job_name.as_str()), (1, "my-run-0-1"));
}

#[test]
fn default_registry_is_for_images_that_name_none() {
    let auth = dstack_backend_types::RegistryAuth {
        username: "u".into(),
        password: "p".into(),
    };
    let registry = DefaultRegistry {
        host: "r.example.com".to_owned(),
        auth: Some(auth),
    };
    let image = |image: &str| {
        let value = json!({"type": "task", "image": image, "commands": ["a"]});
        jobs_with(value, 0, Some(&registry), &ImageFacts::default())
            .unwrap()
            .remove(0)
    };
    assert_eq!(image("org/img:1").image_name, "r.example.com/org/img:1");
    assert!(image("org/img:1").registry_auth.is_some());
    assert_eq!(image("ghcr.io/org/img").image_name, "ghcr.io/org/img");
    assert!(image("ghcr.io/org/img").registry_auth.is_none());
}

#[test]
fn facts_of_the_image_fill_what_the_run_leaves_open() {
    let facts = ImageFacts {
        architectures: vec![CpuArchitecture::Arm],
        user: Some("1000:app".to_owned()),
        entrypoint: vec!["/run".to_owned()],
        command: Vec::new(),
    };
    let value = json!({"type": "task", "image": "img"});
    let job = jobs_with(value.clone(), 0, None, &facts).unwrap().remove(0);
    assert_eq!(job.commands, ["/run"]);
    assert_eq!(
        job.requirements.resources.cpu.arch,
        Some(CpuArchitecture::Arm)
    );
    assert_eq!(job.user.unwrap().uid, Some(1000));
    let error = jobs_with(value, 0, None, &ImageFacts::default()).unwrap_err();
    assert_eq!(error, PlanError::NoCommand("img".to_owned()));
}

#[test]
fn an_image_nobody_looked_into_needs_commands() {
    let value = json!({"type": "task", "image": "img"});
    let effective = effective_run(spec(value), &PlanLimits::default()).unwrap();
    let error = jobs_knowing(&effective, 0, None, &BTreeMap::new()).unwrap_err();
    assert_eq!(error, PlanError::UnknownCommand("img".to_owned()));
}

#[test]
fn arguments_are_quoted_and_variables_must_be_known() {
    let mut task =
        run(json!({"type": "task", "commands": ["train ${{ run.args }}"], "env": ["TOKEN"]}));
    let args = ["--name".to_owned(), "a b".to_owned()];
    prepare_run(&mut task, &args, |name| Some(format!("value of {name}"))).unwrap();
    let RunConfiguration::Task(task) = &task else {
        panic!("it is a task")
    };
    assert_eq!(task.commands, ["train --name 'a b'"]);
    assert_eq!(task.base.env.texts().unwrap()["TOKEN"], "value of TOKEN");

    let mut task = run(json!({"type": "task", "commands": ["a"], "env": ["TOKEN"]}));
    let error = prepare_run(&mut task, &[], |_| None).unwrap_err();
    assert!(error.to_string().contains("TOKEN is not set"));
}

#[test]
fn ports_given_twice_are_refused_and_options_replace_them() {
    let mut task = run(json!({"type": "task", "commands": ["a"], "ports": [8080, "80:8080"]}));
    assert_eq!(
        prepare_run(&mut task, &[], |_| None),
        Err(PlanError::PortTwice(8080))
    );
    let merged = merge_ports(
        &[PortMapping::same(8080), PortMapping::same(9090)],
        &[PortMapping {
            local_port: Some(80),
            container_port: 8080,
        }],
    );
    assert_eq!(
        json!(merged),
        json!([
            {"local_port": 9090, "container_port": 9090}, {"local_port": 80, "container_port": 8080},
        ])
    );
}

#[test]
fn times_that_never_come_are_refused() {
    let value = json!({"type": "task", "commands": ["a"], "schedule": {"cron": "0 0 31 2 *"}});
    let error = effective_run(spec(value), &PlanLimits::default()).unwrap_err();
    assert_eq!(error, PlanError::CronNever("0 0 31 2 *".to_owned()));
    let leap = json!({"type": "task", "commands": ["a"], "schedule": {"cron": "0 0 29 2 *"}});
    assert!(effective_run(spec(leap), &PlanLimits::default()).is_ok());
}

#[test]
fn own_profile_values_win_even_when_false() {
    let mut spec = spec(json!({"type": "task", "commands": ["a"], "retry": false}));
    let profile = json!({"retry": true, "regions": ["eu"], "utilization_policy": {"min_gpu_utilization": 5, "time_window": "5m"}});
    spec.profile = Some(serde_json::from_value(profile).unwrap());
    let merged = effective_run(spec, &PlanLimits::default())
        .unwrap()
        .profile
        .params;
    assert_eq!(merged.effective_retry(), None);
    assert_eq!(merged.regions.unwrap(), ["eu"]);
    assert_eq!(merged.utilization_policy.unwrap().time_window, 300);
}

#[test]
fn profiles_are_chosen_by_name_or_default() {
    let file = |value: Value| read::<ProfilesConfig>(&value, Mode::Strict).unwrap().value;
    let here = file(json!({"profiles": [{"name": "a"}]}));
    let home =
        file(json!({"profiles": [{"name": "b", "default": true}, {"name": "a", "max_price": 1}]}));
    let files = [here, home];
    let chosen = |choice| choose_profile(&choice, &files).map(|profile| profile.name);
    assert_eq!(chosen(ProfileChoice::Default).unwrap(), "b");
    assert_eq!(chosen(ProfileChoice::None).unwrap(), "no-profile");
    assert_eq!(
        choose_profile(&ProfileChoice::Named("a".into()), &files)
            .unwrap()
            .params
            .max_price,
        None
    );
    assert_eq!(
        chosen(ProfileChoice::Named("x".into())),
        Err(PlanError::NoProfile("x".into()))
    );
}

#[test]
fn secrets_do_not_show_in_debug() {
    let value = json!({
        "type": "task", "image": "i", "env": {"TOKEN": "s3cret"},
        "registry_auth": {"username": "u", "password": "s3cret"},
    });
    assert!(!format!("{:?}", run(value)).contains("s3cret"));
}

proptest::proptest! {
    #[test]
    fn text_without_dollars_is_left_alone_and_no_text_panics(text in "[a-z $.{}\\[\\]0-9]{0,40}") {
        let names = super::interpolate::Namespaces::leaving(&["secrets", "groups"]);
        let done = super::interpolate::interpolate(&text, &names);
        if !text.contains('$') {
            proptest::prop_assert_eq!(done.unwrap().text, text.clone());
        }
        drop(super::groups_ip::substitute(&text, super::groups_ip::Member::Nodes, &[]));
    }

    #[test]
    fn quoted_words_split_back(words in proptest::collection::vec("[ -~é\\n]{0,8}", 0..4)) {
        proptest::prop_assert_eq!(super::shell::split(&super::shell::join(&words)).unwrap(), words);
    }
}
