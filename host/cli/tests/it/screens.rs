//! Listings: as tables and as JSON.

use serde_json::{Value, json};

use crate::world::{World, recorded, response};

fn offers() -> Value {
    let offer =
        |backend: &str, region: &str, name: &str, price: f64, availability: &str, gpus: Value| {
            json!({
                "backend": backend, "region": region, "price": price, "availability": availability,
                "instance": {"name": name, "resources": {
                    "cpus": 4, "memory_mib": 16384, "gpus": gpus, "spot": price < 1.0,
                    "disk": {"size_mib": 102_400}, "cpu_arch": "x86", "description": "",
                }},
                "backend_data": {}, "availability_zones": null, "instance_runtime": "shim",
                "blocks": 1, "total_blocks": 1,
            })
        };
    let a100 = json!([{"name": "A100", "memory_mib": 81920, "vendor": "nvidia"}]);
    json!([
        offer("local", "localhost", "local", 0.0, "idle", json!([])),
        offer(
            "aws",
            "eu-west-1",
            "p4d.24xlarge",
            1.507_54,
            "available",
            a100.clone()
        ),
        offer("remote", "remote", "host-1", 12.5, "no_quota", a100),
    ])
}

fn plan_with_offers() -> Value {
    let mut plan = response("offer_json", "get_plan");
    plan["job_plans"][0]["offers"] = offers();
    plan["job_plans"][0]["total_offers"] = json!(7);
    plan["job_plans"][0]["max_price"] = json!(31.2);
    plan
}

#[test]
fn ps_shows_one_row_a_run() {
    let world = World::new();
    world.server.play(&recorded("running_ps"));
    insta::assert_snapshot!(world.run(&["ps"]), @r"
     NAME      BACKEND           GPU          PRICE   STATUS    SUBMITTED
     train-1   aws (eu-west-1)   A10:24GB:1   $1.25   running   35 mins ago
     svc-1     aws (eu-west-1)   A10:24GB:1   $1.25   running   35 mins ago
     dev-1     aws (eu-west-1)   A10:24GB:1   $1.25   pulling   35 mins ago
     dev-2     aws (eu-west-1)   A10:24GB:1   $1.25   running   35 mins ago
    --- exit code 0
    ");
    insta::assert_snapshot!(world.run(&["ps", "-v"]), @r"
     NAME      BACKEND           RESOURCES                                  INSTANCE TYPE   PRICE   STATUS    SUBMITTED     ERROR
     train-1   aws (eu-west-1)   cpu=8 mem=64GB disk=200GB gpu=A10:24GB:1   g-8-a10         $1.25   running   35 mins ago
     svc-1     aws (eu-west-1)   cpu=8 mem=64GB disk=200GB gpu=A10:24GB:1   g-8-a10         $1.25   running   35 mins ago
     dev-1     aws (eu-west-1)   cpu=8 mem=64GB disk=200GB gpu=A10:24GB:1   g-8-a10         $1.25   pulling   35 mins ago
     dev-2     aws (eu-west-1)   cpu=8 mem=64GB disk=200GB gpu=A10:24GB:1   g-8-a10         $1.25   running   35 mins ago
    --- exit code 0
    ");
    assert_eq!(
        world.server.bodies("/api/runs/list")[0],
        recorded("running_ps")[0]["request"]
    );
}

#[test]
fn ps_fits_a_narrow_terminal() {
    let world = World::new().wide(80);
    world.server.play(&recorded("running_ps"));
    let screen = world.run(&["ps"]);
    assert!(
        screen.out.lines().all(|line| line.chars().count() <= 80),
        "{}",
        screen.out
    );
    insta::assert_snapshot!(screen, @r"
     NAME      BACKEND           GPU          PRICE   STATUS    SUBMITTED
     train-1   aws (eu-west-1)   A10:24GB:1   $1.25   running   35 mins ago
     svc-1     aws (eu-west-1)   A10:24GB:1   $1.25   running   35 mins ago
     dev-1     aws (eu-west-1)   A10:24GB:1   $1.25   pulling   35 mins ago
     dev-2     aws (eu-west-1)   A10:24GB:1   $1.25   running   35 mins ago
    --- exit code 0
    ");
}

#[test]
fn ps_without_active_runs_shows_the_last_one() {
    let world = World::new();
    world.server.play(&recorded("ps_empty"));
    let screen = world.run(&["ps"]);
    assert_eq!(screen.code, 0, "{screen}");
    let asked: Vec<Value> = recorded("ps_empty")
        .into_iter()
        .map(|exchange| exchange["request"].clone())
        .collect();
    assert_eq!(world.server.bodies("/api/runs/list"), asked);
}

#[test]
fn json_is_one_document_and_nothing_else() {
    let world = World::new();
    world
        .server
        .play(&recorded("running_ps"))
        .play(&recorded("running_fleet_list"));
    for args in [
        ["ps", "--json", ""],
        ["fleet", "list", "--json"],
        ["project", "list", "--json"],
    ] {
        let args: Vec<&str> = args.into_iter().filter(|arg| !arg.is_empty()).collect();
        let screen = world.run(&args);
        assert_eq!((screen.code, screen.err.as_str()), (0, ""));
        assert_eq!(screen.out.lines().count(), 1);
        serde_json::from_str::<Value>(&screen.out).unwrap();
        assert!(!screen.out.contains("secret-token"));
    }
    let runs: Value = serde_json::from_str(&world.run(&["ps", "--json"]).out).unwrap();
    assert_eq!(runs["runs"], recorded("running_ps")[0]["response"]);
}

#[test]
fn fleets_show_their_instances() {
    let world = World::new();
    world.server.play(&recorded("running_fleet_list"));
    insta::assert_snapshot!(world.run(&["fleet"]), @r"
     NAME            NODES   GPU          SPOT   BACKEND           PRICE   STATUS   CREATED
     gpu-fleet       1..2                                                  active   2 hours ago
        instance=0           A10:24GB:1   no     aws (eu-west-1)   $1.25   busy     1 hour ago
        instance=1           A10:24GB:1   no     aws (eu-west-1)   $1.25   idle     55 mins ago
    --- exit code 0
    ");
    assert_eq!(
        world.run(&["fleet", "-v"]).out,
        world.run(&["fleet", "list", "-v"]).out
    );
    insta::assert_snapshot!(world.run(&["fleet", "list", "-v"]), @r"
     NAME            NODES   RESOURCES                                  SPOT   BACKEND           PRICE   STATUS   CREATED       ERROR
     gpu-fleet       1..2                                                                                active   2 hours ago
        instance=0           cpu=8 mem=64GB disk=200GB gpu=A10:24GB:1   no     aws (eu-west-1)   $1.25   busy     1 hour ago
        instance=1           cpu=8 mem=64GB disk=200GB gpu=A10:24GB:1   no     aws (eu-west-1)   $1.25   idle     55 mins ago
    --- exit code 0
    ");
}

#[test]
fn offers_are_asked_for_as_the_reference_asks() {
    let world = World::new();
    world
        .server
        .on("/api/project/main/runs/get_plan", plan_with_offers());
    insta::assert_snapshot!(world.run(&["offer", "--cpu", "2"]), @r"
     #   BACKEND             RESOURCES                                   INSTANCE TYPE   PRICE
     1   local (localhost)   cpu=4 mem=16GB disk=100GB (spot)            local           $0        idle
     2   aws (eu-west-1)     cpu=4 mem=16GB disk=100GB gpu=A100:80GB:1   p4d.24xlarge    $1.5075
     3   ssh (remote)        cpu=4 mem=16GB disk=100GB gpu=A100:80GB:1   host-1          $12.5     no quota
         ...
     Shown 3 of 7 offers, $31.2 max
    --- exit code 0
    ");
    let mut asked = world
        .server
        .bodies("/api/project/main/runs/get_plan")
        .remove(0);
    let mut expected = recorded("offer_json")[0]["request"].clone();
    // Both are null there and absent in older clients.
    for key in ["nodes", "groups"] {
        asked["run_spec"]["configuration"]
            .as_object_mut()
            .unwrap()
            .remove(key);
        expected["run_spec"]["configuration"]
            .as_object_mut()
            .unwrap()
            .remove(key);
    }
    assert_eq!(asked, expected);
    let screen = World::new().wide(80);
    screen
        .server
        .on("/api/project/main/runs/get_plan", plan_with_offers());
    insta::assert_snapshot!(screen.run(&["offer"]), @r"
     #   BACKEND             RESOURCES          INSTANCE TYPE   PRICE
     1   local (localhost)   cpu=4 mem=16GB     local           $0        idle
                             disk=100GB
                             (spot)
     2   aws (eu-west-1)     cpu=4 mem=16GB     p4d.24xlarge    $1.5075
                             disk=100GB
                             gpu=A100:80GB:1
     3   ssh (remote)        cpu=4 mem=16GB     host-1          $12.5     no quota
                             disk=100GB
                             gpu=A100:80GB:1
         ...
     Shown 3 of 7 offers, $31.2 max
    --- exit code 0
    ");
}

#[test]
fn offer_filters_go_to_the_server() {
    let world = World::new();
    world
        .server
        .on("/api/project/main/runs/get_plan", plan_with_offers());
    let screen = world.run(&[
        "offer",
        "--json",
        "--gpu",
        "H100:8",
        "--spot",
        "-b",
        "aws",
        "-r",
        "eu-west-1",
        "--max-price",
        "2.5",
        "--max-offers",
        "7",
        "--unallocated",
        "--fleet",
        "other/f",
        "--retry-duration",
        "1h",
        "--idle-duration",
        "5m",
    ]);
    assert_eq!(screen.code, 0, "{screen}");
    let answer: Value = serde_json::from_str(&screen.out).unwrap();
    let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["offers", "project", "requirements", "total_offers", "user"]
    );
    assert_eq!(answer["offers"].as_array().unwrap().len(), 3);
    let asked = world
        .server
        .bodies("/api/project/main/runs/get_plan")
        .remove(0);
    assert_eq!(asked["max_offers"], 7);
    assert_eq!(asked["unallocated_resources"], true);
    let configuration = &asked["run_spec"]["configuration"];
    assert_eq!(
        configuration["resources"]["gpu"]["count"],
        json!({"min": 8, "max": 8})
    );
    assert_eq!(configuration["spot_policy"], "spot");
    assert_eq!(configuration["backends"], json!(["aws"]));
    assert_eq!(configuration["regions"], json!(["eu-west-1"]));
    assert_eq!(configuration["max_price"], 2.5);
    assert_eq!(
        configuration["fleets"],
        json!([{"project": "other", "name": "f"}])
    );
    assert_eq!(
        configuration["retry"],
        json!({"on_events": null, "duration": 3600})
    );
    assert_eq!(configuration["idle_duration"], 300);
}

#[test]
fn grouped_offers() {
    let world = World::new();
    world.server.on("/api/project/main/gpus/list", json!({"gpus": [{
        "name": "A100", "memory_mib": 81920, "vendor": "nvidia", "availability": ["available"],
        "spot": ["spot", "on-demand"], "count": {"min": 1, "max": 8}, "price": {"min": 1.1, "max": 3.2},
        "backend": "aws", "region": "eu-west-1",
    }]}));
    insta::assert_snapshot!(world.run(&["offer", "--group-by", "gpu,backend,region"]), @r"
     #   GPU              SPOT              $/GPU        BACKEND
     1   A100:80GB:1..8   spot, on-demand   $1.1..$3.2   aws (eu-west-1)
    --- exit code 0
    ");
    assert_eq!(
        world.server.bodies("/api/project/main/gpus/list")[0]["group_by"],
        json!(["backend", "region"])
    );
    insta::assert_snapshot!(world.run(&["offer", "--group-by", "region"]), @r"
    --- standard error
    error: --group-by needs gpu, such as --group-by gpu,backend
    --- exit code 2
    ");
    let screen = world.run(&["offer", "--group-by", "gpu", "--json"]);
    serde_json::from_str::<Value>(&screen.out).unwrap();
}

#[test]
fn no_offers_is_no_error() {
    let world = World::new();
    world.server.play(&recorded("offer"));
    insta::assert_snapshot!(world.run(&["offer"]), @r"
    --- standard error
    No offers match. `dstack backend list` shows which backends the server has.
    --- exit code 0
    ");
}

#[test]
fn logs_come_page_by_page_as_they_were_written() {
    let world = World::new();
    world.server.play(&recorded("running_logs_paged"));
    insta::assert_snapshot!(world.run(&["logs", "done-1"]), @r"
    line 0
    line 1
    line 1000
    line 1001
    line 2000
    line 2001
    --- exit code 0
    ");
    let asked: Vec<Value> = recorded("running_logs_paged")
        .into_iter()
        .filter(|exchange| exchange["path"].as_str().unwrap().ends_with("logs/poll"))
        .map(|exchange| exchange["request"].clone())
        .collect();
    assert_eq!(world.server.bodies("/api/project/main/logs/poll"), asked);
}

#[test]
fn stop_and_delete_ask_first() {
    let world = World::new().typing("no\n");
    world
        .server
        .play(&recorded("running_stop_abort"))
        .play(&recorded("fleet_delete"));
    insta::assert_snapshot!(world.run(&["stop", "-x", "train-1"]), @r"
    Are you sure you want to abort the run train-1? [y/n]: Exiting...
    --- exit code 0
    ");
    assert!(
        !world
            .server
            .paths()
            .iter()
            .any(|path| path.ends_with("runs/stop"))
    );
    insta::assert_snapshot!(world.run(&["fleet", "delete", "-y", "-i", "7", "fleet-1"]), @r"
    --- standard error
    fleet fleet-1 has no instance 7; `dstack fleet get fleet-1` shows those it has
    --- exit code 1
    ");
    let screen = world.run(&["stop", "-x", "-y", "train-1"]);
    assert_eq!((screen.code, screen.out.as_str()), (0, "Aborted\n"));
}

#[test]
fn projects_are_listed_without_tokens() {
    insta::assert_snapshot!(World::new().run(&["project", "list"]), @r"
     PROJECT   URL                      DEFAULT
     main      http://SERVER   ✓
    --- exit code 0
    ");
}
