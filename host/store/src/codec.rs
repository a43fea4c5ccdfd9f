//! How ids and words of the other rooms stand in columns.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use dstack_api::fleets::FleetStatus;
use dstack_api::gateways::{GatewayReplicaStatus, GatewayStatus};
use dstack_api::instances::{HealthStatus, InstanceStatus, InstanceTerminationReason};
use dstack_api::jobs::{JobStatus, JobTerminationReason};
use dstack_api::projects::ProjectRole;
use dstack_api::runs::{RunStatus, RunTerminationReason};
use dstack_api::users::GlobalRole;
use dstack_api::volumes::VolumeStatus;
use dstack_backend_types::BackendType;
use dstack_engine::ids::{
    FleetId, GatewayId, GatewayReplicaId, InstanceId, JobId, ProjectId, RunId, UserId, VolumeId,
};
use dstack_engine::model::Stop;
use uuid::Uuid;

use crate::tx::{Cell, FromCell, Value};

macro_rules! ids {
    ($($id:ty),+) => { $(
        impl FromCell for $id {
            fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
                Uuid::from_cell(cell).map(Self)
            }
        }
        impl From<$id> for Value<'_> {
            fn from(id: $id) -> Self {
                Value::from(id.0)
            }
        }
    )+ };
}
ids!(
    ProjectId,
    UserId,
    RunId,
    JobId,
    InstanceId,
    FleetId,
    VolumeId,
    GatewayId,
    GatewayReplicaId
);

/// Reads text through `FromStr`.
fn parsed<T>(cell: Cell<'_>) -> Result<T, String>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    match cell {
        Cell::Text(it) => it.parse().map_err(|error: T::Err| error.to_string()),
        _ => Err("expected text".to_owned()),
    }
}

macro_rules! words {
    ($($word:ty),+ $(,)?) => { $(
        impl FromCell for $word {
            fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
                parsed(cell)
            }
        }
        impl From<$word> for Value<'_> {
            fn from(word: $word) -> Self {
                Value::Text(Cow::Borrowed(word.as_str()))
            }
        }
    )+ };
}
words!(
    RunStatus,
    RunTerminationReason,
    JobStatus,
    JobTerminationReason,
    InstanceStatus,
    InstanceTerminationReason,
    HealthStatus,
    FleetStatus,
    GlobalRole,
    ProjectRole,
    VolumeStatus,
    GatewayStatus,
    GatewayReplicaStatus,
);

impl FromCell for Stop {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        match cell {
            Cell::Text("hard") => Ok(Self::Hard),
            Cell::Text("requested") => Ok(Self::Requested),
            Cell::Text("sent") => Ok(Self::Sent),
            Cell::Text("removed") => Ok(Self::Removed),
            _ => Err("not a step of stopping".to_owned()),
        }
    }
}

impl From<Stop> for Value<'_> {
    fn from(stop: Stop) -> Self {
        Value::Text(Cow::Borrowed(match stop {
            Stop::Hard => "hard",
            Stop::Requested => "requested",
            Stop::Sent => "sent",
            Stop::Removed => "removed",
        }))
    }
}

impl FromCell for BackendType {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        // Checked before it was stored.
        String::from_cell(cell).map(Self::new)
    }
}

impl<'a> From<&'a BackendType> for Value<'a> {
    fn from(name: &'a BackendType) -> Self {
        Value::Text(Cow::Borrowed(name.as_str()))
    }
}

impl FromCell for Arc<str> {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        match cell {
            Cell::Text(it) => Ok(it.into()),
            _ => Err("expected text".to_owned()),
        }
    }
}

impl<'a> From<&'a Arc<str>> for Value<'a> {
    fn from(text: &'a Arc<str>) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}
