//! What a job gets of rights and secrets, and that nothing of them stays.

use serde_json::json;

use crate::bed::{Bed, job};

#[test]
fn a_job_of_a_user_has_no_rights_of_the_runners() {
    let bed = Bed::start();
    let mut spec = job(
        "grep -h '^Cap\\|^Groups' /proc/self/status; readlink /proc/$$/fd/* | grep -vc ^/dev/pts/; \
         cat /tmp/runner/default.log /tmp/runner/job.log /dstack/ssh/conf/x 2>&1 | grep -c denied; \
         grep -c '^SigBlk:.*[1-9a-f]' /proc/self/status",
    );
    spec["job_spec"]["user"] = json!({"username": "app"});
    let text = bed.outcome(&spec).text();
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(
            text.contains(&format!("{set}:\t0000000000000000\n")),
            "{text}"
        );
    }
    assert!(text.contains("Groups:\t12345 12399"), "{text}");
    let rest: Vec<_> = text.lines().rev().take(3).collect();
    assert_eq!(rest[0], "0", "no signal is blocked: {text}");
    assert_eq!(rest[2], "0", "nothing but the terminal is open: {text}");
    assert!(rest[1].parse::<u32>().unwrap() >= 1, "{text}");
}

#[test]
fn tokens_and_keys_are_the_users_alone_and_vanish_with_the_job() {
    let bed = Bed::start();
    let mut spec = job(
        "cd; stat -c '%a %U %n' .config/gh/hosts.yml .config/dstack/git-credentials .ssh/dstack_job .ssh/config; \
         printf 'protocol=https\\nhost=git.example\\n\\n' | git credential fill; \
         printf 'protocol=https\\nhost=other.example\\n\\n' | GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=true git credential fill",
    );
    spec["job_spec"]["user"] = json!({"username": "app"});
    spec["job_spec"]["jobs_per_replica"] = json!(2);
    spec["job_spec"]["ssh_key"] = json!({"private": "PRIVATE-KEY\n", "public": "ssh-rsa AAAA"});
    spec["cluster_info"] =
        json!({"job_ips": ["10.0.0.5", "10.0.0.6"], "master_job_ip": "10.0.0.5"});
    spec["repo_credentials"] =
        json!({"clone_url": "https://git.example/o/p.git", "oauth_token": "t0ken/x"});
    let outcome = bed.outcome(&spec);
    let text = outcome.text();
    for path in [
        ".config/gh/hosts.yml",
        ".config/dstack/git-credentials",
        ".ssh/dstack_job",
        ".ssh/config",
    ] {
        assert!(text.contains(&format!("600 app {path}\n")), "{text}");
        assert!(!bed.inside(&format!("/home/app/{path}")).exists(), "{path}");
    }
    assert_eq!(text.matches("password=t0ken/x\n").count(), 1, "{text}");
    for log in [&outcome.runner_log, &bed.out()] {
        assert!(
            !log.contains("t0ken") && !log.contains("PRIVATE-KEY"),
            "{log}"
        );
    }
}
