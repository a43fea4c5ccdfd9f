//! How the number of replicas follows the load.

use dstack_backend_types::reading::{Failed, FromValue, Reader};
use dstack_backend_types::resources::Range;
use serde_json::Value;

use super::duration;
use super::object::config;
use super::schema::scalars;
use super::words::ScalingMetric;

/// Seconds of the window when none is given.
pub const DEFAULT_WINDOW_SECONDS: i64 = 60;

config! {
    /// How the number of replicas follows the load.
    pub struct ScalingSpec {
        /// What is watched.
        pub metric: ScalingMetric = required,
        /// Its wanted value for each replica, above 0.
        pub target: f64 = required(target, scalars::above_zero),
        /// Seconds over which it is averaged: 30, 60 or 300; unset means 60.
        pub window: Option<i64> = optional(window, scalars::window),
        /// Seconds between two changes upwards.
        pub scale_up_delay: i64 = default(300, duration::positive, scalars::duration_from(0)),
        /// Seconds between two changes downwards.
        pub scale_down_delay: i64 = default(600, duration::positive, scalars::duration_from(0)),
    }
}

fn target(value: &Value, cx: &mut Reader) -> Result<f64, Failed> {
    match f64::from_value(value, cx)? {
        target if target > 0.0 => Ok(target),
        target => Err(cx.fail(format!("the target must be above 0, got {target}"))),
    }
}

fn window(value: &Value, cx: &mut Reader) -> Result<i64, Failed> {
    match duration::any(value, cx)? {
        window @ (30 | 60 | 300) => Ok(window),
        window => Err(cx.fail(format!("the window is 30s, 60s or 300s, got {window}"))),
    }
}

/// A range needs a rule for scaling, and the other way round.
pub(super) fn check_scaling(
    replicas: Option<Range<u32>>,
    scaling: Option<&ScalingSpec>,
    cx: &mut Reader,
) -> Result<(), Failed> {
    let range = replicas.filter(|range| range.min != range.max);
    match (range, scaling) {
        (Some(range), None) => Err(cx.fail_at(
            "replicas",
            format!("`scaling` is required when `replicas` is a range, here {range}"),
        )),
        (None, Some(_)) => Err(cx.fail_at(
            "scaling",
            "`replicas` must be a range, such as 1..4, when `scaling` is set",
        )),
        _ => Ok(()),
    }
}
