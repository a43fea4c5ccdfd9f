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

/// Requests to a service in the windows that rules may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Requests of the last 30 s.
    pub last_30: u64,
    /// Requests of the last minute.
    pub last_60: u64,
    /// Requests of the last 5 minutes.
    pub last_300: u64,
}

impl Traffic {
    /// The requests within a window of 30, 60 or 300 seconds; of the next longer one for any other.
    pub const fn within(self, window: i64) -> u64 {
        match window {
            ..=30 => self.last_30,
            31..=60 => self.last_60,
            _ => self.last_300,
        }
    }

    /// What several places have seen together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            last_30: self.last_30.saturating_add(other.last_30),
            last_60: self.last_60.saturating_add(other.last_60),
            last_300: self.last_300.saturating_add(other.last_300),
        }
    }
}

/// Seconds over which a rule looks at requests.
pub fn window(scaling: &ScalingSpec) -> i64 {
    scaling.window.unwrap_or(DEFAULT_WINDOW_SECONDS)
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
    let window = window(scaling);
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
