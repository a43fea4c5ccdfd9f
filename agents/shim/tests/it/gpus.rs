//! GPUs of machines that the shim takes this one for: device files and tools are stand-ins.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Fake, Shim, eventually, fake, free_port, programs, task};

const IDLE: &str = "env >$task_dir/work/env; echo 1234 >$port_file.tmp; mv $port_file.tmp $port_file; exec sleep 1000";

/// `/dev` with what programs need; the caller adds what makes the machine another one.
const DEVICES: &str = "for name in null zero full urandom tty; do touch $NEW/$name; mount --bind /dev/$name $NEW/$name; done; \
    mkdir $NEW/pts; mount --rbind /dev/pts $NEW/pts; ln -s pts/ptmx $NEW/ptmx";

fn fixture(name: &str) -> String {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let path = Path::new(&root).join("tests/fixtures").join(name);
    path.display().to_string()
}

fn machine(devices: &str, scripts: &[(&str, &str)], flags: &[String]) -> (Fake, TempDir, Shim) {
    assert!(
        nix::unistd::Uid::effective().is_root(),
        "these tests need root: run them with sudo"
    );
    let fake = fake(IDLE);
    let (dir, path) = programs(scripts);
    let mut shim = Shim::new("process", &fake.runner);
    shim.machine = Some(format!("{DEVICES}; {devices}; mount --rbind $NEW /dev"));
    shim.env = vec![("PATH", path)];
    shim.flags = flags.to_vec();
    shim.launch();
    (fake, dir, shim)
}

fn gpu_task(count: i64) -> Value {
    let mut config = task("gpus");
    config["gpu"] = json!(count);
    config
}

const NVIDIA_SMI: &str = "#!/bin/sh\n\
    [ \"$1\" = --query-gpu=name,memory.total,uuid,driver_version ] || exit 9\n\
    echo 'NVIDIA H100 80GB HBM3, 81559, GPU-aaaa, 570.86.15'\n\
    echo 'NVIDIA H100 80GB HBM3, 81559, GPU-bbbb, 570.86.15'\n";

/// Serves the fixture where the shim says.
const EXPORTER: &str = r#"#!/usr/bin/env python3
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
if sys.argv[1:] == ["-v"]:
    sys.exit(0)
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert "DCGM_FI_DEV_GPU_UTIL, gauge" in open(options["-f"]).read()
host, port = options["-a"].split(":")
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        broken = os.path.exists(os.environ["BROKEN"])
        body = b"no luck" if broken else open(os.environ["METRICS"], "rb").read()
        self.send_response(503 if broken else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
HTTPServer((host, int(port)), Handler).serve_forever()
"#;

const DCGMI: &str = "#!/bin/sh\n\
    [ \"$1 $2 $3\" = 'health -g 0' ] || exit 9\n\
    case $4 in -s) exit 0 ;; -c) cat $HEALTH ;; esac\n";

#[test]
fn nvidia_gpus_are_shared_out_measured_and_watched() {
    let port = free_port();
    let broken = tempfile::tempdir().unwrap();
    let broken = broken.path().join("broken");
    let fake = fake(IDLE);
    let (_dir, path) = programs(&[
        ("nvidia-smi", NVIDIA_SMI),
        ("dcgm-exporter", EXPORTER),
        ("dcgmi", DCGMI),
    ]);
    let mut shim = Shim::new("process", &fake.runner);
    shim.machine = Some(format!(
        "{DEVICES}; touch $NEW/nvidiactl; mount --rbind $NEW /dev"
    ));
    shim.env = vec![
        ("PATH", path),
        ("METRICS", fixture("dcgm-exporter.txt")),
        ("HEALTH", fixture("dcgmi-health-warning.json")),
        ("BROKEN", broken.display().to_string()),
    ];
    shim.flags = [
        "--dcgm-exporter-http-port",
        &port,
        "--dcgm-exporter-interval",
        "1",
    ]
    .map(str::to_owned)
    .to_vec();
    shim.launch();
    assert_eq!(
        shim.call("GET /api/instance/info", None).json(),
        json!({"gpu_vendor": "nvidia", "gpu_driver_version": "570.86.15"})
    );
    let health = || shim.call("GET /api/instance/health", None).json();
    eventually("the health is told", || !health()["dcgm"].is_null());
    assert_eq!(health()["dcgm"]["overall_health"], 20);
    assert_eq!(
        health()["dcgm"]["incidents"][0]["error_message"],
        "GPU 3 is too hot."
    );

    let first = shim.submit(&gpu_task(1));
    let running = shim.task_when(&first, "running");
    assert_eq!(running["gpus_ids"], json!(["GPU-aaaa"]));
    let env = std::fs::read_to_string(shim.task_dir(&running).join("work/env")).unwrap();
    assert!(env.contains("CUDA_VISIBLE_DEVICES=GPU-aaaa\n"), "{env}");
    let metrics = || shim.call(&format!("GET /metrics/tasks/{first}"), None);
    eventually("metrics are told", || metrics().status == 200);
    let told = metrics();
    assert_eq!(told.content_type, "text/plain; charset=utf-8");
    assert!(
        told.body.contains("GPU-aaaa") && !told.body.contains("GPU-bbbb"),
        "{}",
        told.body
    );
    let unknown = shim.call("GET /metrics/tasks/none", None);
    assert_eq!(
        (unknown.status, unknown.body.as_str()),
        (404, "Task not found\n")
    );
    std::fs::write(&broken, "").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(10));
    let failed = metrics();
    assert_eq!(failed.status, 502);
    assert!(failed.body.contains("no luck"), "{}", failed.body);

    let ended = shim.task_when(&shim.submit(&gpu_task(2)), "terminated");
    assert_eq!(
        ended["termination_message"],
        "no capacity: 2 GPUs requested, 1 available"
    );
    // Found again after a restart, with its GPU.
    shim.kill();
    shim.launch();
    let rest = shim.submit(&gpu_task(-1));
    assert_eq!(
        shim.task_when(&rest, "running")["gpus_ids"],
        json!(["GPU-bbbb"])
    );
    for _ in 0..2 {
        shim.terminate(&first, "terminated_by_user", 0);
        shim.terminate(&rest, "terminated_by_user", 0);
    }
    let both = shim.submit(&gpu_task(2));
    assert_eq!(
        shim.task_when(&both, "running")["gpus_ids"],
        json!(["GPU-aaaa", "GPU-bbbb"])
    );
}

#[test]
fn amd_and_tenstorrent_and_gaudi_devices_are_listed() {
    let amd = format!(
        "#!/bin/sh\ncase \"$*\" in *--driver*) echo unknown option >&2; exit 2 ;; esac\ncat {}\n",
        fixture("amd-smi-6.2.json")
    );
    let dri = "mkdir -p $NEW/dri/by-path; touch $NEW/kfd; \
        ln -s ../renderD128 $NEW/dri/by-path/pci-0000:05:00.0-render; \
        ln -s ../renderD136 $NEW/dri/by-path/pci-0000:26:00.0-render";
    let tenstorrent = format!(
        "#!/bin/sh\n[ \"$1\" = -s ] && cat {}\n",
        fixture("tt-smi-n300.json")
    );
    let gaudi = format!("#!/bin/sh\ncat {}\n", fixture("hl-smi.csv"));
    for (devices, tool, script, vendor, ids) in [
        (
            dri,
            "amd-smi",
            &amd,
            "amd",
            ["/dev/dri/renderD128", "/dev/dri/renderD136"],
        ),
        (
            "mkdir $NEW/tenstorrent",
            "tt-smi",
            &tenstorrent,
            "tenstorrent",
            ["0", "1"],
        ),
        ("mkdir $NEW/accel", "hl-smi", &gaudi, "intel", ["0", "1"]),
    ] {
        let flags = ["--service".to_owned()];
        let (_fake, _dir, shim) = machine(devices, &[(tool, script.as_str())], &flags);
        let info = shim.call("GET /api/instance/info", None).json();
        assert_eq!(info["gpu_vendor"], vendor, "{}", shim.log());
        let all = shim.submit(&gpu_task(-1));
        assert_eq!(shim.task_when(&all, "running")["gpus_ids"], json!(ids));
        let text = std::fs::read(shim.home.path().join("host_info.json")).unwrap();
        let host: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            (&host["gpu_vendor"], &host["gpu_count"]),
            (&json!(vendor), &json!(2))
        );
    }
}

#[test]
fn accelerators_of_a_machine_with_tpus_are_not_taken_for_others() {
    let flags = ["--pjrt-device=TPU".to_owned()];
    let (_fake, _dir, shim) = machine("mkdir $NEW/accel", &[], &flags);
    assert_eq!(shim.call("GET /api/instance/info", None).json(), json!({}));
    let id = shim.submit(&gpu_task(-1));
    let running = shim.task_when(&id, "running");
    assert_eq!(running["gpus_ids"], json!([]));
    let env = std::fs::read_to_string(shim.task_dir(&running).join("work/env")).unwrap();
    assert!(env.contains("PJRT_DEVICE=TPU\n"), "{env}");
}
