//! What is known of accelerators beyond their names.

use dstack_backend_types::AcceleratorVendor;
use dstack_backend_types::gpus::{self, KnownGpu};

/// A reported size that is off by less than this part of a known size means the known one.
const TOLERANCE: f64 = 0.07;

/// Memory of one accelerator in GiB, from what a driver or a provider reports in MiB, which is mostly a little less than
/// what the maker says. An unknown size is rounded.
pub fn correct_memory_gib(name: &str, reported_mib: f64) -> f64 {
    let reported = reported_mib / 1024.0;
    let known = gpus::KNOWN_GPUS
        .iter()
        .filter(|gpu| gpu.name.eq_ignore_ascii_case(name))
        .flat_map(|gpu| gpu.memory_gib.iter().copied().map(f64::from));
    let nearest = known.min_by(|a, b| (a - reported).abs().total_cmp(&(b - reported).abs()));
    match nearest {
        Some(size) if (size - reported).abs() / size < TOLERANCE => size,
        _ => reported.round_ties_even(),
    }
}

/// Whether a model is an accelerator with an ARM processor in one package, such as GH200.
pub fn is_superchip(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["gb", "gh"].iter().any(|start| {
        lower
            .strip_prefix(start)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// The known model that a provider's description names: `NVIDIA A100 80GB PCIe` names A100, `Quadro RTX 6000 (24 GB)` RTX6000.
/// Blanks, signs and case do not matter; of several models the one with the longest name is meant.
pub(crate) fn model_in(description: &str, vendor: AcceleratorVendor) -> Option<&'static KnownGpu> {
    let plain = |text: &str| -> String {
        let letters = text.chars().filter(char::is_ascii_alphanumeric);
        letters.map(|c| c.to_ascii_uppercase()).collect()
    };
    let text = plain(description);
    gpus::KNOWN_GPUS
        .iter()
        .filter(|gpu| gpu.vendor == vendor && text.contains(&plain(gpu.name)))
        .max_by_key(|gpu| gpu.name.len())
}

#[cfg(test)]
mod tests {
    use super::{correct_memory_gib, is_superchip, model_in};
    use dstack_backend_types::AcceleratorVendor::{Amd, Nvidia};

    #[test]
    fn descriptions_name_models() {
        for (text, model) in [
            ("A10 (24 GB PCIe)", "A10"),
            ("NVIDIA A100 80GB PCIe", "A100"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX6000Ada"),
            ("Quadro RTX 6000 (24 GB)", "RTX6000"),
            ("NVIDIA RTX A6000", "A6000"),
            ("1x NVIDIA Tesla V100 16GB", "V100"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000"),
            ("NVIDIA H100 NVL", "H100NVL"),
            ("NVIDIA_L40S", "L40S"),
            ("GB200", "GB200"),
        ] {
            assert_eq!(
                model_in(text, Nvidia).map(|gpu| gpu.name),
                Some(model),
                "{text}"
            );
        }
        assert_eq!(
            model_in("AMD Instinct MI300X OAM", Amd).unwrap().name,
            "MI300X"
        );
        assert_eq!(model_in("AMD Instinct MI300X OAM", Nvidia), None);
    }

    #[test]
    fn reported_memory_is_corrected_where_the_model_is_known() {
        assert_eq!(correct_memory_gib("A100", 81_559.0), 80.0);
        assert_eq!(correct_memory_gib("A100", 40_536.0), 40.0);
        assert_eq!(correct_memory_gib("H100", 95_830.0), 94.0, "too far off");
        assert_eq!(correct_memory_gib("new", 23_028.0), 22.0);
    }

    #[test]
    fn superchips_are_told_by_their_name() {
        assert!(
            ["GH200", "gb10", "GB200"]
                .iter()
                .all(|name| is_superchip(name))
        );
        assert!(
            ["H100", "GHOST", "B200", ""]
                .iter()
                .all(|name| !is_superchip(name))
        );
    }
}
