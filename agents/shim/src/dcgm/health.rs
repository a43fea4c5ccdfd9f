//! Health of the GPUs, by NVIDIA's `dcgmi`.
//!
//! The library behind it cannot be loaded into this program, which is linked statically; its command line tells the
//! same but for the numbers of errors. It needs a host engine: the machine's, the one of the settings, or one that is
//! started here on a socket of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use dstack_agent_protocol::shim::{DcgmHealth, DcgmIncident};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::args::Args;
use crate::programs;

const TOOL: &str = "dcgmi";
const HOST_ENGINE: &str = "nv-hostengine";
const SOCKET: &str = "dcgm.sock";
/// Below the 9 s that clients wait for an answer.
const LIMIT: Duration = Duration::from_secs(7);
const START_ATTEMPTS: u32 = 10;
const START_PAUSE: Duration = Duration::from_millis(500);
/// The tool's number for the group of all GPUs.
const ALL_GPUS: &str = "0";

const PASS: i64 = 0;
const WARNING: i64 = 10;
const FAILURE: i64 = 20;

/// Asks for the health of the GPUs.
#[derive(Debug)]
pub(crate) struct HealthCheck {
    tool: PathBuf,
    /// Host engine to ask; empty means the machine's.
    address: String,
    /// The host engine that was started here.
    engine: Mutex<Option<Child>>,
}

impl HealthCheck {
    /// Switches all watches on, if this machine has the tool.
    pub(crate) async fn start(args: &Args, home: &Path) -> Option<Self> {
        let tool = programs::find(TOOL)?;
        let mut health = Self {
            tool,
            address: args.dcgm_address.clone(),
            engine: Mutex::new(None),
        };
        let mut watching = health.watch_all().await;
        if watching.is_err()
            && args.dcgm_address.is_empty()
            && let Some(program) = programs::find(HOST_ENGINE)
        {
            watching = health.watch_with_own_engine(&program, home).await;
        }
        match watching {
            Ok(()) => {
                tracing::info!("the health of GPUs is watched");
                // The first check only fills the tool's memory of values.
                health.check().await;
                Some(health)
            }
            Err(reason) => {
                tracing::warn!(reason, "the health of GPUs is not watched");
                None
            }
        }
    }

    async fn watch_with_own_engine(&mut self, program: &Path, home: &Path) -> Result<(), String> {
        let socket = home.join(SOCKET);
        let mut engine = Command::new(program);
        let child = super::spawn(engine.arg("-n").arg("-d").arg(&socket))
            .map_err(|err| format!("{HOST_ENGINE}: {err}"))?;
        *self.engine.get_mut() = Some(child);
        self.address = format!("unix://{}", socket.display());
        let mut watching = Err(String::new());
        for _ in 0..START_ATTEMPTS {
            tokio::time::sleep(START_PAUSE).await;
            watching = self.watch_all().await;
            if watching.is_ok() {
                break;
            }
        }
        watching
    }

    async fn watch_all(&self) -> Result<(), String> {
        self.run(&["-s", "a"]).await.map(drop)
    }

    /// The health now; `None` if the tool does not tell.
    pub(crate) async fn check(&self) -> Option<DcgmHealth> {
        let told = self.run(&["-c", "-j"]).await.and_then(|text| {
            parse(&text).map_err(|err| format!("{TOOL} printed what is not understood: {err}"))
        });
        told.inspect_err(|reason| tracing::warn!(reason, "the health of GPUs is not known"))
            .ok()
    }

    async fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.tool);
        command.arg("health");
        if !self.address.is_empty() {
            command.args(["--host", &self.address]);
        }
        command.args(["-g", ALL_GPUS]).args(arguments);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(LIMIT, command.output())
            .await
            .map_err(|_| format!("{TOOL} does not answer"))?
            .map_err(|err| format!("{TOOL}: {err}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(text)
        } else {
            Err(format!("{TOOL}: {}: {}", output.status, text.trim()))
        }
    }

    /// Ends the host engine that was started here.
    pub(crate) async fn stop(&self) {
        if let Some(engine) = &mut *self.engine.lock().await {
            super::stop(engine).await;
        }
    }
}

#[derive(Deserialize)]
struct Report {
    body: Map<String, Value>,
}

/// A value of the report with what is below it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Node {
    value: String,
    overflow: Vec<String>,
    children: Map<String, Value>,
}

impl Node {
    fn of(value: &Value) -> Self {
        Self::deserialize(value).unwrap_or_default()
    }
}

fn parse(text: &str) -> Result<DcgmHealth, serde_json::Error> {
    let start = text.find('{').unwrap_or_default();
    let report: Report = serde_json::from_str(text.get(start..).unwrap_or_default())?;
    let mut health = DcgmHealth {
        overall_health: PASS,
        incidents: Vec::new(),
    };
    for (name, section) in &report.body {
        let section = Node::of(section);
        if name == "Overall Health" {
            health.overall_health = level(&section.value);
            continue;
        }
        for (entity, node) in &section.children {
            let errors = Node::of(node).children;
            let Some(errors) = errors.get("Errors") else {
                continue;
            };
            for (system, error) in &Node::of(errors).children {
                let error = Node::of(error);
                health.incidents.push(DcgmIncident {
                    system: system_number(system),
                    health: level(&error.value),
                    error_message: error.overflow.join(" "),
                    error_code: 0,
                    entity_group_id: entity_group(name),
                    entity_id: entity.parse().unwrap_or_default(),
                });
            }
        }
    }
    // Servers show the first one.
    health
        .incidents
        .sort_by_key(|incident| std::cmp::Reverse(incident.health));
    Ok(health)
}

fn level(word: &str) -> i64 {
    match word {
        "Healthy" => PASS,
        "Warning" => WARNING,
        _ => FAILURE,
    }
}

/// The library's number of a watched part.
fn system_number(name: &str) -> i64 {
    match name.trim_end_matches(" system") {
        "PCIe" => 0x1,
        "NVLINK" => 0x2,
        "PMU" => 0x4,
        "MCU" => 0x8,
        "Memory" => 0x10,
        "SM" => 0x20,
        "InfoROM" => 0x40,
        "Thermal" => 0x80,
        "Power" => 0x100,
        "Driver" => 0x200,
        "NvSwitch NF" => 0x400,
        "NvSwitch F" => 0x800,
        _ => 0,
    }
}

/// The library's number of a kind of entity.
fn entity_group(name: &str) -> i64 {
    match name.to_ascii_lowercase().as_str() {
        "gpu" => 1,
        "vgpu" => 2,
        "switch" => 3,
        "gpu_i" => 4,
        "gpu_ci" => 5,
        "link" => 6,
        "cpu" => 7,
        "cpu_core" => 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_becomes_incidents_worst_first() {
        let health = parse(include_str!(
            "../../tests/fixtures/dcgmi-health-warning.json"
        ))
        .unwrap();
        assert_eq!(health.overall_health, 20);
        let told: Vec<_> = health
            .incidents
            .iter()
            .map(|i| {
                (
                    i.system,
                    i.health,
                    i.entity_group_id,
                    i.entity_id,
                    i.error_message.as_str(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (0x80, 20, 1, 3, "GPU 3 is too hot."),
                (
                    0x10,
                    10,
                    1,
                    0,
                    "A DBE has been detected on GPU 0. Drain the GPU and reset it or reboot the node."
                ),
                (0x1, 10, 1, 0, "Detected 12 PCIe replays."),
            ]
        );
    }

    #[test]
    fn a_healthy_machine_has_no_incidents() {
        let health = parse(include_str!("../../tests/fixtures/dcgmi-health-ok.json")).unwrap();
        assert_eq!((health.overall_health, health.incidents.len()), (0, 0));
        assert!(parse("Error: Health watches not enabled. Please enable watches.").is_err());
        assert!(parse("").is_err());
    }
}
