//! Gateways as backends see them, and what backends' errors mean for them.

use dstack_backend_types::{BackendError, ErrorKind, GatewayComputeConfiguration};
use dstack_engine::model::{GatewayReplicaRow, GatewayRow};
use serde::Serialize;
use serde_json::Value;

use super::driver::StepError;
use super::{Context, facts};
use crate::clouds::is_no_backend;

/// What an error means.
pub(super) enum Outcome {
    /// There is no such thing.
    Gone,
    /// It is under way.
    NotYet,
    /// Surely nothing was done.
    Refused(String),
    /// Something may have been done.
    Unknown(String),
}

pub(super) fn judge(error: BackendError) -> Outcome {
    if is_no_backend(&error) {
        return Outcome::Refused("Backend not available".to_owned());
    }
    tracing::info!(kind = ?error.kind, error = error.message, "a gateway's call failed");
    match error.kind {
        ErrorKind::NotFound => Outcome::Gone,
        ErrorKind::NotYetTerminated => Outcome::NotYet,
        ErrorKind::Timeout
        | ErrorKind::Cancelled
        | ErrorKind::Transport
        | ErrorKind::Panic
        | ErrorKind::Internal
        | ErrorKind::RateLimited
        | ErrorKind::Unavailable => Outcome::Unknown(error.message),
        ErrorKind::NoCapacity
        | ErrorKind::Auth
        | ErrorKind::Quota
        | ErrorKind::Invalid
        | ErrorKind::Unsupported
        | ErrorKind::Provisioning
        | ErrorKind::SkipOffer
        | ErrorKind::PlacementGroupInUse
        | ErrorKind::PlacementGroupNotSupported
        | ErrorKind::NoCatalog => Outcome::Refused(error.message),
    }
}

/// What the load balancer is made from.
pub(super) async fn of_balancer(
    cx: &Context,
    gateway: &GatewayRow,
) -> Result<GatewayComputeConfiguration, StepError> {
    configuration(
        cx,
        gateway,
        &gateway.name,
        &gateway.provider_ref,
        String::new(),
    )
    .await
}

/// What a machine is made from.
pub(super) async fn of_replica(
    cx: &Context,
    gateway: &GatewayRow,
    replica: &GatewayReplicaRow,
) -> Result<GatewayComputeConfiguration, StepError> {
    let project = facts::project(cx, gateway.project_id).await?;
    // Without its key nobody could enter the machine; the look for its agent says so.
    let key = project.gateway_key(replica.id);
    let public = key.map(|key| key.public).unwrap_or_default();
    configuration(cx, gateway, &replica.name, &replica.provider_ref, public).await
}

async fn configuration(
    cx: &Context,
    gateway: &GatewayRow,
    name: &str,
    provider_ref: &str,
    ssh_key_pub: String,
) -> Result<GatewayComputeConfiguration, StepError> {
    let project = facts::project(cx, gateway.project_id).await?;
    let wanted = &gateway.configuration;
    Ok(GatewayComputeConfiguration {
        project_name: project.name.to_string(),
        instance_name: name.to_owned(),
        backend: wanted.backend.clone(),
        region: wanted.region.clone(),
        instance_type: wanted.instance_type.clone(),
        public_ip: wanted.public_ip,
        ssh_key_pub,
        certificate: as_value(wanted.certificate.as_ref()),
        load_balancer: as_value(wanted.load_balancer.as_ref()),
        router: None,
        tags: wanted.tags.clone(),
        provider_ref: Some(provider_ref.to_owned()),
    })
}

fn as_value(part: Option<&impl Serialize>) -> Option<Value> {
    part.and_then(|part| serde_json::to_value(part).ok())
}
