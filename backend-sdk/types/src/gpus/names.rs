//! Model names from what the makers' tools print.

use std::borrow::Cow;

/// Words of NVIDIA's product names that are not part of the model.
const NVIDIA_NOISE: &[&str] = &["NVIDIA", "Tesla", "Quadro", "GeForce", "Generation"];

/// Model from the name `nvidia-smi` prints: `NVIDIA A100-SXM4-80GB` is `A100`, `NVIDIA RTX 6000 Ada Generation` is
/// `RTX6000Ada`.
pub fn nvidia_model(printed: &str) -> String {
    let mut words: Vec<&str> = printed
        .split_whitespace()
        .filter(|word| !NVIDIA_NOISE.contains(word))
        // What follows a hyphen is form factor and memory.
        .filter_map(|word| word.split('-').next())
        .filter(|word| !is_memory(word))
        .collect();
    // Workstation cards of the A series are known without the prefix.
    if words.first() == Some(&"RTX") && words.get(1).is_some_and(|model| is_numbered(model, 'A')) {
        words.remove(0);
    }
    words.concat()
}

fn is_memory(word: &str) -> bool {
    let digits = word.strip_suffix("GB").or_else(|| word.strip_prefix("HBM"));
    digits.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == 'e'))
}

fn is_numbered(word: &str, letter: char) -> bool {
    word.strip_prefix(letter)
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Model from AMD's market name: `AMD Instinct MI325X VF` is `MI325X`. Names without an Instinct number stay as they are.
pub fn amd_model(printed: &str) -> Cow<'_, str> {
    let model = printed
        .split(|c: char| !c.is_ascii_alphanumeric())
        .find(|word| {
            word.strip_prefix("MI")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        });
    Cow::Borrowed(model.unwrap_or(printed))
}

/// Model from Intel's card name: `HL-225B` is `Gaudi2`. Unknown cards stay as they are.
pub fn intel_model(printed: &str) -> Cow<'_, str> {
    for (card, model) in [
        ("HL-205", "Gaudi"),
        ("HL-225", "Gaudi2"),
        ("HL-325", "Gaudi3"),
    ] {
        if printed.starts_with(card) {
            return Cow::Borrowed(model);
        }
    }
    Cow::Borrowed(printed)
}
