//! Reads what the vendors' tools print.

use super::Gpu;

/// `nvidia-smi --query-gpu=name,memory.total,uuid,driver_version --format=csv,noheader,nounits`
pub(super) fn nvidia_smi(output: &str) -> Vec<Gpu> {
    rows(output)
        .filter_map(|fields| match fields.as_slice() {
            [name, memory, uuid, driver] => Some(Gpu {
                id: (*uuid).to_owned(),
                name: (*name).to_owned(),
                memory_mib: memory.parse().ok()?,
                driver: driver_version(driver),
            }),
            _ => None,
        })
        .collect()
}

/// `hl-smi --query-aip=name,memory.total,index --format=csv,noheader,nounits`
pub(super) fn hl_smi(output: &str) -> Vec<Gpu> {
    rows(output)
        .filter_map(|fields| match fields.as_slice() {
            [name, memory, index] => Some(Gpu {
                id: (*index).to_owned(),
                name: (*name).to_owned(),
                memory_mib: memory.parse().ok()?,
                driver: String::new(),
            }),
            _ => None,
        })
        .collect()
}

fn rows(output: &str) -> impl Iterator<Item = Vec<&str>> {
    output
        .lines()
        .map(|line| line.split(',').map(str::trim).collect())
}

/// The version, or nothing if the tool printed a placeholder.
pub(super) fn driver_version(text: &str) -> String {
    let word = text.trim_matches(['[', ']']).to_ascii_uppercase();
    if ["N/A", "UNKNOWN", "NOT SUPPORTED", "NOT AVAILABLE"].contains(&word.as_str()) {
        String::new()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidia_smi_lines_become_gpus() {
        let gpus = nvidia_smi(include_str!("../../tests/fixtures/nvidia-smi.csv"));
        assert_eq!(gpus.len(), 2);
        assert_eq!(gpus[0].id, "GPU-2b79666e-d81f-f3f8-fd47-9903f118c3f5");
        assert_eq!(
            (gpus[0].memory_mib, gpus[0].driver.as_str()),
            (81559, "570.86.15")
        );
        assert_eq!(
            (gpus[1].name.as_str(), gpus[1].driver.as_str()),
            ("Tesla T4", "")
        );
        assert!(nvidia_smi("No devices were found\n").is_empty());
    }

    #[test]
    fn hl_smi_lines_become_gpus() {
        let gpus = hl_smi(include_str!("../../tests/fixtures/hl-smi.csv"));
        let told: Vec<_> = gpus
            .iter()
            .map(|gpu| (gpu.id.as_str(), gpu.name.as_str(), gpu.memory_mib))
            .collect();
        assert_eq!(told, [("0", "HL-225", 98304), ("1", "HL-225", 98304)]);
        assert!(hl_smi("").is_empty());
    }

    #[test]
    fn placeholders_are_no_versions() {
        for text in [
            "N/A",
            "[N/A]",
            "unknown",
            "[Unknown]",
            "[Not Supported]",
            "[NOT AVAILABLE]",
        ] {
            assert_eq!(driver_version(text), "", "{text}");
        }
        assert_eq!(driver_version("570.86.15"), "570.86.15");
    }
}
