//! What a runner is given: the job with its secrets filled in, its files, its code.

use std::collections::BTreeMap;

use bytes::Bytes;
use dstack_api::plan::interpolate::{BadReference, Namespaces, interpolate_all};
use dstack_api::repos::{RemoteRepoCreds, VIRTUAL_REPO_ID};
use dstack_engine::ids::ProjectId;
use dstack_engine::job_running::{Cluster, View};
use dstack_store::{DbError, archives, repos, secrets};

use super::driver::StepError;
use super::{Context, facts, own_hosts};
use crate::blobs;
use crate::machines::{Archives, JobOrder, RunnerOrder};

/// Why a job can never be given to its agent, for people.
type Impossible = String;

/// The order for the job's runner.
pub(super) async fn order(
    cx: &Context,
    view: &View,
    cluster: &Cluster,
) -> Result<Result<RunnerOrder, Impossible>, StepError> {
    let (job, run) = (&view.job, &view.run);
    let mut env = own_hosts::env(cx, job.provisioning_data.as_deref()).await?;
    let secrets = secrets_of(
        cx,
        job.project_id,
        job.spec.env.values().any(|value| value.contains("${{")),
    )
    .await?;
    for (name, value) in &job.spec.env {
        match fill(value, &secrets) {
            Ok(value) => env.insert(name.clone(), value),
            Err(why) => return Ok(Err(format!("env {name}: {why}"))),
        };
    }
    let archives = match files(cx, view).await? {
        Ok(archives) => archives,
        Err(why) => return Ok(Err(why)),
    };
    let (repo_creds, code) = match repo(cx, view).await? {
        Ok(repo) => repo,
        Err(why) => return Ok(Err(why)),
    };
    let replica_key = if job.spec.jobs_per_replica > 1 {
        let project = facts::project(cx, job.project_id).await?;
        match project.replica_key(run, job.replica_num) {
            Ok(key) => Some(key),
            Err(error) => return Ok(Err(error.to_string())),
        }
    } else {
        None
    };
    let submit = JobOrder {
        run,
        job,
        cluster,
        replica_key,
        env,
        repo_creds,
        log_quota_hour: cx.settings.log_quota_per_job_hour,
    }
    .submit();
    Ok(Ok(RunnerOrder::new(submit, archives, code)))
}

/// User name and password of the image's registry.
pub(super) async fn registry(
    cx: &Context,
    view: &View,
) -> Result<Result<Option<(String, String)>, Impossible>, StepError> {
    let Some(auth) = &view.job.spec.registry_auth else {
        return Ok(Ok(None));
    };
    let secrets = secrets_of(cx, view.job.project_id, true).await?;
    let filled =
        fill(&auth.username, &secrets).and_then(|user| Ok((user, fill(&auth.password, &secrets)?)));
    Ok(filled
        .map(Some)
        .map_err(|why| format!("registry_auth: {why}")))
}

pub(super) async fn secrets_of(
    cx: &Context,
    project: ProjectId,
    are_needed: bool,
) -> Result<BTreeMap<String, String>, StepError> {
    if !are_needed {
        return Ok(BTreeMap::new());
    }
    let rows = cx
        .store
        .read(move |tx| secrets::of_project(tx, project))
        .await?;
    let open =
        |row: secrets::SecretRow| Ok((row.name, cx.keyring.open(&row.value)?.expose().clone()));
    rows.into_iter().map(open).collect()
}

/// Fills the project's secrets into a text.
pub(super) fn fill(text: &str, secrets: &BTreeMap<String, String>) -> Result<String, Impossible> {
    let names = Namespaces::leaving(&["groups", "dstack"]).with("secrets", secrets);
    interpolate_all(text, &names).map_err(|error| match error {
        BadReference::Unknown(name) => {
            format!("{name} does not exist in the project")
        }
        other => other.to_string(),
    })
}

/// The bytes of an upload: of the row, else of the bucket.
async fn blob(
    cx: &Context,
    own: Option<Vec<u8>>,
    key: Option<String>,
) -> Result<Option<Bytes>, Impossible> {
    match (own, key, &cx.blobs) {
        (Some(own), _, _) => Ok(Some(Bytes::from(own))),
        (None, Some(key), Some(bucket)) => bucket
            .get(&key)
            .await
            .map_err(|error| format!("uploads cannot be read: {error}")),
        _ => Ok(None),
    }
}

async fn files(cx: &Context, view: &View) -> Result<Result<Archives, Impossible>, StepError> {
    let mut found = Vec::new();
    for mapping in &view.job.spec.file_archives {
        let id = mapping.id;
        let row = cx.store.read(move |tx| archives::get(tx, id)).await?;
        let key = row
            .as_ref()
            .map(|row| blobs::archive_key(row.user_id, &row.hash));
        let bytes = match blob(cx, row.and_then(|row| row.blob), key).await {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Err(why)),
        };
        match bytes {
            Some(bytes) => found.push((id.to_string(), bytes)),
            None => {
                return Ok(Err(format!(
                    "the archive of {} is not on the server any more; apply again",
                    mapping.path
                )));
            }
        }
    }
    Ok(Ok(found))
}

type RepoParts = (Option<RemoteRepoCreds>, Option<Bytes>);

async fn repo(cx: &Context, view: &View) -> Result<Result<RepoParts, Impossible>, StepError> {
    let (run, job) = (&view.run, &view.job);
    let repo_id = run
        .spec
        .repo_id
        .clone()
        .unwrap_or_else(|| VIRTUAL_REPO_ID.to_owned());
    let (project, user, hash) = (job.project_id, run.user_id, job.spec.repo_code_hash.clone());
    if repo_id == VIRTUAL_REPO_ID && hash.is_none() {
        return Ok(Ok((None, None)));
    }
    let wanted = hash.clone();
    let found = cx
        .store
        .read(move |tx| {
            let Some(repo) = repos::get(tx, project, &repo_id)? else {
                return Ok::<_, DbError>(None);
            };
            let creds = repos::creds(tx, repo.id, user)?;
            let code = match &wanted {
                Some(hash) => repos::code(tx, repo.id, hash)?,
                None => None,
            };
            Ok(Some((creds, code)))
        })
        .await?;
    let Some((creds, code)) = found else {
        return Ok(Err(
            "the repo is not known to the project any more; apply again".to_owned(),
        ));
    };
    let creds =
        match creds {
            Some(sealed) => {
                let text = cx.keyring.open(&sealed)?;
                match serde_json::from_str(text.expose()) {
                    Ok(creds) => Some(creds),
                    Err(_) => return Ok(Err(
                        "the stored credentials of the repo cannot be read; run dstack init again"
                            .to_owned(),
                    )),
                }
            }
            None => None,
        };
    let key = match (&code, &run.spec.repo_id) {
        (Some(code), repo) => Some(blobs::code_key(
            &facts::project(cx, job.project_id).await?.name,
            repo.as_deref().unwrap_or(VIRTUAL_REPO_ID),
            &code.hash,
        )),
        _ => None,
    };
    let blob = match blob(cx, code.and_then(|code| code.blob), key).await {
        Ok(blob) => blob,
        Err(why) => return Ok(Err(why)),
    };
    if hash.is_some() && blob.is_none() {
        return Ok(Err(
            "the uploaded code is not on the server any more; apply again".to_owned(),
        ));
    }
    Ok(Ok((creds, blob)))
}
