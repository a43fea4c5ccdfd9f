//! Volumes as backends see them, and the calls that put them on machines and take them off.

use std::sync::Arc;

use dstack_backend_types::methods::{
    AttachVolumeRequest, DetachVolumeRequest, IsVolumeDetachedRequest,
};
use dstack_backend_types::{
    BackendError, ErrorKind, JobProvisioningData, Volume, VolumeAttachmentData,
};
use dstack_engine::model::VolumeRow;
use dstack_engine::{job_running, job_terminating};
use dstack_store::users;

use super::driver::StepError;
use super::{Context, facts};
use crate::clouds::{call, is_no_backend};

/// The volume as its backend sees it, or why it cannot be said.
pub(super) async fn volume(
    cx: &Context,
    row: &VolumeRow,
    attachment_data: Option<VolumeAttachmentData>,
) -> Result<Result<Volume, String>, StepError> {
    let project = facts::project(cx, row.project_id).await?;
    let user_id = row.user_id;
    let user = cx.store.read(move |tx| users::get(tx, user_id)).await?;
    let configuration = serde_json::to_value(&*row.configuration).and_then(serde_json::from_value);
    Ok(match configuration {
        Ok(configuration) => Ok(Volume {
            id: row.id.0,
            name: row.name.to_string(),
            project_name: project.name.to_string(),
            user: user.map(|user| user.name).unwrap_or_default(),
            configuration,
            external: row.external,
            volume_id: row.configuration.place.external_id().map(str::to_owned),
            provisioning_data: row.provisioning_data.as_deref().cloned(),
            attachment_data,
            provider_ref: Some(row.provider_ref.to_string()),
        }),
        Err(error) => Err(format!(
            "the stored configuration is not understood: {error}"
        )),
    })
}

/// Several of them; what cannot be said is left out.
pub(super) async fn volumes(
    cx: &Context,
    rows: &[Arc<VolumeRow>],
) -> Result<Vec<Volume>, StepError> {
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        all.extend(volume(cx, row, None).await?.ok());
    }
    Ok(all)
}

/// Puts a volume on a job's machine.
pub(super) async fn attach(
    cx: &Context,
    row: &VolumeRow,
    machine: &JobProvisioningData,
) -> Result<job_running::Answer, StepError> {
    use job_running::Answer;
    let order = match volume(cx, row, None).await? {
        Ok(volume) => AttachVolumeRequest {
            volume,
            provisioning_data: machine.clone(),
        },
        Err(why) => {
            return Ok(Answer::NotAttached {
                why,
                is_final: true,
            });
        }
    };
    let backend = &row.configuration.backend;
    Ok(
        match call(&*cx.clouds, row.project_id, backend, &order).await {
            Ok(reply) => Answer::Attached(reply.attachment_data),
            Err(error) => {
                tracing::info!(volume = %row.name, kind = ?error.kind, error = error.message, "a volume was not attached");
                Answer::NotAttached {
                    is_final: never_attaches(&error),
                    why: format!("volume {}: {}", row.name, error.message),
                }
            }
        },
    )
}

/// A machine that still boots, and a provider that is busy, are asked again.
fn never_attaches(error: &BackendError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Auth
            | ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Quota
            | ErrorKind::Unsupported
    )
}

/// Takes a volume off a job's machine. `Done` once it is off; what cannot be asked any more is off, too.
pub(super) async fn detach(
    cx: &Context,
    row: &VolumeRow,
    attachment: Option<VolumeAttachmentData>,
    machine: &JobProvisioningData,
    force: bool,
) -> Result<job_terminating::Answer, StepError> {
    use job_terminating::Answer;
    let volume = match volume(cx, row, attachment).await? {
        Ok(volume) => volume,
        Err(why) => return Ok(Answer::Failed(why)),
    };
    let order = DetachVolumeRequest {
        volume: volume.clone(),
        provisioning_data: machine.clone(),
        force,
    };
    let (backend, clouds) = (&row.configuration.backend, &*cx.clouds);
    let asked = call(clouds, row.project_id, backend, &order).await;
    if let Err(error) = &asked {
        tracing::info!(volume = %row.name, force, kind = ?error.kind, error = error.message, "a volume was not detached");
        if is_no_backend(error) {
            return Ok(Answer::Done);
        }
    }
    let question = IsVolumeDetachedRequest {
        volume,
        provisioning_data: machine.clone(),
    };
    let look = call(clouds, row.project_id, backend, &question).await;
    Ok(match (look, asked) {
        (Ok(reply), _) if reply.detached => Answer::Done,
        (Err(error), _) if error.kind == ErrorKind::NotFound => Answer::Done,
        (_, Err(error)) | (Err(error), Ok(_)) => Answer::Failed(error.message),
        (Ok(_), Ok(_)) => Answer::Failed("the provider is still detaching it".to_owned()),
    })
}
