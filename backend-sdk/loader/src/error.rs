//! Why a file is not a plugin, or why one did not open. Short: a person reads them in a table.

use dstack_backend_abi::LibraryError;

/// What inspection found wrong. Nothing of the file has run.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The file could not be opened or read.
    #[error("cannot read the file: {source}")]
    Read {
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A folder, pipe, socket or device.
    #[error("not a regular file")]
    NotRegular,
    /// Larger than [`MAX_FILE_BYTES`](crate::MAX_FILE_BYTES).
    #[error("too large: {size_bytes} bytes, at most {limit_bytes}")]
    TooLarge {
        /// What it has.
        size_bytes: u64,
        /// What it may have.
        limit_bytes: u64,
    },
    /// Not an ELF file at all.
    #[error("not an ELF file")]
    NotElf,
    /// Built for another word size or byte order.
    #[error("built for a {found} machine, this host is 64-bit little-endian")]
    Class {
        /// Such as `32-bit`.
        found: &'static str,
    },
    /// Built for another processor.
    #[error("built for {found}, this host is {host}")]
    Machine {
        /// The file's processor.
        found: String,
        /// Ours.
        host: &'static str,
    },
    /// A program, an object file or a core dump.
    #[error("an ELF file, but not a shared library")]
    NotShared,
    /// Half copied: loading it would end the process with a bus error.
    #[error(
        "truncated: {what} lies past the end of the file; copy it again, to a temporary name, then rename it"
    )]
    Truncated {
        /// The part that is missing.
        what: &'static str,
    },
    /// A shared library of some other kind.
    #[error("not a dstack backend: no manifest (section .dstack.plugin)")]
    NoManifest,
    /// The manifest does not parse or breaks a rule.
    #[error("bad manifest: {reason}")]
    BadManifest {
        /// Which rule.
        reason: String,
    },
    /// Made for another generation of the border.
    #[error("made for plugin interface {found}, this host has {host}")]
    Abi {
        /// The file's.
        found: u32,
        /// Ours.
        host: u32,
    },
}

/// Why an inspected file did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system's loader refused it.
    #[error("cannot be loaded: {reason}")]
    Load {
        /// The whole chain of the loader's reasons.
        reason: String,
    },
    /// The border differs from ours.
    #[error("incompatible interface: {reason}")]
    Incompatible {
        /// The first differences.
        reason: String,
    },
    /// What the code says of itself is not what its manifest section says.
    #[error("the manifest in the code differs from the one in the file")]
    ManifestDiffers,
    /// The plugin refused to start.
    #[error("init failed: {reason}")]
    Init {
        /// The plugin's error.
        reason: String,
    },
}

/// The whole chain of `error`, since libloading's own text lacks the reason.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(&format!(": {source}"));
        next = source.source();
    }
    text
}

/// One line for what abi_stable says in up to 700; the whole goes to the debug log.
pub(crate) fn short(error: &LibraryError) -> OpenError {
    let whole = error.to_string();
    tracing::debug!(error = %whole, "plugin refused by the load check");
    let reason = match error {
        LibraryError::InvalidAbiHeader(header) => format!(
            "built with abi_stable {}.{}",
            header.abi_major, header.abi_minor
        ),
        LibraryError::IncompatibleVersionNumber {
            expected_version,
            actual_version,
            ..
        } => format!("interface version {actual_version}, this host has {expected_version}"),
        LibraryError::AbiInstability(_) => differences(&whole),
        _ => whole
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("unknown")
            .trim()
            .to_owned(),
    };
    OpenError::Incompatible { reason }
}

/// The first two `Error:` blocks of a layout report, each with what was expected and found.
pub(crate) fn differences(report: &str) -> String {
    let lines: Vec<&str> = report.lines().map(str::trim).collect();
    let after = |from: usize, label: &str| {
        let label_at = lines.iter().skip(from).position(|l| l.starts_with(label))? + from;
        let same_line = lines.get(label_at)?.strip_prefix(label)?.trim();
        if !same_line.is_empty() {
            return Some(same_line);
        }
        lines
            .iter()
            .skip(label_at + 1)
            .find(|l| !l.is_empty())
            .copied()
    };
    let mut parts = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(what) = line.strip_prefix("Error:") else {
            continue;
        };
        let mut part = what.trim().trim_end_matches([':', '.']).to_owned();
        if let (Some(expected), Some(found)) = (after(at, "Expected:"), after(at, "Found:")) {
            part.push_str(&format!(": expected {expected}, found {found}"));
        }
        if !parts.contains(&part) {
            parts.push(part);
        }
        if parts.len() == 2 {
            break;
        }
    }
    if parts.is_empty() {
        return "the layout differs".to_owned();
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::{chain, differences};

    #[test]
    fn a_long_layout_report_becomes_one_line() {
        let report = "\n\nError:too many fields\nExpected:\n    3\nFound:\n    4\n\nError:incompatible type size\nExpected:\n\n    24\nFound:\n    32\nError:third\n";
        assert_eq!(
            differences(report),
            "too many fields: expected 3, found 4; incompatible type size: expected 24, found 32"
        );
        assert_eq!(differences("nonsense"), "the layout differs");
    }

    #[test]
    fn the_chain_holds_the_reason() {
        #[derive(Debug, thiserror::Error)]
        #[error("dlopen failed")]
        struct Outer(#[source] std::io::Error);
        assert_eq!(
            chain(&Outer(std::io::Error::other("undefined symbol: x"))),
            "dlopen failed: undefined symbol: x"
        );
    }
}
