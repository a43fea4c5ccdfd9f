//! Configurations inside request bodies, read strictly.
//!
//! Their types read tolerantly, since the same types read stored rows and what other servers send. So the parts of a body
//! that hold what the user wrote are read a second time, refusing unknown keys and reporting every problem with its path.
//! `current_resource` is what a server sent and is not checked.

use axum::extract::{FromRequest, Request};
use dstack_api::config::{
    FleetConfiguration, Mode, Problem, Profile, RunConfiguration, Step, read,
};
use dstack_api::fleets::{ApplyFleetPlanRequest, GetFleetPlanRequest};
use dstack_api::gpus::ListGpusRequest;
use dstack_api::runs::{ApplyRunPlanRequest, GetRunPlanRequest};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::body;
use crate::app::App;
use crate::error::{ApiError, Invalid};

/// A body with configurations in it.
pub(crate) trait HasConfiguration: DeserializeOwned {
    /// Path of the specification.
    const SPEC: &'static [&'static str];
    /// Reads the configuration strictly.
    const CHECK: fn(&Value) -> Vec<Problem>;
}

/// A JSON body whose configurations have no unknown keys.
pub(crate) struct StrictBody<T>(pub(crate) T);

fn run(value: &Value) -> Vec<Problem> {
    problems::<RunConfiguration>(value)
}

fn fleet(value: &Value) -> Vec<Problem> {
    problems::<FleetConfiguration>(value)
}

fn problems<T: dstack_api::config::FromValue>(value: &Value) -> Vec<Problem> {
    read::<T>(value, Mode::Strict)
        .err()
        .map(|problems| problems.0)
        .unwrap_or_default()
}

impl HasConfiguration for GetRunPlanRequest {
    const SPEC: &'static [&'static str] = &["run_spec"];
    const CHECK: fn(&Value) -> Vec<Problem> = run;
}
impl HasConfiguration for ListGpusRequest {
    const SPEC: &'static [&'static str] = &["run_spec"];
    const CHECK: fn(&Value) -> Vec<Problem> = run;
}
impl HasConfiguration for ApplyRunPlanRequest {
    const SPEC: &'static [&'static str] = &["plan", "run_spec"];
    const CHECK: fn(&Value) -> Vec<Problem> = run;
}
impl HasConfiguration for GetFleetPlanRequest {
    const SPEC: &'static [&'static str] = &["spec"];
    const CHECK: fn(&Value) -> Vec<Problem> = fleet;
}
impl HasConfiguration for ApplyFleetPlanRequest {
    const SPEC: &'static [&'static str] = &["plan", "spec"];
    const CHECK: fn(&Value) -> Vec<Problem> = fleet;
}

impl<T: HasConfiguration> FromRequest<App> for StrictBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let bytes = body::read(request, app).await?;
        let parsed = body::parse(&bytes);
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let mut found = Vec::new();
        if let Some(spec) = T::SPEC.iter().try_fold(&value, |value, key| value.get(key)) {
            for (key, check) in [
                ("configuration", T::CHECK),
                ("profile", problems::<Profile>),
            ] {
                let Some(part) = spec.get(key).filter(|part| !part.is_null()) else {
                    continue;
                };
                found.extend(
                    check(part)
                        .into_iter()
                        .map(|problem| invalid(T::SPEC, key, &problem)),
                );
            }
        }
        // What is wrong inside a configuration says more than that the whole of it cannot be read.
        if found.is_empty() {
            parsed.map(Self)
        } else {
            Err(ApiError::Invalid(found))
        }
    }
}

fn invalid(spec: &[&str], key: &str, problem: &Problem) -> Invalid {
    let mut path: Vec<Value> = spec.iter().copied().chain([key]).map(Value::from).collect();
    path.extend(problem.path.0.iter().map(|step| match step {
        Step::Key(key) => Value::from(key.as_str()),
        Step::Index(index) => Value::from(*index),
    }));
    Invalid {
        kind: "value_error",
        path,
        msg: problem.to_string(),
    }
}
