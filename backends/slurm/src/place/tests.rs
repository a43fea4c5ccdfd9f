use std::sync::{Arc, Mutex};

use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::serde_json::{Value, from_value, json};
use dstack_backend_sdk::testing::{Host, Reply};
use dstack_backend_sdk::types::services::{self as wire, SshReply};
use dstack_backend_sdk::types::{InstanceOffer, JobInfo};

use super::{Placed, Wish, place};
use crate::config::SlurmConfig;

/// What the cluster of a test says: jobs in the queue, then what each look at the own job finds, then who shares its node.
#[derive(Debug, Default, Clone)]
struct Says {
    queue: &'static str,
    looks: Vec<&'static str>,
    sharing: &'static str,
    refusal: Option<&'static str>,
}

/// The outcome, and every script that was sent.
fn placed(says: Says, more: Value) -> (Result<Placed>, Vec<String>) {
    let mut cluster = json!({
        "name": "hpc", "hostname": "login", "user": "me", "private_key": {"content": "k"},
        "queue_wait_seconds": 40,
    });
    for (key, value) in more.as_object().unwrap() {
        cluster[key] = value.clone();
    }
    let config: SlurmConfig = from_value(json!({"clusters": [cluster]})).unwrap();
    let clusters = config.settle().unwrap();
    let host = Host::new(|_| Reply::status(404));
    let sent: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&sent);
    let mut looks = 0;
    host.ssh(move |_, script| {
        let text = String::from_utf8(script.to_vec()).unwrap();
        heard.lock().unwrap().push(text.clone());
        let (status, out, err) = if text.contains("sbatch") {
            match says.refusal {
                Some(said) => (1, "", said),
                None => (0, "7;hpc\n", ""),
            }
        } else if text.contains(" -w ") {
            (0, says.sharing, "")
        } else if text.contains("squeue -h -u") {
            (0, says.queue, "")
        } else if text.contains("hostnames") {
            (0, "n1|10.0.0.1\n", "")
        } else if text.contains("-j 7") {
            looks += 1;
            let last = says.looks.len().saturating_sub(1);
            (0, *says.looks.get(last.min(looks - 1)).unwrap(), "")
        } else {
            (0, "", "")
        };
        let mark = "__dstack_boundary_0000000000000000__\n";
        let reply = SshReply {
            status: Some(status),
            ..SshReply::default()
        };
        Ok((
            reply,
            format!("{mark}{out}").into(),
            format!("{mark}{err}").into(),
        ))
    });
    let agents = json!({"shim": "http://a/s", "runner": "http://a/r", "version": "1"});
    host.answer(
        wire::DESCRIBE,
        &json!({"host_version": "0", "log_level": 3, "services": {}, "agents": agents}),
    );
    let offer: InstanceOffer = from_value(json!({
        "backend": "slurm", "region": "hpc", "price": 0.0,
        "instance": {"name": "x", "resources": {"cpus": 2, "memory_mib": 1024, "gpus": [], "disk": {"size_mib": 0}}},
    }))
    .unwrap();
    let mut offer = InstanceOfferWithAvailability::new(offer, InstanceAvailability::Unknown);
    offer.availability_zones = Some(vec!["cpu".to_owned()]);
    let job: JobInfo = from_value(json!({
        "id": "00000000-0000-0000-0000-000000000000", "job_name": "a-0-0", "image_name": "ubuntu",
        "requirements": {"resources": {}},
    }))
    .unwrap();
    let wish = Wish {
        name: "dstack-main-a-0-0-r0123456789abcdef".to_owned(),
        provider_ref: Some("0123456789abcdef"),
        offer: &offer,
        jobs: vec![&job],
        project_key: "ssh-ed25519 AAAAproject p",
        other_keys: &[],
    };
    let outcome = place(&clusters[0], &wish);
    let scripts = sent.lock().unwrap().clone();
    (outcome, scripts)
}

const RUNS: &str = "7|RUNNING|cpu|n1|1|dstack-main-a-0-0-r0123456789abcdef|None\n";
const WAITS: &str = "7|PENDING|cpu||1|dstack-main-a-0-0-r0123456789abcdef|Resources\n";

fn count(scripts: &[String], word: &str) -> usize {
    scripts
        .iter()
        .filter(|script| script.contains(word))
        .count()
}

#[test]
fn a_job_that_waits_a_moment_is_waited_for() {
    let says = Says {
        looks: vec![WAITS, WAITS, RUNS],
        queue: "3|RUNNING|cpu|n4|1|dstack-other-r00|None\n4|RUNNING|cpu|n5|1|not ours|None\n",
        ..Says::default()
    };
    let more = json!({"account": "lab", "qos": "high", "time_limit": "1:00:00"});
    let (outcome, scripts) = placed(says, more);
    let done = outcome.unwrap();
    assert_eq!((done.entry.id, count(&scripts, "left=")), (7, 3));
    assert_eq!(done.places[0].address, "10.0.0.1");
    let script = scripts
        .iter()
        .find(|script| script.contains("sbatch"))
        .unwrap();
    for option in [
        "account=lab",
        "qos=high",
        "time=1:00:00",
        "exclude=n4",
        "partition=cpu",
    ] {
        assert!(
            script.contains(&format!("#SBATCH --{option}\n")),
            "{script}"
        );
    }
    assert_eq!(count(&scripts, "authorized_keys"), 1);
    assert_eq!(count(&scripts, "scancel"), 0);
}

#[test]
fn a_job_that_waits_too_long_leaves_the_queue_with_its_reason() {
    let says = Says {
        looks: vec![WAITS],
        ..Says::default()
    };
    let (outcome, scripts) = placed(says, json!({}));
    let error = outcome.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoCapacity);
    for seconds in [15, 15, 10] {
        assert!(
            count(&scripts, &format!("left={seconds}\n")) > 0,
            "{scripts:?}"
        );
    }
    assert!(
        error
            .message
            .contains("job 7 is PENDING in partition cpu: Resources"),
        "{error}"
    );
    assert_eq!(count(&scripts, "then scancel 7;"), 1);
}

#[test]
fn a_limit_is_a_quota() {
    let says = Says {
        looks: vec!["7|PENDING|cpu||1|dstack-main-a-0-0-r0123456789abcdef|QOSMaxCpuPerUserLimit\n"],
        ..Says::default()
    };
    assert_eq!(
        placed(says, json!({})).0.unwrap_err().kind,
        ErrorKind::Quota
    );
    for (said, kind) in [
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy",
            ErrorKind::Quota,
        ),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            ErrorKind::NoCapacity,
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            ErrorKind::Invalid,
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            ErrorKind::Transport,
        ),
    ] {
        let says = Says {
            refusal: Some(said),
            ..Says::default()
        };
        assert_eq!(placed(says, json!({})).0.unwrap_err().kind, kind, "{said}");
    }
}

#[test]
fn a_job_that_an_earlier_call_made_is_taken() {
    let says = Says {
        queue: RUNS,
        looks: vec![RUNS],
        sharing: RUNS,
        ..Says::default()
    };
    let (outcome, scripts) = placed(says, json!({}));
    assert_eq!(outcome.unwrap().entry.id, 7);
    assert_eq!(count(&scripts, "sbatch"), 0);
}

#[test]
fn of_two_jobs_on_a_node_the_later_one_goes() {
    let sharing = |sharing| Says {
        looks: vec![RUNS],
        sharing,
        ..Says::default()
    };
    let earlier = "6|RUNNING|cpu|n1|1|dstack-main-b-0-0-rfedcba9876543210|None\n";
    let (outcome, scripts) = placed(sharing(earlier), json!({}));
    assert_eq!(outcome.unwrap_err().kind, ErrorKind::NoCapacity);
    assert_eq!(count(&scripts, "then scancel 7;"), 1);
    for other in [
        "8|RUNNING|cpu|n1|1|dstack-main-b-0-0-rfedcba9876543210|None\n",
        "6|RUNNING|cpu|n1|1|somebody's|None\n",
    ] {
        assert!(placed(sharing(other), json!({})).0.is_ok(), "{other}");
    }
}

#[test]
fn a_job_that_ends_at_once_ends_the_attempt() {
    let says = Says {
        looks: vec!["7|FAILED|cpu|n1|1|dstack-main-a-0-0-r0123456789abcdef|NonZeroExitCode\n"],
        ..Says::default()
    };
    let error = placed(says, json!({})).0.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Provisioning);
    assert!(
        error.message.contains("FAILED") && error.message.contains("NonZeroExitCode"),
        "{error}"
    );
}
