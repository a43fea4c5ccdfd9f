//! What the configuration says of a partition's GPUs.

use dstack_backend_sdk::prelude::Memory;
use dstack_backend_sdk::types::{AcceleratorVendor, Gpu, gpus};

/// A model, with what Slurm does not tell about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind(Gpu);

impl Kind {
    /// Reads `[vendor:]name[:memory]`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut words: Vec<&str> = text.split(':').map(str::trim).collect();
        let vendor = match words
            .first()
            .and_then(|word| AcceleratorVendor::parse(word))
        {
            Some(vendor) if words.len() > 1 => {
                words.remove(0);
                Some(vendor)
            }
            _ => None,
        };
        let (name, memory) = match words.as_slice() {
            [name] if !name.is_empty() => (*name, None),
            [name, memory] if !name.is_empty() => (*name, Some(*memory)),
            _ => return Err(format!("{text:?} is not [vendor:]name[:memory]")),
        };
        let known = gpus::find(name);
        let memory_mib = match (memory, known.map(|known| known.memory_gib)) {
            (Some(memory), _) => Memory::parse(memory)
                .map(Memory::mib)
                .filter(|mib| *mib > 0)
                .ok_or_else(|| format!("{memory:?} is no size such as 80GB"))?,
            (None, Some([only])) => u64::from(*only) * 1024,
            (None, Some(several)) if !several.is_empty() => {
                let sizes: Vec<String> = several
                    .iter()
                    .map(|gib| format!("{name}:{gib}GB"))
                    .collect();
                return Err(format!(
                    "{name} comes with several sizes of memory: write {}",
                    sizes.join(" or ")
                ));
            }
            (None, _) => {
                return Err(format!(
                    "{name} is not known: add its memory, e.g. {name}:24GB"
                ));
            }
        };
        let vendor = vendor
            .or_else(|| gpus::vendor_by_name(name))
            .unwrap_or(AcceleratorVendor::Nvidia);
        Ok(Self(Gpu {
            name: known.map_or_else(|| name.to_owned(), |known| known.name.to_owned()),
            memory_mib,
            vendor: Some(vendor),
        }))
    }

    /// One such GPU.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.0
    }

    /// Whether Slurm's word for a sort of GPU means this model: the cluster's administrator chose it freely.
    pub(crate) fn is_called(&self, word: &str) -> bool {
        let plain = |text: &str| {
            text.chars()
                .filter(char::is_ascii_alphanumeric)
                .collect::<String>()
                .to_ascii_lowercase()
        };
        plain(word).contains(&plain(&self.0.name))
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;
    use dstack_backend_sdk::types::AcceleratorVendor;

    #[test]
    fn a_model_is_known_by_its_name() {
        let read = |text: &str| {
            let gpu = Kind::parse(text).map(|kind| kind.gpu().clone())?;
            Ok::<_, String>((gpu.name.clone(), gpu.memory_mib, gpu.vendor()))
        };
        let nvidia = AcceleratorVendor::Nvidia;
        assert_eq!(read("h100"), Ok(("H100".to_owned(), 81_920, nvidia)));
        assert_eq!(read("A100:40GB"), Ok(("A100".to_owned(), 40_960, nvidia)));
        assert_eq!(
            read("nvidia:L4:24GB"),
            Ok(("L4".to_owned(), 24_576, nvidia))
        );
        assert_eq!(
            read("amd:MI300X"),
            Ok(("MI300X".to_owned(), 196_608, AcceleratorVendor::Amd))
        );
        assert_eq!(read("Odd:7GB"), Ok(("Odd".to_owned(), 7168, nvidia)));
        for (wrong, why) in [
            ("A100", "A100:40GB or A100:80GB"),
            ("Odd", "add its memory"),
            ("", "[vendor:]name"),
            ("nvidia:", "[vendor:]name"),
            ("A100:much", "no size"),
            ("a:b:c:d", "[vendor:]name"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn administrators_call_models_as_they_like() {
        let kind = Kind::parse("A100:80GB").unwrap();
        for word in ["a100", "nvidia_a100-sxm4-80gb", "A100"] {
            assert!(kind.is_called(word), "{word}");
        }
        assert!(!kind.is_called("h100"));
    }
}
