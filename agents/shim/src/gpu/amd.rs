//! AMD GPUs as `amd-smi` tells them.
//!
//! Versions differ: the list stands alone or under `gpu_data`, and the driver's version has two names.

use serde::Deserialize;

use super::Gpu;
use super::parse::driver_version;

/// Image with the tool, for machines without it.
pub(super) const IMAGE: &str = "dstackai/amd-smi:latest";
pub(super) const ARGUMENTS: [&str; 6] =
    ["static", "--json", "--asic", "--vram", "--bus", "--driver"];

#[derive(Deserialize)]
#[serde(untagged)]
enum Output {
    Bare(Vec<Card>),
    Wrapped { gpu_data: Vec<Card> },
}

#[derive(Deserialize)]
struct Card {
    asic: Asic,
    vram: Vram,
    bus: Bus,
    #[serde(default)]
    driver: Driver,
}

#[derive(Deserialize)]
struct Asic {
    market_name: String,
}

#[derive(Deserialize)]
struct Vram {
    size: Size,
}

#[derive(Deserialize)]
struct Size {
    value: u64,
}

#[derive(Deserialize)]
struct Bus {
    bdf: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Driver {
    version: Option<String>,
    driver_version: Option<String>,
}

/// Reads `amd-smi static --json …`. A card without a render node cannot be handed to a container and is left out.
pub(super) fn gpus(
    output: &str,
    render_node: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Gpu>, serde_json::Error> {
    // Warnings of the tool may stand before the document.
    let start = output.find(['[', '{']).unwrap_or_default();
    let (Output::Bare(cards) | Output::Wrapped { gpu_data: cards }) =
        serde_json::from_str(output.get(start..).unwrap_or_default())?;
    Ok(cards
        .into_iter()
        .filter_map(|card| {
            let Some(id) = render_node(&card.bus.bdf) else {
                tracing::warn!(bdf = card.bus.bdf, "a card has no render node");
                return None;
            };
            let driver = card.driver.version.or(card.driver.driver_version);
            Some(Gpu {
                id,
                name: card.asic.market_name,
                memory_mib: card.vram.size.value,
                driver: driver_version(driver.as_deref().unwrap_or_default()),
            })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> Vec<Gpu> {
        gpus(output, |bdf| {
            let number = match bdf {
                "0000:05:00.0" => 128,
                "0000:26:00.0" => 136,
                _ => return None,
            };
            Some(format!("/dev/dri/renderD{number}"))
        })
        .unwrap()
    }

    #[test]
    fn both_forms_of_the_list_are_read() {
        let old = read(include_str!("../../tests/fixtures/amd-smi-6.2.json"));
        let names: Vec<_> = old.iter().map(|gpu| gpu.name.as_str()).collect();
        assert_eq!(names, ["AMD Instinct MI300X OAM"; 2]);
        assert_eq!(old[0].id, "/dev/dri/renderD128");
        assert_eq!(old[1].id, "/dev/dri/renderD136");
        assert_eq!(
            (old[0].memory_mib, old[0].driver.as_str()),
            (196_592, "6.8.5")
        );
        let new = read(include_str!("../../tests/fixtures/amd-smi-7.0.json"));
        // The second card has no render node, the third an unknown driver.
        assert_eq!(new.len(), 2);
        assert_eq!(
            (new[0].memory_mib, new[0].driver.as_str()),
            (65_536, "6.14.14")
        );
        assert_eq!(
            (new[1].id.as_str(), new[1].driver.as_str()),
            ("/dev/dri/renderD136", "")
        );
    }

    #[test]
    fn a_document_without_a_driver_is_enough() {
        let output = r#"WARNING: user is not in the group "render"
            [{"gpu": 0, "asic": {"market_name": "M"}, "bus": {"bdf": "0000:05:00.0"},
              "vram": {"type": "GDDR6", "size": {"value": 24560, "unit": "MB"}}}]"#;
        // The brackets of a warning would be taken for the document's: there are none in it.
        assert_eq!(read(output)[0].memory_mib, 24_560);
        assert!(gpus("", |_| None).is_err());
        assert!(gpus("{}", |_| None).is_err());
        assert!(gpus("[{\"asic\": 1}]", |_| None).is_err());
    }
}
