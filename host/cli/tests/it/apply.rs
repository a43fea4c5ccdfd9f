//! Configurations applied: what is asked of the server, what is shown, how it ends.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::world::{World, recorded, response};

const TASK: &str = "type: task
name: t1
image: ubuntu:24.04
user: root
env: [A=b]
ports: [8080]
commands: [echo hello, sleep 5]
resources: {cpu: 'x86:1..', memory: 512MB.., disk: 1GB..}
";

fn base() -> &'static str {
    "/api/project/main"
}

/// The recorded run of `t1` in another state.
fn run(status: &str, job_status: &str, change: impl Fn(&mut Value)) -> Value {
    let mut run = response("task_apply_attached", "runs/apply");
    run["status"] = json!(status);
    run["status_message"] = json!(status);
    let job = &mut run["jobs"][0]["job_submissions"][0];
    job["status"] = json!(job_status);
    job["status_message"] = json!(job_status);
    change(job);
    run
}

fn same(_: &mut Value) {}

/// It runs as a process of the server's machine.
fn as_process(job: &mut Value) {
    job["job_provisioning_data"] = json!({
        "backend": "local", "instance_type": offer("available", json!({}))["instance"],
        "instance_id": "local-1", "hostname": "127.0.0.1", "region": "local", "price": 0.0,
        "username": "root", "ssh_port": null, "dockerized": false,
    });
}

fn log(text: &str, next: Option<&str>) -> Value {
    let message = base64::engine::general_purpose::STANDARD.encode(text);
    json!({
        "logs": [{"timestamp": "2026-11-29T19:34:00Z", "log_source": "stdout", "message": message}],
        "external_url": null, "next_token": next,
    })
}

fn no_log() -> Value {
    json!({"logs": [], "external_url": null, "next_token": null})
}

/// An offer of this machine.
fn offer(availability: &str, backend_data: Value) -> Value {
    json!({
        "backend": "local", "region": "localhost", "price": 0.0, "availability": availability,
        "instance": {"name": "local", "resources": {
            "cpus": 2, "memory_mib": 8192, "gpus": [], "spot": false, "disk": {"size_mib": 20480},
            "cpu_arch": "x86", "description": "",
        }},
        "backend_data": backend_data, "availability_zones": null, "instance_runtime": "shim",
        "blocks": 1, "total_blocks": 1,
    })
}

/// A server that takes `t1` in, with one offer.
fn world() -> World {
    world_with(&[offer("available", json!({}))])
}

fn world_with(offers: &[Value]) -> World {
    let world = World::new();
    world.write("work/task.yml", TASK);
    let recording = recorded("task_apply_attached");
    let mut plan = recording[1]["response"].clone();
    plan["current_resource"] = Value::Null;
    plan["job_plans"][0]["offers"] = json!(offers);
    plan["job_plans"][0]["total_offers"] = json!(offers.len());
    world
        .server
        .on(&format!("{}/repos/init", base()), Value::Null)
        .on(&format!("{}/runs/get_plan", base()), plan)
        .on(
            &format!("{}/runs/apply", base()),
            response("task_apply_attached", "runs/apply"),
        );
    world
}

/// What the server is told when nothing is told by options.
fn without_new_keys(mut request: Value) -> Value {
    if let Some(configuration) = request["run_spec"]["configuration"].as_object_mut() {
        configuration.remove("nodes");
        configuration.remove("groups");
    }
    request
}

#[test]
fn a_plan_says_what_is_lost_without_a_container() {
    let offer = |availability, runtime| offer(availability, json!({"runtime": runtime}));
    let planned =
        |offers: &[Value]| world_with(offers).run(&["apply", "-f", "task.yml", "-y", "-d"]);
    insta::assert_snapshot!(planned(&[offer("available", "process")]), @r"
     Project         main
     User            admin
     Type            task
     Resources       cpu=x86:1.. mem=512MB.. disk=1GB..
     Spot policy     on-demand
     Max price       off
     Retry policy    off
     Idle duration   5m
     Max duration    off

     #   BACKEND             RESOURCES                 INSTANCE TYPE   PRICE
     1   local (localhost)   cpu=2 mem=8GB disk=20GB   local           $0

    Runs as a process of the machine, not in a container: with its programs, files and network, and without SSH. Not used: image.

    Run t1 submitted, detaching...
    --- exit code 0
    ");
    assert!(
        !planned(&[offer("available", "docker")])
            .out
            .contains("not in a container")
    );
    // What an idle machine ran in earlier does not settle this run; the backend's own answer does.
    let of_idle = |earlier, now| planned(&[offer("idle", earlier), offer("busy", now)]);
    assert!(
        of_idle("docker", "process")
            .out
            .contains("not in a container")
    );
    assert!(
        !of_idle("process", "docker")
            .out
            .contains("not in a container")
    );
}

#[test]
fn a_task_is_planned_and_submitted_as_the_reference_does() {
    let world = world();
    insta::assert_snapshot!(world.run(&["apply", "-f", "task.yml", "-y", "-d"]), @r"
     Project         main
     User            admin
     Type            task
     Resources       cpu=x86:1.. mem=512MB.. disk=1GB..
     Spot policy     on-demand
     Max price       off
     Retry policy    off
     Idle duration   5m
     Max duration    off

     #   BACKEND             RESOURCES                 INSTANCE TYPE   PRICE
     1   local (localhost)   cpu=2 mem=8GB disk=20GB   local           $0

    Run t1 submitted, detaching...
    --- exit code 0
    ");
    let recording = recorded("task_apply_attached");
    let requests = world.server.requests();
    assert_eq!(requests[0].json(), recording[0]["request"]);
    assert_eq!(
        without_new_keys(requests[1].json()),
        recording[1]["request"]
    );
    let applied = requests.last().unwrap().json();
    let expected = json!({
        "plan": {"run_spec": recording[1]["response"]["run_spec"], "current_resource": null},
        "force": false,
    });
    assert_eq!(applied, expected);
    assert_eq!(requests[0].headers["x-api-version"], "0.22.5");
}

#[test]
fn declining_changes_nothing_and_is_no_error() {
    let world = world().typing("what?\nn\n");
    let screen = world.run(&["apply", "-f", "task.yml"]);
    assert!(
        screen
            .out
            .ends_with("Submit the run t1? [y/n]: Submit the run t1? [y/n]: Exiting...\n"),
        "{screen}"
    );
    assert_eq!(screen.code, 0);
    assert!(
        !world
            .server
            .paths()
            .contains(&format!("{}/runs/apply", base()))
    );
}

#[test]
fn an_attached_run_streams_its_log_and_ends_with_0_if_it_is_done() {
    let world = world();
    let get = format!("{}/runs/get", base());
    let poll = format!("{}/logs/poll", base());
    world
        .server
        .on(&get, run("submitted", "submitted", same))
        .on(&get, run("provisioning", "provisioning", same))
        .on(&get, run("provisioning", "pulling", same))
        .on(&get, run("running", "running", as_process))
        .on(
            &get,
            run("done", "done", |job| {
                job["status_message"] = json!("exited (0)")
            }),
        )
        .on(&poll, log("hello\n", None))
        .on(&poll, log("last wörds\n", Some("2")))
        .on(&poll, no_log());
    insta::assert_snapshot!(world.run(&["apply", "-f", "task.yml", "-y"]), @r"
     Project         main
     User            admin
     Type            task
     Resources       cpu=x86:1.. mem=512MB.. disk=1GB..
     Spot policy     on-demand
     Max price       off
     Retry policy    off
     Idle duration   5m
     Max duration    off

     #   BACKEND             RESOURCES                 INSTANCE TYPE   PRICE
     1   local (localhost)   cpu=2 mem=8GB disk=20GB   local           $0

    Run t1 submitted
    t1: provisioning
    t1: running on local (local), local at $0
    hello
    last wörds
    Exited (0)
    --- standard error
    The job is a process on the server's own machine; there is no login of its own to attach to. Its ports are on that machine: 8080.
    --- exit code 0
    ");
    let polls = world.server.bodies(&poll);
    assert_eq!(polls[0]["next_token"], Value::Null);
    assert_eq!(polls[1]["start_time"], "2026-11-29T19:34:00Z");
    assert_eq!(polls[2]["next_token"], "2");
}

#[test]
fn a_failed_run_ends_with_1_the_reason_and_a_hint() {
    let world = world();
    let get = format!("{}/runs/get", base());
    let failed = run("failed", "failed", |job| {
        job["status_message"] = json!("exited (3)");
        job["termination_reason"] = json!("container_exited_with_error");
        job["termination_reason_message"] = Value::Null;
        job["exit_status"] = json!(3);
    });
    world
        .server
        .on(&get, run("running", "running", as_process))
        .on(&get, failed);
    world
        .server
        .on(&format!("{}/logs/poll", base()), log("boom\n", None))
        .on(&format!("{}/logs/poll", base()), no_log());
    insta::assert_snapshot!(world.run(&["apply", "-f", "task.yml", "-y"]), @r"
     Project         main
     User            admin
     Type            task
     Resources       cpu=x86:1.. mem=512MB.. disk=1GB..
     Spot policy     on-demand
     Max price       off
     Retry policy    off
     Idle duration   5m
     Max duration    off

     #   BACKEND             RESOURCES                 INSTANCE TYPE   PRICE
     1   local (localhost)   cpu=2 mem=8GB disk=20GB   local           $0

    Run t1 submitted
    t1: running on local (local), local at $0
    boom
    --- standard error
    The job is a process on the server's own machine; there is no login of its own to attach to. Its ports are on that machine: 8080.
    Exited (3)
    See `dstack logs -d t1` for details.
    --- exit code 1
    ");
}

#[test]
fn a_run_without_capacity_says_why() {
    let world = World::new();
    world.write("work/task.yml", TASK);
    world.server.play(&recorded("task_apply_attached"));
    world.server.on(&format!("{}/logs/poll", base()), no_log());
    insta::assert_snapshot!(world.run(&["apply", "-f", "task.yml", "-y"]), @r"
     Project         main
     User            admin
     Type            task
     Resources       cpu=x86:1.. mem=512MB.. disk=1GB..
     Spot policy     on-demand
     Max price       off
     Retry policy    off
     Idle duration   5m
     Max duration    off

    No offers match. Ask for less, or look at what there is: `dstack fleet -v`, `dstack offer`. Why: pass --explain.

    Run t1 submitted
    --- standard error
    No capacity
    No offers matching the run requirements in fleet 'f1'.
    See https://dstack.ai/docs/guides/troubleshooting/#provisioning-fails
    --- exit code 1
    ");
}

#[test]
fn an_explanation_names_every_candidate() {
    let world = World::new();
    world.write("work/task.yml", TASK);
    world.server.play(&recorded("task_apply_attached"));
    let candidate = |kind: &str, name: &str, reason: Value| json!({"kind": kind, "name": name, "fleet": "f1", "count": 3, "reason": reason});
    let mut offers = candidate("offer", "aws", json!("above `max_price` of $2"));
    offers["price"] = json!(2.5);
    offers["region"] = json!("north");
    offers["example"] = json!("big");
    let job = json!({"job": "t1-0-0", "candidates": [
        candidate("fleet", "f1", Value::Null),
        candidate("instance", "f1-0", json!("it cannot be reached")),
        offers,
    ]});
    let explain = "/api/x/project/main/runs/explain";
    world.server.on(explain, json!([job]));
    let shown = world
        .run(&["apply", "-f", "task.yml", "--explain"])
        .to_string();
    for line in [
        "fleet f1",
        "instance f1-0",
        "it cannot be reached",
        "3 of aws",
        "big, north",
        "$2.5",
        "above `max_price` of $2",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let asked = &world.server.bodies(explain)[0]["run_spec"];
    assert_eq!(asked["configuration"]["type"], "task", "{asked}");
}

#[test]
fn progress_is_a_live_table_on_a_terminal() {
    let world = world().wide(80);
    let get = format!("{}/runs/get", base());
    world
        .server
        .on(&get, run("provisioning", "provisioning", same))
        .on(&get, run("running", "running", as_process))
        .on(
            &get,
            run("done", "done", |job| {
                job["status_message"] = json!("exited (0)")
            }),
        );
    world
        .server
        .on(&format!("{}/logs/poll", base()), log("hello\n", None))
        .on(&format!("{}/logs/poll", base()), no_log());
    let screen = world.run(&["apply", "-f", "task.yml", "-y"]);
    assert_eq!(screen.code, 0, "{screen}");
    let live = screen.out.replace('\x1b', "ESC");
    assert!(live.contains("ESC[2AESC[0J NAME"), "{live}");
    assert!(live.contains("running"), "{live}");
}

/// The recorded plan with a run of that name in the given state.
fn with_current(world: &World, status: &str, action: &str, env: Value) {
    let mut plan = recorded("task_apply_attached")[1]["response"].clone();
    let mut current = run(status, status, same);
    current["run_spec"] = plan["effective_run_spec"].clone();
    current["run_spec"]["configuration"]["env"] = env;
    plan["current_resource"] = current;
    plan["action"] = json!(action);
    world
        .server
        .on(&format!("{}/repos/init", base()), Value::Null);
    world
        .server
        .on(&format!("{}/fleets/list", base()), json!([]));
    world.server.on(&format!("{}/runs/get_plan", base()), plan);
    world.server.on(
        &format!("{}/runs/apply", base()),
        response("task_apply_attached", "runs/apply"),
    );
    world
        .server
        .on(&format!("{}/runs/stop", base()), Value::Null);
    world.write("work/task.yml", TASK);
}

#[test]
fn an_active_run_is_stopped_before_it_is_replaced() {
    let world = World::new().typing("y\n");
    with_current(&world, "running", "create", json!({"A": "old"}));
    let get = format!("{}/runs/get", base());
    world
        .server
        .on(&get, run("terminating", "terminating", same))
        .on(&get, run("terminated", "terminated", same));
    insta::assert_snapshot!(world.run(&["apply", "-f", "task.yml", "-d"]), @r"
     Project         main
     User            admin
     Type            task
     Resources       cpu=x86:1.. mem=512MB.. disk=1GB..
     Spot policy     on-demand
     Max price       off
     Retry policy    off
     Idle duration   5m
     Max duration    off

    The project has no fleets, and a run needs one. Create it first: `type: fleet` with `nodes: 0..1`, then `dstack apply -f FILE`.

    Active run already exists and cannot be changed in place. Changed: env. Stop and override the run t1? [y/n]: Stopping the run t1...
    Run t1 submitted, detaching...
    --- exit code 0
    ");
    let end: Vec<String> = world.server.paths().into_iter().rev().take(4).collect();
    assert_eq!(
        end,
        ["runs/apply", "runs/get", "runs/get", "runs/stop"]
            .map(|path| format!("{}/{path}", base()))
    );
}

#[test]
fn an_update_names_what_changes_and_none_is_made_without_changes() {
    let world = World::new().typing("y\n");
    with_current(&world, "running", "update", json!({"A": "old"}));
    let screen = world.run(&["apply", "-f", "task.yml", "-d"]);
    assert!(
        screen.out.contains(
            "Active run already exists. Changed: env. Update the run t1 in place? [y/n]: "
        ),
        "{screen}"
    );
    assert!(
        screen.out.ends_with("Run t1 updated, detaching...\n"),
        "{screen}"
    );
    let sent = world
        .server
        .bodies(&format!("{}/runs/apply", base()))
        .remove(0);
    assert!(sent["plan"]["current_resource"]["id"].is_string());
    assert!(
        sent["plan"]["current_resource"]["jobs"][0]
            .get("job_connection_info")
            .is_none()
    );

    let world = World::new();
    with_current(&world, "running", "update", json!({"A": "b"}));
    let screen = world.run(&["apply", "-f", "task.yml", "-y", "-d"]);
    assert!(
        screen
            .out
            .ends_with("Run t1 is active, and nothing changed. Pass --force to apply it anyway.\n"),
        "{screen}"
    );
    let screen = world.run(&["apply", "-f", "task.yml", "-y", "-d", "--force"]);
    assert!(
        screen.out.ends_with("Run t1 updated, detaching...\n"),
        "{screen}"
    );
}

#[test]
fn options_profile_and_environment_reach_the_server() {
    let world = world().var("HF_TOKEN", "t0").var("DSTACK_PROFILE", "cheap");
    world.write(
        "work/.dstack/profiles.yml",
        "profiles:\n- {name: cheap, max_price: 0.5}\n- {name: main, default: true}\n",
    );
    let screen = world.run(&[
        "apply",
        "-f",
        "task.yml",
        "-y",
        "-d",
        "-n",
        "other",
        "-e",
        "HF_TOKEN",
        "-e",
        "A=c d",
        "--gpu",
        "A100:2",
        "--memory",
        "32GB..",
        "--disk",
        "50GB",
        "-p",
        "*:8080",
        "-p",
        "90:9090",
        "--spot-auto",
        "--no-retry",
        "--dont-destroy",
        "--max-duration",
        "off",
        "--max-offers",
        "9",
    ]);
    assert_eq!(screen.code, 0, "{screen}");
    let asked = world
        .server
        .bodies(&format!("{}/runs/get_plan", base()))
        .remove(0);
    let spec = &asked["run_spec"];
    assert_eq!(spec["run_name"], "other");
    assert_eq!(spec["profile"]["name"], "cheap");
    assert_eq!(spec["profile"]["max_price"], 0.5);
    let configuration = &spec["configuration"];
    assert_eq!(configuration["env"], json!({"A": "c d", "HF_TOKEN": "t0"}));
    assert_eq!(configuration["resources"]["gpu"]["name"], json!(["A100"]));
    assert_eq!(
        configuration["resources"]["memory"],
        json!({"min": 32.0, "max": null})
    );
    let ports = json!([{"local_port": null, "container_port": 8080}, {"local_port": 90, "container_port": 9090}]);
    assert_eq!(configuration["ports"], ports);
    assert_eq!(configuration["spot_policy"], "auto");
    assert_eq!(configuration["retry"], false);
    assert_eq!(configuration["idle_duration"], -1);
    assert_eq!(configuration["max_duration"], "off");
    assert_eq!(asked["max_offers"], 9);
    let screen = world.run(&["apply", "-f", "task.yml", "-y", "-d", "--profile", "nope"]);
    assert!(
        screen
            .err
            .starts_with("there is no profile nope, but cheap, main: looked into /person/work/"),
        "{screen}"
    );
}

#[test]
fn arguments_fill_the_commands_and_standard_input_is_a_file() {
    let world = world().typing("type: task\nimage: x\ncommands: ['run ${{ run.args }} $HOME']\n");
    let screen = world.run(&["apply", "-f", "-", "-y", "-d", "--", "--lr", "1 2"]);
    assert_eq!(screen.code, 0, "{screen}");
    let asked = world
        .server
        .bodies(&format!("{}/runs/get_plan", base()))
        .remove(0);
    assert_eq!(
        asked["run_spec"]["configuration"]["commands"],
        json!(["run --lr '1 2' $HOME"])
    );
    assert_eq!(asked["run_spec"]["configuration_path"], "-");
}

#[test]
fn files_are_uploaded_under_their_hash() {
    let world = world();
    world.write("work/f.txt", "content");
    world.write("work/files.yml", "type: task\nname: tf\nimage: x\ncommands: [cat /data/f.txt]\nfiles: ['./f.txt:/data/f.txt']\n");
    world.server.on(
        "/api/files/upload_archive",
        response("files_apply", "upload_archive"),
    );
    let screen = world.run(&["apply", "-f", "files.yml", "-y", "-d"]);
    assert_eq!(screen.code, 0, "{screen}");
    let upload = world
        .server
        .requests()
        .into_iter()
        .find(|request| request.path.ends_with("upload_archive"))
        .unwrap();
    let body = String::from_utf8_lossy(&upload.body).into_owned();
    assert!(body.contains("name=\"file\"; filename=\""), "{body}");
    assert!(body.contains("content"));
    let spec = &world.server.bodies(&format!("{}/runs/get_plan", base()))[0]["run_spec"];
    let id = response("files_apply", "upload_archive")["id"].clone();
    assert_eq!(
        spec["file_archives"],
        json!([{"id": id, "path": "/data/f.txt"}])
    );
    let local = spec["configuration"]["files"][0]["local_path"]
        .as_str()
        .unwrap();
    assert!(std::path::Path::new(local).is_absolute(), "{local}");
    world.write(
        "work/files.yml",
        "type: task\nimage: x\nfiles: [missing.txt]\n",
    );
    let screen = world.run(&["apply", "-f", "files.yml", "-y", "-d"]);
    assert!(
        screen
            .err
            .starts_with("cannot pack /person/work/missing.txt"),
        "{screen}"
    );
}

#[test]
fn a_fleet_is_planned_and_created_as_the_reference_does() {
    let world = World::new();
    world.write(
        "work/fleet.yml",
        "type: fleet\nname: f1\nnodes: 0..2\nresources: {cpu: 2.., memory: 4GB..}\n",
    );
    let recording = recorded("fleet_apply");
    world.server.play(&recording);
    insta::assert_snapshot!(world.run(&["apply", "-f", "fleet.yml", "-y"]), @r"
     Project         main
     User            admin
     Type            fleet
     Fleet type      cloud
     Nodes           0..2
     Resources       cpu=2.. mem=4GB.. disk=100GB..
     Spot policy     on-demand
     Max price       off
     Retry policy    off
     Idle duration   3d

    No offers match. Ask for less, or look at what there is: `dstack offer`.

     NAME   NODES   GPU   SPOT   BACKEND   PRICE   STATUS   CREATED
     f1     0..2                                   active   9 mins ago
    --- exit code 0
    ");
    let requests: Vec<Value> = world
        .server
        .requests()
        .iter()
        .map(|request| request.json())
        .collect();
    let expected: Vec<Value> = recording
        .iter()
        .map(|exchange| exchange["request"].clone())
        .collect();
    assert_eq!(requests, expected);
}

#[test]
fn the_same_fleet_again_is_no_change() {
    let world = World::new();
    world.write(
        "work/fleet.yml",
        "type: fleet\nname: f1\nnodes: 0..2\nresources: {cpu: 2.., memory: 4GB..}\n",
    );
    world.server.play(&recorded("fleet_reapply"));
    let screen = world.run(&["apply", "-f", "fleet.yml", "-y"]);
    assert!(
        screen
            .out
            .ends_with("Fleet f1 exists, and nothing changed. Pass --force to apply it anyway.\n"),
        "{screen}"
    );
    assert_eq!(world.server.paths().len(), 1);
}

#[test]
fn other_types_are_the_servers_to_refuse() {
    let world = World::new();
    world.write(
        "work/v.yml",
        "type: volume\nname: v1\nbackend: aws\nregion: eu-west-1\nsize: 10GB\n",
    );
    let refusal = json!({"detail": [{"msg": "Volumes are not there yet", "code": "error"}]});
    let unknown = json!({"detail": [{"msg": "Resource not found", "code": "resource_not_exists"}]});
    world
        .server
        .on_status(&format!("{}/volumes/get", base()), 400, unknown)
        .on_status(&format!("{}/volumes/create", base()), 400, refusal);
    insta::assert_snapshot!(world.run(&["apply", "-f", "v.yml", "-y"]), @r"
    --- standard error
    Volumes are not there yet
    --- exit code 1
    ");
}
