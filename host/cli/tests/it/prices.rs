//! Prices of clouds: without a server, and from files.

use serde_json::{Value, json};

use crate::world::World;

/// A machine on which nothing was ever configured.
fn fresh() -> World {
    let world = World::new();
    world.write("home/.dstack/config.yml", "projects: []\n");
    world
}

const HEADER: &str = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,provider_data\n";

fn with_files() -> World {
    let world = fresh();
    world.write(
        "work/prices/aws.csv",
        &format!("{HEADER}p4,north,9.5,8,64.0,1,A100,80.0,False,,nvidia,,x86,{{}}\nm5,north,0.1,2,8.0,0,,,True,,,new,x86,{{}}\n"),
    );
    world.write(
        "work/prices/runpod.csv",
        &format!("{HEADER}A100,EU-1,1.5,8,64.0,1,A100,80.0,False,100.0,nvidia,,x86,\"{{\"\"a\"\": 1}}\"\n"),
    );
    world
}

fn json_of(world: &World, args: &[&str]) -> Value {
    let screen = world.run(args);
    assert_eq!(screen.code, 0, "{screen}");
    serde_json::from_str(&screen.out).unwrap()
}

#[test]
fn a_fresh_machine_shows_real_prices() {
    insta::assert_snapshot!(
        fresh().wide(100).run(&["offer", "--gpu", "A100:80GB:1", "--max-offers", "3"]),
        @r"
    No server is configured yet; these are prices of the catalog:
     #   BACKEND            RESOURCES                                    INSTANCE TYPE           PRICE
     1   verda (FIN-01)     cpu=22 mem=120GB disk=100GB                  1A100.22V               $1.29
                            gpu=A100:80GB:1
     2   verda (FIN-03)     cpu=22 mem=120GB disk=100GB                  1A100.22V               $1.29
                            gpu=A100:80GB:1
     3   runpod (AP-IN-1)   cpu=8 mem=117GB disk=100GB gpu=A100:80GB:1   NVIDIA A100 80GB PCIe   $1.39
     Shown 3 of 50, $1.39 max; prices of 2026 (runpod, verda)
    --- exit code 0
    "
    );
}

#[test]
fn a_fresh_machine_tells_scripts_too() {
    let found = json_of(
        &fresh(),
        &["offer", "--json", "--gpu", "H100:8", "--max-offers", "2"],
    );
    assert_eq!(found["offers"], json!([]));
    assert_eq!(found["total_offers"], 0);
    let catalog = &found["catalog"];
    assert_eq!(catalog["offers"].as_array().unwrap().len(), 2);
    assert!(catalog["total_offers"].as_u64().unwrap() > 2, "{catalog}");
    let first = &catalog["offers"][0];
    assert_eq!(
        first["instance"]["resources"]["gpus"]
            .as_array()
            .unwrap()
            .len(),
        8
    );
    assert_eq!(
        first["instance"]["resources"]["spot"], false,
        "on-demand unless asked"
    );
    let groups = json_of(
        &fresh(),
        &[
            "offer",
            "--json",
            "--gpu",
            "1..",
            "--group-by",
            "gpu,backend",
        ],
    );
    let first = &groups["catalog"]["gpus"][0];
    assert!(
        first["backend"].is_string() && first["price"]["min"].is_number(),
        "{first}"
    );
}

#[test]
fn conditions_are_explained() {
    let found = json_of(
        &fresh(),
        &[
            "offer",
            "--json",
            "--explain",
            "--gpu",
            "H100",
            "--max-price",
            "0.01",
            "-b",
            "lambda",
        ],
    );
    let explained = found["explain"].as_array().unwrap();
    let offers = |condition: Value| {
        let one = explained.iter().find(|one| one["condition"] == condition);
        one.unwrap()["offers"].as_u64().unwrap()
    };
    assert_eq!(offers(Value::Null), 0);
    assert!(offers(json!("--max-price")) > 0);
    assert_eq!(offers(json!("--backend")), 0);
    assert!(explained.iter().all(|one| one["condition"] != "--cpu"));
    let screen = fresh().run(&["offer", "--explain", "--gpu", "H100", "--max-price", "0.01"]);
    assert!(screen.err.starts_with("No offers match."), "{screen}");
    insta::assert_snapshot!(screen.out.trim_start(), @r"
    CONDITIONS                       OFFERS
     with all conditions              0
     without --gpu                    26
     without --max-price              103
     without on-demand or spot only   0
    ");
}

#[test]
fn a_query_prints_rows_by_price() {
    let world = with_files();
    let found = json_of(
        &world,
        &["catalog", "query", "--catalog", "prices", "--json"],
    );
    let rows = found.as_array().unwrap();
    let names: Vec<&Value> = rows.iter().map(|row| &row["instance_name"]).collect();
    assert_eq!(names, ["m5", "A100", "p4"]);
    let mut keys: Vec<&String> = rows[1].as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "cpu",
            "cpu_arch",
            "disk_size",
            "flags",
            "gpu_count",
            "gpu_memory",
            "gpu_name",
            "gpu_vendor",
            "instance_name",
            "location",
            "memory",
            "price",
            "provider",
            "provider_data",
            "spot"
        ]
    );
    assert_eq!(rows[1]["provider"], "runpod");
    assert_eq!(rows[1]["provider_data"], json!({"a": 1}));
    let filter =
        r#"{"gpu_name": ["a100"], "max_price": 9.5, "provider": "AWS", "allowed_flags": []}"#;
    let found = json_of(
        &world,
        &[
            "catalog",
            "query",
            "--catalog",
            "prices",
            "--filter",
            filter,
            "--json",
        ],
    );
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!(found[0]["instance_name"], "p4");
    let screen = world.run(&[
        "catalog",
        "query",
        "--catalog",
        "prices",
        "--filter",
        "{\"min_cpu\": 1}",
        "--max-items",
        "2",
    ]);
    // The last line has the times of the files.
    let (table, last) = screen.out.split_once(" Shown ").unwrap();
    insta::assert_snapshot!(table.trim_start(), @r"
    PROVIDER        RESOURCES                                   INSTANCE TYPE   PRICE
     aws (north)     cpu=2 mem=8GB (spot)                        m5              $0.1    new
     runpod (EU-1)   cpu=8 mem=64GB disk=100GB gpu=A100:80GB:1   A100            $1.5
    ");
    assert!(last.starts_with("2 of 3, $9.5 max; prices of 20"), "{last}");
}

#[test]
fn a_query_that_makes_no_sense_is_refused() {
    let world = with_files();
    for (args, code) in [
        (vec!["--filter", "{\"min_cpus\": 1}"], 2),
        (vec!["--filter", "nonsense"], 2),
        (vec!["--filter", "{\"provider\": \"acme\"}"], 1),
        (vec!["--catalog", "nowhere"], 1),
        (vec!["--catalog", "ftp://prices"], 2),
    ] {
        let all = [vec!["catalog", "query", "--json"], args].concat();
        let screen = world.run(&all);
        assert_eq!((screen.code, screen.out.as_str()), (code, ""), "{screen}");
    }
}

#[test]
fn the_state_of_the_catalog_has_dates() {
    let status = json_of(&fresh(), &["catalog", "status", "--json"]);
    let aws = status
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["provider"] == "aws");
    assert_eq!(aws.unwrap()["rows"], 1762);
    assert_eq!(aws.unwrap()["as_of"], "2025-03-02");
    let world = with_files().var("DSTACK_CATALOG_SOURCES", "/nowhere");
    let screen = world.run(&["catalog", "refresh", "--local"]);
    assert!(screen.out.contains("DSTACK_CATALOG_SOURCES"), "{screen}");
}

#[test]
fn files_are_checked() {
    let world = with_files();
    let screen = world.run(&["catalog", "check", "prices/runpod.csv"]);
    assert_eq!(screen.code, 0, "{screen}");
    world.write(
        "work/acme.csv",
        &format!("{HEADER}a,r,0,2,8,0,,,False,,,,,\n"),
    );
    insta::assert_snapshot!(world.run(&["catalog", "check", "acme.csv"]), @r"
    a in r: the price is not above 0
    /person/work/acme.csv: 1 rows, 0 skipped, 1 defects
    --- exit code 1
    ");
    let screen = world.run(&["catalog", "check", "prices/aws.csv"]);
    assert!(
        screen.out.contains("m5.large is in 0 locations"),
        "{screen}"
    );
    let screen = world.run(&["catalog", "check", "prices/aws.csv", "--partial"]);
    assert_eq!(screen.code, 0, "{screen}");
    let screen = world.run(&["catalog", "collect", "acme"]);
    assert_eq!(screen.code, 2, "{screen}");
    let screen = world.run(&["catalog", "collect", "verda"]);
    assert!(screen.err.contains("VERDA_CLIENT_ID"), "{screen}");
}
