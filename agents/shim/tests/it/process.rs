//! Tasks without containers, as root: namespaces, control groups, and nothing left afterwards.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use crate::support::{Shim, call, eventually, fake, task};

const PORT: &str = "echo 1234 >$port_file.tmp; mv $port_file.tmp $port_file";

fn require_root() {
    assert!(
        nix::unistd::Uid::effective().is_root(),
        "these tests need root: run them with sudo"
    );
}

/// Number of processes of this machine whose command line contains `mark`.
fn processes(mark: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(mark))
        .count()
}

fn cgroups(name: &str) -> Vec<String> {
    ["", "memory", "cpu", "pids", "cpuacct"]
        .map(|controller| {
            Path::new("/sys/fs/cgroup")
                .join(controller)
                .join("dstack")
                .join(name)
        })
        .into_iter()
        .filter(|dir| dir.exists())
        .map(|dir| dir.display().to_string())
        .collect()
}

#[test]
fn a_runner_that_ends_well_ends_its_task() {
    require_root();
    let fake = fake(&format!(
        "{PORT}; while [ ! -e $task_dir/work/go ]; do sleep 0.01; done"
    ));
    let shim = Shim::start("process", &fake.runner);
    let id = shim.submit(&task("done"));
    let running = shim.task_when(&id, "running");
    assert_eq!(
        running["ports"],
        json!([{"host": 1234, "container": 10999}])
    );
    assert_eq!(running["container_id"], "");
    fs::write(shim.task_dir(&running).join("work/go"), "").unwrap();
    let ended = shim.task_when(&id, "terminated");
    assert_eq!(ended["termination_reason"], "done_by_runner");
    assert_eq!(ended["termination_message"], "");
    assert!(cgroups(running["container_name"].as_str().unwrap()).is_empty());
}

#[test]
fn a_runner_that_is_killed_does_not_leave_its_last_lines_as_the_reason() {
    require_root();
    let fake = fake(&format!("echo all is well; {PORT}; sleep 0.3; kill -9 $$"));
    let shim = Shim::start("process", &fake.runner);
    let id = shim.submit(&task("killed"));
    let ended = shim.task_when(&id, "terminated");
    assert_eq!(ended["termination_reason"], "container_exited_with_error");
    assert_eq!(
        ended["termination_message"],
        "the runner was ended by SIGKILL; its last lines:\nall is well"
    );
}

#[test]
fn a_runner_that_fails_leaves_its_last_lines() {
    require_root();
    let fake = fake(&format!(
        "seq 10 16; {PORT}; sleep 0.3; echo bad luck >&2; exit 3"
    ));
    let shim = Shim::start("process", &fake.runner);
    let ended = shim.task_when(&shim.submit(&task("failed")), "running");
    let ended = shim.task_when(ended["id"].as_str().unwrap(), "terminated");
    assert_eq!(ended["termination_reason"], "container_exited_with_error");
    assert_eq!(ended["termination_message"], "13\n14\n15\n16\nbad luck");
}

#[test]
fn a_runner_that_does_not_start_ends_the_task() {
    require_root();
    let fake = fake("echo no luck; exit 1");
    let shim = Shim::start("process", &fake.runner);
    let ended = shim.task_when(&shim.submit(&task("nostart")), "terminated");
    assert_eq!(ended["termination_reason"], "container_exited_with_error");
    assert_eq!(ended["termination_message"], "no luck");
    fs::remove_file(&fake.runner).unwrap();
    let ended = shim.task_when(&shim.submit(&task("norunner")), "terminated");
    assert_eq!(ended["termination_reason"], "creating_container_error");
    let message = ended["termination_message"].as_str().unwrap();
    assert!(
        message.starts_with("createProcess error: the runner "),
        "{message}"
    );
}

#[test]
fn the_task_sees_places_of_its_own_and_no_others_processes() {
    require_root();
    let fake = fake(&format!(
        "echo own >/dstack/mark; ls -d /workflow /data; echo $$ >$task_dir/work/pid; \
         cat /data/file >/workflow/copied; ls /proc | grep -c '^[0-9]' >$task_dir/work/count; \
         env >$task_dir/work/env; {PORT}; exec sleep 1000"
    ));
    let source = fake.dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "from the machine").unwrap();
    let shim = Shim::start("process", &fake.runner);
    let mut config = task("places");
    config["instance_mounts"] = json!([{"instance_path": source, "path": "/data"}]);
    let id = shim.submit(&config);
    let dir = shim.task_dir(&shim.task_when(&id, "running"));
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(read("dstack/mark"), "own\n");
    assert_eq!(read("work/copied"), "from the machine");
    // Init is 1, the runner the next; few others are there.
    assert_eq!(read("work/pid"), "2\n");
    assert!(read("work/count").trim().parse::<u32>().unwrap() < 8);
    assert!(!Path::new("/dstack/mark").exists() && !Path::new("/data").exists());
    let env = read("work/env");
    assert!(
        env.contains(&format!("HOME={}/home\n", dir.display())),
        "{env}"
    );
    assert!(!env.contains("CARGO"), "{env}");
}

#[test]
fn a_mount_point_made_for_a_job_goes_with_the_last_task_that_uses_it() {
    require_root();
    let fake = fake(&format!("{PORT}; exec sleep 1000"));
    let source = fake.dir.path().join("source");
    let place = fake.dir.path().join("there");
    fs::create_dir(&source).unwrap();
    fs::create_dir(&place).unwrap();
    let made = place.join("for/job");
    let mut shim = Shim::start("process", &fake.runner);
    let submit = |shim: &Shim| {
        let mut config = task("target");
        config["instance_mounts"] = json!([{"instance_path": source, "path": made}]);
        let id = shim.submit(&config);
        shim.task_when(&id, "running");
        id
    };
    let (first, second) = (submit(&shim), submit(&shim));
    shim.terminate(&first, "terminated_by_user", 0);
    assert!(made.is_dir(), "another task has it");
    // A shim that was killed knows of it.
    shim.kill();
    shim.launch();
    assert!(made.is_dir(), "another task still has it");
    shim.terminate(&second, "terminated_by_user", 0);
    assert!(place.is_dir() && !place.join("for").exists());
    // What the machine had before stays, also if it is empty.
    fs::create_dir_all(&made).unwrap();
    let third = submit(&shim);
    shim.terminate(&third, "terminated_by_user", 0);
    assert!(made.is_dir());
    assert!(!shim.home.path().join("mount-targets").exists());
}

#[test]
fn limits_reach_the_control_group() {
    require_root();
    let fake = fake(&format!(
        "cat /proc/self/cgroup >$task_dir/work/cgroup; {PORT}; exec sleep 1000"
    ));
    let shim = Shim::start("process", &fake.runner);
    let mut config = task("limits");
    config["memory"] = json!(67_108_864);
    config["cpu"] = json!(0.5);
    let id = shim.submit(&config);
    let running = shim.task_when(&id, "running");
    let name = running["container_name"].as_str().unwrap();
    let inside = fs::read_to_string(shim.task_dir(&running).join("work/cgroup")).unwrap();
    assert!(inside.contains(&format!("/dstack/{name}")), "{inside}");
    // Neither the keeper nor the job belongs to the service that the shim may be part of.
    let is_free = |text: &str| {
        text.lines()
            .any(|line| line == "0::/dstack/keepers" || line.ends_with(":name=systemd:/dstack"))
    };
    let state: serde_json::Value =
        serde_json::from_slice(&fs::read(shim.task_dir(&running).join("task.json")).unwrap())
            .unwrap();
    let keeper = fs::read_to_string(format!("/proc/{}/cgroup", state["process"]["pid"])).unwrap();
    assert!(is_free(&keeper), "{keeper}");
    let limits = [
        "memory/dstack/{}/memory.limit_in_bytes",
        "dstack/{}/memory.max",
    ];
    let limit = limits.iter().find_map(|file| {
        fs::read_to_string(Path::new("/sys/fs/cgroup").join(file.replace("{}", name))).ok()
    });
    assert_eq!(limit.unwrap().trim(), "67108864");
    assert!(!cgroups(name).is_empty());
    shim.terminate(&id, "", 0);
    assert!(cgroups(name).is_empty());
}

#[test]
fn nothing_of_a_terminated_task_lives_on() {
    require_root();
    let mark = format!("mark-{}", uuid::Uuid::new_v4());
    // A child in a session of its own whose parent has ended, and which ignores polite signals.
    let fake = fake(&format!(
        "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000; : {mark}' &) ; \
         trap 'echo polite >$task_dir/work/polite; exit 0' TERM; {PORT}; while :; do sleep 0.05; done"
    ));
    let shim = Shim::start("process", &fake.runner);
    let id = shim.submit(&task("nothing"));
    let dir = shim.task_dir(&shim.task_when(&id, "running"));
    eventually("the child runs", || processes(&mark) > 0);
    let ended = shim.terminate(&id, "terminated_by_server", 10);
    assert_eq!(ended["termination_reason"], "terminated_by_server");
    assert_eq!(processes(&mark), 0);
    assert!(dir.join("work/polite").exists());
}

#[test]
fn a_task_outlives_its_shim_and_is_found_again() {
    require_root();
    let mark = format!("mark-{}", uuid::Uuid::new_v4());
    let fake = fake(&format!(
        "{PORT}; exec sh -c 'while [ ! -e $1/work/go ]; do sleep 0.01; done; exit 5' {mark} $task_dir"
    ));
    let mut shim = Shim::start("process", &fake.runner);
    let (first, second, third) = (
        shim.submit(&task("a")),
        shim.submit(&task("b")),
        shim.submit(&task("c")),
    );
    let before = shim.task_when(&first, "running");
    let dir = shim.task_dir(&shim.task_when(&second, "running"));
    shim.task_when(&third, "running");
    shim.terminate(&third, "aborted_by_user", 0);
    shim.kill();
    assert!(processes(&mark) > 0);
    // One ends while there is no shim.
    fs::write(dir.join("work/go"), "").unwrap();
    eventually("the exit code is written", || {
        dir.join("exit.code").exists()
    });
    shim.launch();
    assert_eq!(shim.task(&first), before);
    let ended = shim.task_when(&second, "terminated");
    assert_eq!(ended["termination_reason"], "container_exited_with_error");
    assert_eq!(shim.task(&third)["termination_reason"], "aborted_by_user");
    shim.terminate(&first, "", 0);
    assert_eq!(processes(&mark), 0);
    for id in [first, second, third] {
        assert_eq!(shim.remove(&id).status, 200);
    }
    assert_eq!(
        fs::read_dir(shim.home.path().join("runners"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn a_killed_keeper_takes_its_task_along() {
    require_root();
    let mark = format!("mark-{}", uuid::Uuid::new_v4());
    let fake = fake(&format!("{PORT}; exec sh -c 'sleep 1000; : {mark}'"));
    let shim = Shim::start("process", &fake.runner);
    let id = shim.submit(&task("keeper"));
    let dir = shim.task_dir(&shim.task_when(&id, "running"));
    let state: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.join("task.json")).unwrap()).unwrap();
    let pid = i32::try_from(state["process"]["pid"].as_i64().unwrap()).unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    let ended = shim.task_when(&id, "terminated");
    assert_eq!(ended["termination_reason"], "executor_error");
    assert_eq!(ended["termination_message"], "process not found");
    eventually("the task's processes are gone", || processes(&mark) == 0);
}

#[test]
fn without_root_a_task_runs_and_ends_completely_too() {
    require_root();
    let mark = format!("mark-{}", uuid::Uuid::new_v4());
    let fake = fake(&format!(
        "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000; : {mark}' &) ; \
         id -u >$task_dir/work/user; {PORT}; while [ ! -e $task_dir/work/go ]; do sleep 0.01; done; exit 6"
    ));
    let shim = Shim::start_as(65534, &fake.runner);
    let (first, second) = (shim.submit(&task("user-a")), shim.submit(&task("user-b")));
    let dir = shim.task_dir(&shim.task_when(&first, "running"));
    assert_eq!(
        fs::read_to_string(dir.join("work/user")).unwrap(),
        "65534\n"
    );
    shim.task_when(&second, "running");
    shim.terminate(&second, "", 0);
    eventually("the children of one task run", || processes(&mark) > 0);
    fs::write(dir.join("work/go"), "").unwrap();
    let ended = shim.task_when(&first, "terminated");
    assert_eq!(ended["termination_reason"], "container_exited_with_error");
    assert_eq!(processes(&mark), 0);
    let mut config = task("user-mount");
    config["instance_mounts"] = json!([{"instance_path": fake.dir.path(), "path": "/data"}]);
    let ended = shim.task_when(&shim.submit(&config), "terminated");
    let message = ended["termination_message"].as_str().unwrap();
    assert!(message.contains("cannot appear at /data"), "{message}");
}

#[test]
fn left_over_directories_are_removed_at_the_start() {
    require_root();
    let fake = fake(PORT);
    let mut shim = Shim::start("process", &fake.runner);
    let mut config = task("left");
    config["gpu"] = json!(7);
    let id = shim.submit(&config);
    let dir = shim.task_dir(&shim.task_when(&id, "terminated"));
    assert!(dir.join("task.json").exists());
    shim.kill();
    shim.launch();
    assert!(!dir.exists());
    assert_eq!(
        shim.call("GET /api/tasks", None).json(),
        json!({"tasks": []})
    );
}

/// With the real runner, if it has been built: the runner of this workspace is another crate's binary.
#[test]
fn the_real_runner_is_reachable_through_its_port() {
    require_root();
    let runner = Path::new(env!("CARGO_BIN_EXE_dstack-shim")).with_file_name("dstack-runner");
    assert!(
        runner.exists(),
        "build the runner first: cargo build -p dstack-runner"
    );
    let shim = Shim::start("process", &runner);
    let started = Instant::now();
    let id = shim.submit(&task("real"));
    let running = shim.task_when(&id, "running");
    let port = u16::try_from(running["ports"][0]["host"].as_u64().unwrap()).unwrap();
    let health = call(
        TcpStream::connect(("127.0.0.1", port)).unwrap(),
        "GET /api/healthcheck",
        None,
    );
    println!("reachable after {:?}", started.elapsed());
    assert_eq!(
        health.json(),
        json!({"service": "dstack-runner", "version": "0.22.5"})
    );
    let dir = shim.task_dir(&running);
    let stop = shim.terminate(&id, "terminated_by_user", 0);
    assert_eq!(stop["status"], "terminated");
    assert_eq!(processes(&dir.display().to_string()), 0);
}
