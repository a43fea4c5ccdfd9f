//! Tenstorrent devices as `tt-smi` tells its chips.
//!
//! A board may carry two chips of which only one is on the bus. Such a board is one device with the memory of both.

use serde::Deserialize;

use super::Gpu;

/// Image with the tool, for machines without it.
pub(super) const IMAGE: &str = "dstackai/tt-smi:latest";
pub(super) const ARGUMENTS: [&str; 1] = ["-s"];

const LOCAL: &str = " L";
const REMOTE: &str = " R";
const NO_BUS: &str = "N/A";

#[derive(Deserialize)]
struct Snapshot {
    device_info: Vec<Chip>,
}

#[derive(Deserialize)]
struct Chip {
    board_info: Board,
}

#[derive(Deserialize)]
struct Board {
    board_type: String,
    board_id: String,
    #[serde(default)]
    bus_id: String,
}

/// Kind of chips, by how several of one board are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Wormhole,
    Blackhole,
}

/// Name of the model, memory of one chip in MiB (0 if the model is not known), family.
fn model(board_type: &str) -> (&str, u64, Family) {
    let is = |prefix| board_type.starts_with(prefix);
    match board_type {
        "bh-scrappy" | "p100" | "p100a" => ("p100a", 28_672, Family::Blackhole),
        "tt-galaxy-bh" => (board_type, 32_768, Family::Blackhole),
        _ if is("p150") => ("p150", 32_768, Family::Blackhole),
        _ if is("p300") => ("p300", 32_768, Family::Blackhole),
        _ if is("n150") || is("n300") || is("tt-galaxy-wh") => {
            (board_type, 12_288, Family::Wormhole)
        }
        _ => (board_type, 0, Family::Wormhole),
    }
}

/// A device in the making.
struct Device {
    board_id: String,
    name: String,
    memory_mib: u64,
}

/// Reads `tt-smi -s`. Numbers follow the order in which chips on the bus were found.
pub(super) fn devices(output: &str, driver: &str) -> Result<Vec<Gpu>, serde_json::Error> {
    // The tool may report its progress before the document.
    let start = output.find('{').unwrap_or_default();
    let snapshot: Snapshot = serde_json::from_str(output.get(start..).unwrap_or_default())?;
    let boards: Vec<Board> = snapshot
        .device_info
        .into_iter()
        .map(|chip| chip.board_info)
        .collect();
    let mut found: Vec<Device> = Vec::new();
    for board in &boards {
        if let Some(name) = board.board_type.strip_suffix(LOCAL) {
            push(&mut found, board, name);
        }
    }
    for board in &boards {
        if let Some(name) = board.board_type.strip_suffix(REMOTE) {
            add_memory(&mut found, board, name);
        } else if !board.board_type.ends_with(LOCAL) {
            let (_, _, family) = model(&board.board_type);
            let is_known = found.iter().any(|device| device.board_id == board.board_id);
            let is_remote = match family {
                Family::Wormhole => is_known,
                Family::Blackhole => board.bus_id == NO_BUS,
            };
            if is_remote {
                add_memory(&mut found, board, &board.board_type);
            } else {
                push(&mut found, board, &board.board_type);
            }
        }
    }
    Ok(found
        .into_iter()
        .enumerate()
        .map(|(index, device)| Gpu {
            id: index.to_string(),
            name: device.name,
            memory_mib: device.memory_mib,
            driver: driver.to_owned(),
        })
        .collect())
}

fn push(found: &mut Vec<Device>, board: &Board, board_type: &str) {
    let (name, memory_mib, _) = model(board_type);
    if memory_mib == 0 {
        tracing::warn!(board_type, "the memory of this board is not known");
    }
    found.push(Device {
        board_id: board.board_id.clone(),
        name: name.to_owned(),
        memory_mib,
    });
}

fn add_memory(found: &mut [Device], board: &Board, board_type: &str) {
    let (_, memory_mib, _) = model(board_type);
    match found.iter_mut().find(|d| d.board_id == board.board_id) {
        Some(device) => device.memory_mib += memory_mib,
        None => tracing::warn!(board.board_id, "a remote chip has no board on the bus"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(chips: &[(&str, &str, &str)]) -> Vec<(String, String, u64)> {
        let chips: Vec<_> = chips
            .iter()
            .map(|(kind, board, bus)| {
                json!({"board_info": {"board_type": kind, "board_id": board, "bus_id": bus}})
            })
            .collect();
        devices(&json!({ "device_info": chips }).to_string(), "2.0.0")
            .unwrap()
            .into_iter()
            .map(|gpu| (gpu.id, gpu.name, gpu.memory_mib))
            .collect()
    }

    fn device(id: &str, name: &str, memory: u64) -> (String, String, u64) {
        (id.to_owned(), name.to_owned(), memory)
    }

    #[test]
    fn a_snapshot_of_two_boards_with_two_chips_each_is_two_devices() {
        let text = include_str!("../../tests/fixtures/tt-smi-n300.json");
        let found = devices(text, "1.34").unwrap();
        let told: Vec<_> = found
            .iter()
            .map(|gpu| {
                (
                    gpu.id.as_str(),
                    gpu.name.as_str(),
                    gpu.memory_mib,
                    gpu.driver.as_str(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [("0", "n300", 24_576, "1.34"), ("1", "n300", 24_576, "1.34")]
        );
    }

    #[test]
    fn chips_become_devices_by_suffix_board_and_family() {
        // A remote chip told before its local one.
        assert_eq!(
            read(&[("n300 R", "b", "N/A"), ("n300 L", "b", "0000:01:00.0")]),
            [device("0", "n300", 24_576)]
        );
        assert_eq!(
            read(&[("n150", "a", "1"), ("n150", "b", "2"), ("n150", "a", "3")]),
            [device("0", "n150", 24_576), device("1", "n150", 12_288)]
        );
        assert_eq!(
            read(&[
                ("p150b", "a", "1"),
                ("p150b", "a", "2"),
                ("p300c", "c", "3"),
                ("p300c", "c", "N/A")
            ]),
            [
                device("0", "p150", 32_768),
                device("1", "p150", 32_768),
                device("2", "p300", 65_536)
            ]
        );
        assert_eq!(
            read(&[
                ("p100", "a", "1"),
                ("bh-scrappy", "b", "2"),
                ("tt-galaxy-wh L", "c", "3")
            ]),
            [
                device("0", "tt-galaxy-wh", 12_288),
                device("1", "p100a", 28_672),
                device("2", "p100a", 28_672)
            ]
        );
        assert_eq!(read(&[("n300 R", "lost", "N/A")]), []);
        assert_eq!(read(&[("x1", "a", "1")]), [device("0", "x1", 0)]);
        assert!(devices("no devices", "").is_err());
    }
}
