//! Processor families by any of their names.

use dstack_backend_types::{BackendError, CpuArchitecture};

/// Family of a free-form word such as `x86_64`, `AMD64`, `aarch64`. Only 64 bit; nothing given means x86.
///
/// # Errors
/// `invalid` for 32-bit and other families.
pub fn normalize_arch(word: Option<&str>) -> Result<CpuArchitecture, BackendError> {
    let lower = word.unwrap_or_default().to_ascii_lowercase();
    if lower.contains("32") || lower == "i386" || lower == "i686" {
        return Err(BackendError::invalid(format!(
            "32-bit processors are not supported: {lower}"
        )));
    }
    if lower.is_empty() || lower.starts_with("x86") || lower.starts_with("amd") {
        Ok(CpuArchitecture::X86)
    } else if lower.starts_with("arm") || lower.starts_with("aarch") {
        Ok(CpuArchitecture::Arm)
    } else {
        Err(BackendError::invalid(format!(
            "unknown processor family {lower:?}, expected x86_64 or aarch64"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::normalize_arch;
    use crate::vectors::rows;

    #[test]
    fn any_name_of_a_family_will_do() {
        for row in rows("normalize-arch") {
            let arch = normalize_arch(row["input"].as_str())
                .ok()
                .map(|arch| arch.download_name());
            assert_eq!(arch, row["output"].as_str(), "{row}");
        }
    }
}
