//! How many replicas a group of a service should have.

use dstack_api::config::{DEFAULT_WINDOW_SECONDS, ScalingSpec};

/// What is known when the number of replicas is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Requests in the window; none as long as not every replica of the gateway has reported.
    pub requests: Option<u64>,
    /// Seconds since the number last changed; none if it never did.
    pub since_scaled: Option<i64>,
}

/// The number of replicas wanted now, between `min` and `max`.
///
/// Without rules it is the current number, kept within the bounds. With rules: as many as get their target rate each; more
/// at once if there is none, else only after the delays.
pub fn desired(
    (min, max): (u32, u32),
    scaling: Option<&ScalingSpec>,
    current: u32,
    load: Load,
) -> u32 {
    let Some(scaling) = scaling else {
        return current.max(min).min(max);
    };
    let Some(requests) = load.requests else {
        return current;
    };
    let wanted = replicas_for(requests, scaling).max(min).min(max);
    let waited = |delay| load.since_scaled.is_none_or(|since| since >= delay);
    let may_change = match wanted.cmp(&current) {
        std::cmp::Ordering::Greater => current == 0 || waited(scaling.scale_up_delay),
        std::cmp::Ordering::Less => waited(scaling.scale_down_delay),
        std::cmp::Ordering::Equal => true,
    };
    if may_change { wanted } else { current }
}

/// Replicas so that none gets more than its target; the bounds are not looked at.
fn replicas_for(requests: u64, scaling: &ScalingSpec) -> u32 {
    let window = scaling.window.unwrap_or(DEFAULT_WINDOW_SECONDS);
    #[expect(clippy::cast_precision_loss, reason = "both are far below 2^53")]
    let rate = requests as f64 / window as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and a rate is not negative"
    )]
    {
        (rate / scaling.target).ceil() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{Load, desired};

    #[test]
    fn without_rules_the_number_is_kept_within_its_bounds() {
        let load = Load {
            requests: Some(9),
            since_scaled: None,
        };
        let numbers = [0, 2, 9].map(|current| desired((1, 4), None, current, load));
        assert_eq!(numbers, [1, 2, 4]);
    }
}
