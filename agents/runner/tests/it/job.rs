//! How the command is run: user, environment, terminal, files.

use serde_json::json;

use crate::bed::{Bed, job, wait_for};

#[test]
fn the_command_gets_user_groups_directory_and_a_terminal() {
    let bed = Bed::start();
    let mut spec = job(
        "id -u; id -g; id -G; echo $HOME; pwd; tty; stat -c %U $(tty); stty size; ls -ld . | cut -d' ' -f3; \
         ulimit -l; test -t 2 && echo err-tty; cut -d' ' -f6 /proc/self/stat; echo $$",
    );
    spec["job_spec"]["user"] = json!({"username": "app"});
    spec["job_spec"]["working_dir"] = json!("~/new/dir");
    bed.submit(&spec);
    assert_eq!(
        bed.run().json::<serde_json::Value>(),
        json!({"working_dir": "/home/app/new/dir", "username": "app"})
    );
    let text = bed.finish().text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "12345",
            "12345",
            "12345 12399",
            "/home/app",
            "/home/app/new/dir"
        ],
        "{text}"
    );
    assert!(lines[5].starts_with("/dev/pts/"), "{text}");
    // Only with the capability can the limit of locked memory be lifted.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .unwrap()
        .trim();
    let may_lift = u64::from_str_radix(capabilities, 16).unwrap() & (1 << 24) != 0;
    let locked = if may_lift { "unlimited" } else { lines[9] };
    assert_eq!(
        lines[6..11],
        ["app", "0 0", "app", locked, "err-tty"],
        "{text}"
    );
    assert_eq!(lines[11], lines[12], "the command leads its session");
}

#[test]
fn the_environment_has_its_layers_and_the_profile_gives_it_to_login_shells() {
    let bed = Bed::start();
    bed.start_job(&json!({
        "run": {"id": "r-1", "run_spec": {"run_name": "name", "repo_id": "repo"}},
        "job_submission": {"id": "j-1"},
        "job_spec": {
            "commands": ["/bin/sh", "-c", "env; echo ---; env -i HOME=/tmp sh -lc 'echo $OWN; pwd; echo $IMAGE_VARIABLE'"],
            "env": {"OWN": "it's", "BASH_FUNC_x%%": "() { :; }"}, "jobs_per_replica": 1, "working_dir": "/tmp/w"
        },
        "cluster_info": {"job_ips": ["10.0.0.5"], "master_job_ip": "10.0.0.5", "gpus_per_job": 2},
    }));
    let text = bed.finish().text();
    let (env, login) = text.split_once("---\n").unwrap();
    for line in [
        "DSTACK_RUN_ID=r-1",
        "DSTACK_JOB_ID=j-1",
        "DSTACK_RUN_NAME=name",
        "DSTACK_REPO_ID=repo",
        "DSTACK_REPO_DIR=/workflow",
        "DSTACK_WORKING_DIR=/tmp/w",
        "DSTACK_NODES_IPS=10.0.0.5",
        "DSTACK_MASTER_NODE_IP=10.0.0.5",
        "DSTACK_NODE_RANK=0",
        "DSTACK_NODES_NUM=1",
        "DSTACK_GPUS_PER_NODE=2",
        "DSTACK_GPUS_NUM=2",
        "DSTACK_MPI_HOSTFILE=/dstack/mpi/hostfile",
        "OWN=it's",
        "IMAGE_VARIABLE=of the image",
        "HOME=/root",
    ] {
        assert!(
            env.lines().any(|found| found == line),
            "{line} is missing:\n{env}"
        );
    }
    assert!(!env.contains("BASH_FUNC"), "{env}");
    assert_eq!(login, "profile-was-read\nit's\n/tmp/w\nof the image\n");
    assert_eq!(bed.read("/dstack/mpi/hostfile"), "10.0.0.5 slots=2\n");
}

#[test]
fn uploaded_archives_land_exactly_at_their_targets() {
    let bed = Bed::start();
    let mut spec = job(
        "cat ~/.config/app.yml; cat /data/tree/a /data/tree/d/b; stat -c %U ~/.config /data/tree/d/b; ls /tmp/runner",
    );
    spec["job_spec"]["user"] = json!({"username": "app"});
    spec["job_spec"]["file_archives"] =
        json!([{"id": "a-1", "path": "~/.config/app.yml"}, {"id": "a-2", "path": "/data/tree"}]);
    bed.submit(&spec);
    let file = tar_of(&[("local-name.yml", "x: 1\n")]);
    let tree = tar_of(&[("src/a", "A\n"), ("src/d/b", "B\n")]);
    for (id, tar) in [("a-1", &file), ("a-2", &tree), ("a-2", &tree)] {
        let answer = upload(&bed, "archive", id, tar);
        assert_eq!((answer.status, answer.text().as_str()), (200, "\n"));
    }
    let wrong = upload(&bed, "file", "x", b"");
    assert_eq!(
        (wrong.status, wrong.text().as_str()),
        (400, "unexpected field file\n")
    );
    let missing = bed.post("/api/upload_archive", b"");
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (400, "missing content-type header\n")
    );
    bed.run();
    let text = bed.finish().text();
    assert!(text.starts_with("x: 1\nA\nB\napp\napp\n"), "{text}");
    assert!(!text.contains("file_archives"), "{text}");
}

#[test]
fn an_archive_that_was_not_uploaded_fails_the_job() {
    let bed = Bed::start();
    let mut spec = job("echo never");
    spec["job_spec"]["file_archives"] = json!([{"id": "a-1", "path": "/x/y"}]);
    let outcome = bed.outcome(&spec);
    assert_eq!(outcome.text(), "");
    assert_eq!(outcome.last().termination_reason, "executor_error");
    assert!(
        outcome
            .last()
            .termination_message
            .starts_with("Failed to set up files (/x/y: "),
        "{outcome:?}"
    );
    assert_eq!(outcome.states.len(), 1, "{outcome:?}");
}

#[test]
fn nodes_of_a_replica_get_a_key_and_a_configuration() {
    let bed = Bed::start();
    let outcome = bed.outcome(&json!({
        "job_spec": {
            "commands": ["/bin/sh", "-c", "cat ~/.ssh/dstack_job ~/.ssh/config; stat -c %a ~/.ssh/dstack_job ~/.ssh/config; cat $DSTACK_MPI_HOSTFILE"],
            "jobs_per_replica": 2, "job_num": 1, "user": {"username": "app"},
            "ssh_key": {"private": "PRIVATE\n", "public": "ssh-rsa AAAA"}
        },
        "cluster_info": {"job_ips": ["10.0.0.5", "10.0.0.6"], "master_job_ip": "10.0.0.5", "gpus_per_job": 8, "gpus_per_node": [8, 4]},
    }));
    let text = outcome.text();
    assert!(
        text.starts_with("PRIVATE\n\nHost 10.0.0.5\n    Port 10022\n"),
        "{text}"
    );
    assert!(
        text.ends_with("600\n600\n10.0.0.5 slots=8\n10.0.0.6 slots=4\n"),
        "{text}"
    );
}

#[test]
fn orphans_are_reaped_and_the_runners_own_children_are_not_lost() {
    let bed = Bed::start();
    // Each inner shell leaves a child behind that ends a moment later.
    bed.start_job(&job(
        "for i in $(seq 30); do sh -c 'sleep 0.2 & exit 0'; done; sleep 30; exit 3",
    ));
    let zombies = || {
        let count = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter(|entry| {
                let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
                let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
                rest.starts_with(&format!(" Z {} ", bed.pid()))
            });
        count.count()
    };
    let mut seen = 0;
    wait_for("orphans", || {
        seen += zombies();
        (seen > 0).then_some(())
    });
    wait_for("reaping", || (zombies() == 0).then_some(()));
    assert_eq!(bed.post("/api/stop", b"").status, 200);
    assert_eq!(
        serde_json::to_value(bed.finish().last().state).unwrap(),
        "terminated"
    );
}

fn tar_of(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        builder
            .append_data(&mut header, name, content.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

fn upload(bed: &Bed, field: &str, id: &str, tar: &[u8]) -> crate::bed::Answer {
    let head = format!(
        "--B\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{id}\"\r\n\r\n"
    );
    let body = [head.as_bytes(), tar, b"\r\n--B--\r\n"].concat();
    bed.request(
        "POST",
        "/api/upload_archive",
        "Content-Type: multipart/form-data; boundary=B\r\n",
        &body,
    )
}
