//! Jobs in the queue, as `squeue` prints them.

use dstack_backend_sdk::prelude::*;

/// Number, state, partition, nodes, time of submission in seconds since 1970, name, reason. What may hold the separator stands
/// at the end.
pub(crate) const FORMAT: &str = "%i|%T|%P|%N|%V|%j|%r";

/// States that a job does not leave again.
const ENDED: [&str; 10] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
];

/// Why limits of an account or a quality of service let a job wait.
const LIMITS: [&str; 4] = ["Assoc", "QOS", "MaxMemPerLimit", "JobArrayTaskLimit"];

/// One job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    /// `PENDING`, `RUNNING` and so on.
    pub(crate) state: String,
    /// While it waits, all that it asked for, with commas.
    pub(crate) partition: String,
    /// In the short form `n[1-3]`; empty while it waits.
    pub(crate) nodes: String,
    /// Microseconds since 1970, UTC.
    pub(crate) submitted_at_us: Option<i64>,
    pub(crate) name: String,
    /// `Resources`, `Priority`, or why it ended.
    pub(crate) reason: String,
}

impl Entry {
    /// All jobs of the text. Elements of arrays are left out: nobody here submits such.
    pub(crate) fn read_all(text: &str) -> Vec<Self> {
        text.lines().filter_map(Self::read).collect()
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, '|');
        let mut next = || words.next();
        let (id, state, partition, nodes, time) = (next()?, next()?, next()?, next()?, next()?);
        let (name, reason) = next()?.rsplit_once('|')?;
        let seconds = time.trim().parse::<i64>().ok();
        Some(Self {
            id: id.trim().parse().ok()?,
            state: state.to_owned(),
            partition: partition.to_owned(),
            nodes: nodes.to_owned(),
            submitted_at_us: seconds.and_then(|seconds| seconds.checked_mul(1_000_000)),
            name: name.to_owned(),
            reason: reason.trim().to_owned(),
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state == "RUNNING"
    }

    /// It is over, or on its way there.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_over() || matches!(self.state.as_str(), "COMPLETING" | "STAGE_OUT")
    }

    pub(crate) fn is_over(&self) -> bool {
        ENDED.contains(&self.state.as_str())
    }

    /// Whether it was made by a server like this one.
    pub(crate) fn is_ours(&self) -> bool {
        self.name.starts_with("dstack-")
    }

    pub(crate) fn provider_ref(&self) -> Option<&str> {
        names::provider_ref_of_name(&self.name)
    }

    /// The id that the host knows it by; jobs of one node only.
    pub(crate) fn instance_id(&self) -> String {
        instance_id(&self.name, self.id, &self.nodes)
    }

    /// Why it does not run yet, for people.
    pub(crate) fn waits_for(&self) -> String {
        let place = format!(
            "job {} is {} in partition {}",
            self.id, self.state, self.partition
        );
        match self.reason.as_str() {
            "" | "None" => place,
            reason => format!("{place}: {reason}"),
        }
    }

    /// Whether a limit of the account keeps it waiting, not a lack of nodes.
    pub(crate) fn is_limited(&self) -> bool {
        LIMITS.iter().any(|word| self.reason.starts_with(word))
    }
}

/// `<job name>:<job id>:<node>`.
pub(crate) fn instance_id(name: &str, id: u64, node: &str) -> String {
    format!("{name}:{id}:{node}")
}

/// Name and number of a job in an instance's id, if it is one.
pub(crate) fn job_of(instance_id: &str) -> Option<(&str, u64)> {
    let (rest, _node) = instance_id.rsplit_once(':')?;
    let (name, id) = rest.rsplit_once(':')?;
    Some((name, id.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Entry, job_of};

    #[test]
    fn jobs_are_read_from_what_a_cluster_printed() {
        let jobs = Entry::read_all(include_str!("../tests/it/recorded/queue.txt"));
        assert_eq!(jobs.len(), 3, "{jobs:?}");
        let (running, waiting, other) = (&jobs[0], &jobs[1], &jobs[2]);
        assert!(running.is_running() && running.is_ours() && !running.is_ending());
        assert_eq!(running.provider_ref(), Some("0123456789abcdef"));
        assert_eq!(
            running.instance_id(),
            "dstack-main-a-0-0-r0123456789abcdef:4:n1"
        );
        assert_eq!(
            waiting.waits_for(),
            "job 5 is PENDING in partition cpu,gpu: Resources"
        );
        assert_eq!(
            (other.name.as_str(), other.reason.as_str()),
            ("my|odd name", "None")
        );
        assert!(!other.is_ours());
    }

    #[test]
    fn ids_hold_the_job() {
        assert_eq!(job_of("dstack-a-rx:17:n1"), Some(("dstack-a-rx", 17)));
        assert_eq!(job_of("dstack-a-rx:17:"), Some(("dstack-a-rx", 17)));
        for wrong in ["", "a:b", "a:b:c", "a"] {
            assert_eq!(job_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn limits_are_told_from_a_lack_of_nodes() {
        let with = |reason: &str| {
            let line = format!("1|PENDING|p||1|dstack-a|{reason}");
            Entry::read_all(&line).remove(0).is_limited()
        };
        assert!(with("QOSMaxCpuPerUserLimit") && with("AssocGrpGRES"));
        assert!(!with("Resources") && !with("Priority"));
    }
}
