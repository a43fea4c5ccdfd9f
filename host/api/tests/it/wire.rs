//! Every sample in `tests/contract/wire` whose operation has a type here: the answer must come out as it went in, and
//! every key of the request must come out with the value it had.

use std::path::PathBuf;

use dstack_api::{
    backends, error, events, files, fleets, gateways, gpus, instances, logs, projects, repos, runs,
    secrets, server_info, users, volumes,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

type Check = fn(&Value) -> Result<Value, serde_json::Error>;

fn through<T: Serialize + DeserializeOwned>(value: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(value.clone())?)
}

/// Request and answer of an operation. `()` reads null; optional bodies are `Option`.
fn operation(path: &str) -> Option<(Check, Check)> {
    let words: Vec<&str> = path
        .split('?')
        .next()?
        .trim_start_matches("/api/")
        .split('/')
        .collect();
    let checks: (Check, Check) = match words.as_slice() {
        ["server", "get_info"] => (through::<()>, through::<server_info::ServerInfo>),
        ["users", "list"] => (through::<Option<users::ListUsersRequest>>, users_list),
        ["users", "get_my_user"] => (through::<()>, through::<users::UserWithCreds>),
        ["users", "get_user" | "refresh_token" | "refresh_ssh_key"] => (
            through::<users::GetUserRequest>,
            through::<users::UserWithCreds>,
        ),
        ["users", "create" | "update"] => {
            (through::<users::CreateUserRequest>, through::<users::User>)
        }
        ["users", "delete"] => (through::<users::DeleteUsersRequest>, through::<()>),
        ["projects", "list"] => (
            through::<Option<projects::ListProjectsRequest>>,
            projects_list,
        ),
        ["projects", "create"] => (
            through::<projects::CreateProjectRequest>,
            through::<projects::Project>,
        ),
        ["projects", "delete"] => (through::<projects::DeleteProjectsRequest>, through::<()>),
        ["projects", _, "get"] => (through::<()>, through::<projects::Project>),
        ["projects", _, "set_members" | "add_members"] => (
            through::<projects::SetProjectMembersRequest>,
            through::<projects::Project>,
        ),
        ["projects", _, "remove_members"] => (
            through::<projects::RemoveProjectMembersRequest>,
            through::<projects::Project>,
        ),
        ["projects", _, "update"] => (
            through::<projects::UpdateProjectRequest>,
            through::<projects::Project>,
        ),
        ["backends", "list_types"] => (through::<()>, through::<Vec<String>>),
        ["project", _, "backends", "create_yaml" | "update_yaml"] => {
            (through::<backends::BackendYamlRequest>, through::<()>)
        }
        ["project", _, "repos", "init"] => (through::<repos::SaveRepoCredsRequest>, through::<()>),
        ["project", _, "repos", "get"] => (
            through::<repos::GetRepoRequest>,
            through::<repos::RepoHeadWithCreds>,
        ),
        ["project", _, "repos", "list"] => (through::<()>, through::<Vec<repos::RepoHead>>),
        ["project", _, "repos", "delete"] => (through::<repos::DeleteReposRequest>, through::<()>),
        ["files", "get_archive_by_hash"] => (
            through::<files::GetFileArchiveByHashRequest>,
            through::<files::FileArchive>,
        ),
        ["files", "upload_archive"] => (through::<Value>, through::<files::FileArchive>),
        ["runs", "list"] => (through::<runs::ListRunsRequest>, through::<Vec<runs::Run>>),
        ["project", _, "runs", "get"] => (through::<runs::GetRunRequest>, through::<runs::Run>),
        ["project", _, "runs", "get_plan"] => {
            (through::<runs::GetRunPlanRequest>, through::<runs::RunPlan>)
        }
        ["project", _, "runs", "apply"] => {
            (through::<runs::ApplyRunPlanRequest>, through::<runs::Run>)
        }
        ["project", _, "runs", "stop"] => (through::<runs::StopRunsRequest>, through::<()>),
        ["project", _, "runs", "delete"] => (through::<runs::DeleteRunsRequest>, through::<()>),
        ["fleets", "list"] => (
            through::<fleets::ListFleetsRequest>,
            through::<Vec<fleets::Fleet>>,
        ),
        ["project", _, "fleets", "list"] => (
            through::<Option<fleets::ListProjectFleetsRequest>>,
            through::<Vec<fleets::Fleet>>,
        ),
        ["project", _, "fleets", "get"] => {
            (through::<fleets::GetFleetRequest>, through::<fleets::Fleet>)
        }
        ["project", _, "fleets", "get_plan"] => (
            through::<fleets::GetFleetPlanRequest>,
            through::<fleets::FleetPlan>,
        ),
        ["project", _, "fleets", "apply"] => (
            through::<fleets::ApplyFleetPlanRequest>,
            through::<fleets::Fleet>,
        ),
        ["project", _, "fleets", "delete"] => {
            (through::<fleets::DeleteFleetsRequest>, through::<()>)
        }
        ["project", _, "fleets", "delete_instances"] => (
            through::<fleets::DeleteFleetInstancesRequest>,
            through::<()>,
        ),
        ["instances", "list"] => (
            through::<instances::ListInstancesRequest>,
            through::<Vec<instances::Instance>>,
        ),
        ["project", _, "gpus", "list"] => (
            through::<gpus::ListGpusRequest>,
            through::<gpus::ListGpusResponse>,
        ),
        ["project", _, "logs", "poll"] => (
            through::<logs::PollLogsRequest>,
            through::<logs::JobSubmissionLogs>,
        ),
        ["project", _, "secrets", "list"] => (through::<()>, through::<Vec<secrets::Secret>>),
        ["project", _, "secrets", "get"] => (
            through::<secrets::GetSecretRequest>,
            through::<secrets::Secret>,
        ),
        ["project", _, "secrets", "create_or_update"] => (
            through::<secrets::CreateOrUpdateSecretRequest>,
            through::<secrets::Secret>,
        ),
        ["project", _, "secrets", "delete"] => {
            (through::<secrets::DeleteSecretsRequest>, through::<()>)
        }
        ["events", "list"] => (
            through::<events::ListEventsRequest>,
            through::<Vec<events::Event>>,
        ),
        ["volumes", "list"] => (
            through::<volumes::ListVolumesRequest>,
            through::<Vec<volumes::Volume>>,
        ),
        ["project", _, "volumes", "list"] => (through::<()>, through::<Vec<volumes::Volume>>),
        ["project", _, "volumes", "get"] => (
            through::<volumes::GetVolumeRequest>,
            through::<volumes::Volume>,
        ),
        ["project", _, "volumes", "create"] => (
            through::<volumes::CreateVolumeRequest>,
            through::<volumes::Volume>,
        ),
        ["project", _, "volumes", "delete"] => {
            (through::<volumes::DeleteVolumesRequest>, through::<()>)
        }
        ["project", _, "gateways", "list"] => (
            through::<Option<gateways::ListGatewaysRequest>>,
            through::<Vec<gateways::Gateway>>,
        ),
        ["project", _, "gateways", "get"] => (
            through::<gateways::GetGatewayRequest>,
            through::<gateways::Gateway>,
        ),
        ["project", _, "gateways", "delete"] => {
            (through::<gateways::DeleteGatewaysRequest>, through::<()>)
        }
        _ => return None,
    };
    Some(checks)
}

fn users_list(value: &Value) -> Result<Value, serde_json::Error> {
    if value.is_array() {
        through::<Vec<users::User>>(value)
    } else {
        through::<users::UsersInfoList>(value)
    }
}

fn projects_list(value: &Value) -> Result<Value, serde_json::Error> {
    if value.is_array() {
        through::<Vec<projects::Project>>(value)
    } else {
        through::<projects::ProjectsInfoList>(value)
    }
}

/// Where `ours` misses a key of `theirs` or has another value.
fn lost(theirs: &Value, ours: &Value, at: &str, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (key, value) in theirs {
                match ours.get(key) {
                    Some(other) => lost(value, other, &format!("{at}.{key}"), found),
                    // Left out when unset; what an absent key means is the same.
                    None if value.is_null() => {}
                    None => found.push(format!("{at}.{key} is gone")),
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) if theirs.len() == ours.len() => {
            for (n, (one, other)) in theirs.iter().zip(ours).enumerate() {
                lost(one, other, &format!("{at}[{n}]"), found);
            }
        }
        (one, other) if one != other => found.push(format!("{at}: {one} became {other}")),
        _ => {}
    }
}

fn samples() -> Vec<(String, Vec<Map<String, Value>>)> {
    let folder = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap())
        .join("../../tests/contract/wire");
    let mut samples = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let exchanges = if value.is_array() {
            value
        } else {
            value["exchanges"].clone()
        };
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        samples.push((name, serde_json::from_value(exchanges).unwrap()));
    }
    samples.sort_by(|a, b| a.0.cmp(&b.0));
    samples
}

#[test]
fn recorded_exchanges_survive() {
    let mut problems = Vec::new();
    let mut seen = 0;
    for (file, exchanges) in samples() {
        for exchange in exchanges {
            let text = |key: &str| {
                exchange
                    .get(key)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let (path, status) = (text("path"), exchange["status"].as_u64().unwrap());
            let Some((request, response)) = operation(&path) else {
                continue;
            };
            let mut problem = |what: String| problems.push(format!("{file} {path}: {what}"));
            let sent = exchange.get("request").cloned().unwrap_or(Value::Null);
            if status != 422 && !path.contains("upload") {
                match request(&sent) {
                    Ok(ours) => {
                        let mut found = Vec::new();
                        lost(&sent, &ours, "request", &mut found);
                        found.into_iter().for_each(&mut problem);
                    }
                    Err(error) => problem(format!("request: {error}")),
                }
            }
            let mut answer = exchange.get("response").cloned().unwrap_or(Value::Null);
            if let Some(answer) = answer.as_object_mut() {
                answer.remove("_note"); // of the recorder, where it cut a long list
            }
            let ours = match status {
                200 => response(&answer),
                400 => through::<error::BadRequestBody>(&answer),
                403 | 404 => through::<error::DeniedBody>(&answer),
                _ => continue,
            };
            seen += 1;
            match ours {
                Ok(ours) if ours == answer => {}
                Ok(ours) => {
                    let mut found = Vec::new();
                    lost(&answer, &ours, "answer", &mut found);
                    lost(&ours, &answer, "ours", &mut found);
                    found.truncate(5);
                    problem(format!("differs: {}", found.join("; ")));
                }
                Err(error) => problem(format!("answer: {error}")),
            }
        }
    }
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
    assert!(seen > 150, "only {seen} answers were compared");
}

#[test]
fn apply_takes_a_run_without_the_keys_that_clients_drop() {
    let (_, exchanges) = samples()
        .into_iter()
        .find(|(file, _)| file == "running_run_get.json")
        .unwrap();
    let mut run = exchanges[0]["response"].clone();
    let job = &mut run["jobs"][0];
    job.as_object_mut().unwrap().remove("job_connection_info");
    for key in [
        "node_group_index",
        "node_group_name",
        "node_group_job_index",
    ] {
        job["job_spec"].as_object_mut().unwrap().remove(key);
    }
    for place in [
        "/jobs/0/job_submissions/0/job_provisioning_data/instance_type/resources",
        "/jobs/0/job_submissions/0/job_runtime_data/offer/instance/resources",
        "/latest_job_submission/job_provisioning_data/instance_type/resources",
    ] {
        run.pointer_mut(place)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove("description");
    }
    let read: runs::Run = serde_json::from_value(run).unwrap();
    let whole: runs::Run = serde_json::from_value(exchanges[0]["response"].clone()).unwrap();
    assert_eq!(read.jobs[0].job_spec, whole.jobs[0].job_spec);
    assert_eq!(read.jobs[0].job_submissions, whole.jobs[0].job_submissions);
}
