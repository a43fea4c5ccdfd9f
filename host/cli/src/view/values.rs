//! Prices, resources, times and statuses as people read them.

use dstack_api::instances::InstanceStatus;
use dstack_api::runs::RunStatus;
use dstack_backend_types::{BackendType, Resources};
use jiff::Timestamp;

use crate::ui::Tone;

/// US dollars per hour: at most four decimals, no zeros at the end.
pub(crate) fn price(usd_per_hour: f64) -> String {
    let text = format!("{usd_per_hour:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("${text}")
}

/// MiB as GB, with as many decimals as it takes.
pub(crate) fn memory(mib: u64) -> String {
    if mib.is_multiple_of(1024) {
        return format!("{}GB", mib / 1024);
    }
    if mib < 1024 {
        return format!("{mib}MB");
    }
    let tenths = mib * 10 / 1024;
    if tenths.is_multiple_of(10) {
        format!("{}GB", tenths / 10)
    } else {
        format!("{}.{}GB", tenths / 10, tenths % 10)
    }
}

/// `cpu=4 mem=16GB disk=100GB gpu=A100:80GB:1 (spot)`
pub(crate) fn resources(resources: &Resources) -> String {
    let mut parts = vec![
        format!("cpu={}", resources.cpus),
        format!("mem={}", memory(resources.memory_mib)),
    ];
    if resources.disk.size_mib > 0 {
        parts.push(format!("disk={}", memory(resources.disk.size_mib)));
    }
    if let Some(gpus) = gpus(resources) {
        parts.push(format!("gpu={gpus}"));
    }
    if resources.spot {
        parts.push("(spot)".to_owned());
    }
    parts.join(" ")
}

/// `A100:80GB:1`; `None` without GPUs.
pub(crate) fn gpus(resources: &Resources) -> Option<String> {
    let first = resources.gpus.first()?;
    let memory = if first.memory_mib > 0 {
        format!(":{}", memory(first.memory_mib))
    } else {
        String::new()
    };
    Some(format!("{}{memory}:{}", first.name, resources.gpus.len()))
}

/// The backend as users know it: hosts over SSH are `ssh`.
pub(crate) fn backend(name: &BackendType, region: &str) -> String {
    let word = if name.as_str() == "remote" {
        "ssh"
    } else {
        name.as_str()
    };
    if region.is_empty() {
        word.to_owned()
    } else {
        format!("{word} ({region})")
    }
}

/// How long ago: `just now`, `5 mins ago`, `2 hours ago`, `3 days ago`.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second());
    let (count, unit) = match seconds {
        ..=9 => return "now".to_owned(),
        10..=59 => (seconds, "sec"),
        60..=3599 => (seconds / 60, "min"),
        3600..=86_399 => (seconds / 3600, "hour"),
        86_400..=604_799 => (seconds / 86_400, "day"),
        604_800..=2_591_999 => (seconds / 604_800, "week"),
        2_592_000..=31_535_999 => (seconds / 2_592_000, "month"),
        _ => (seconds / 31_536_000, "year"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

/// Seconds in the largest unit that fits: `90s`, `5m`, `72h`.
pub(crate) fn duration(seconds: i64) -> String {
    match seconds {
        0 => "0s".to_owned(),
        _ if seconds % 86_400 == 0 => format!("{}d", seconds / 86_400),
        _ if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        _ if seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// The colour of a run's or a job's status text.
pub(crate) fn run_tone(status: RunStatus) -> Tone {
    match status {
        RunStatus::Running | RunStatus::Done => Tone::Good,
        RunStatus::Failed => Tone::Bad,
        RunStatus::Terminated => Tone::Dim,
        RunStatus::Pending
        | RunStatus::Submitted
        | RunStatus::Provisioning
        | RunStatus::Terminating => Tone::Warn,
    }
}

/// The colour of an instance's status.
pub(crate) fn instance_tone(status: InstanceStatus) -> Tone {
    match status {
        InstanceStatus::Idle | InstanceStatus::Busy => Tone::Good,
        InstanceStatus::Terminated => Tone::Dim,
        InstanceStatus::Pending | InstanceStatus::Provisioning | InstanceStatus::Terminating => {
            Tone::Warn
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_have_no_zeros_at_the_end() {
        assert_eq!(price(0.0), "$0");
        assert_eq!(price(1.5), "$1.5");
        assert_eq!(price(0.012_346), "$0.0123");
        assert_eq!(price(10.0), "$10");
    }

    #[test]
    fn memory_is_in_the_largest_unit_that_reads_well() {
        assert_eq!(memory(512), "512MB");
        assert_eq!(memory(16_384), "16GB");
        assert_eq!(memory(15_800), "15.4GB");
    }

    #[test]
    fn durations_are_in_the_largest_unit_that_fits() {
        assert_eq!(
            [0, 90, 300, 7200, 259_200].map(duration),
            ["0s", "90s", "5m", "2h", "3d"]
        );
    }

    #[test]
    fn times_are_words() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        let before = |seconds: i64| {
            ago(
                Timestamp::from_second(1_000_000_000 - seconds).unwrap(),
                now,
            )
        };
        assert_eq!(before(3), "now");
        assert_eq!(before(60), "1 min ago");
        assert_eq!(before(7200), "2 hours ago");
        assert_eq!(before(86_400 * 3), "3 days ago");
        assert_eq!(before(-5), "now");
    }
}
