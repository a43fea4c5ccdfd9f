//! Looks at a file without running anything of it.

use crate::{
    elf::{self, ElfFacts},
    error::InspectError,
};
use dstack_backend_types::{BackendType, Manifest, manifest::MAX_MANIFEST_BYTES};
use nix::fcntl::OFlag;
use sha2::{Digest, Sha256};
use std::{
    fs::{File, OpenOptions},
    io::Read,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

/// The largest file that is taken for a plugin.
pub const MAX_FILE_BYTES: u64 = 256 << 20;
/// The generation of the border that this host speaks.
const ABI: u32 = 1;

/// A file that looks like a plugin. The descriptor that was read stays open, so that what is loaded is what was hashed.
#[derive(Debug)]
pub struct Inspected {
    /// As it was given.
    pub path: PathBuf,
    /// What the file says of itself.
    pub manifest: Manifest,
    /// Lower-case hex.
    pub sha256: String,
    /// Device and inode: the same pair is the same library, whatever it is called.
    pub identity: (u64, u64),
    /// Facts for people; empty of a file that was handed over.
    pub facts: ElfFacts,
    pub(crate) manifest_text: String,
    pub(crate) file: File,
}

/// Inspects `path`: a regular file of a sane size, an ELF shared library for this machine whose segments all lie inside the
/// file, with a manifest of our interface.
///
/// # Errors
/// The first rule that does not hold.
pub fn inspect(path: &Path) -> Result<Inspected, InspectError> {
    let read = |source| InspectError::Read { source };
    // Non-blocking: opening a pipe that nobody writes would wait for ever.
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits())
        .open(path)
        .map_err(read)?;
    let metadata = file.metadata().map_err(read)?;
    if !metadata.is_file() {
        return Err(InspectError::NotRegular);
    }
    let size_bytes = metadata.len();
    if size_bytes > MAX_FILE_BYTES {
        return Err(InspectError::TooLarge {
            size_bytes,
            limit_bytes: MAX_FILE_BYTES,
        });
    }
    let mut data = Vec::with_capacity(usize::try_from(size_bytes).unwrap_or_default());
    Read::by_ref(&mut file)
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut data)
        .map_err(read)?;
    let section = elf::manifest_of(&data)?;
    let (manifest, text) = parse_manifest(section)?;
    Ok(Inspected {
        path: path.to_owned(),
        manifest,
        sha256: hex(&Sha256::digest(&data)),
        identity: (metadata.dev(), metadata.ino()),
        facts: elf::facts_of(&data),
        manifest_text: text.to_owned(),
        file,
    })
}

impl Inspected {
    /// The descriptor that was read and hashed, for handing it to a child process.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The manifest as it stands in the file.
    pub fn manifest_text(&self) -> &str {
        &self.manifest_text
    }

    /// Takes over a descriptor that another process of ours has inspected, with what it found: nothing is read again. It
    /// trusts its caller, who must be that process.
    ///
    /// # Errors
    /// If the manifest makes no sense or the descriptor is none of a regular file.
    pub fn handed_over(
        descriptor: OwnedFd,
        path: PathBuf,
        manifest_text: String,
        sha256: String,
    ) -> Result<Self, InspectError> {
        let file = File::from(descriptor);
        let metadata = file
            .metadata()
            .map_err(|source| InspectError::Read { source })?;
        if !metadata.is_file() {
            return Err(InspectError::NotRegular);
        }
        let (manifest, _) = parse_manifest(manifest_text.as_bytes())?;
        Ok(Self {
            path,
            manifest,
            sha256,
            identity: (metadata.dev(), metadata.ino()),
            facts: ElfFacts::default(),
            manifest_text,
            file,
        })
    }
}

fn parse_manifest(section: &[u8]) -> Result<(Manifest, &str), InspectError> {
    let bad = |reason: String| InspectError::BadManifest { reason };
    if section.len() > MAX_MANIFEST_BYTES {
        return Err(bad(format!(
            "{} bytes, at most {MAX_MANIFEST_BYTES}",
            section.len()
        )));
    }
    let text = std::str::from_utf8(section).map_err(|_| bad("not UTF-8".to_owned()))?;
    let manifest: Manifest = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
    if manifest.abi.major != ABI {
        return Err(InspectError::Abi {
            found: manifest.abi.major,
            host: ABI,
        });
    }
    BackendType::parse(&manifest.name).map_err(|e| bad(e.to_string()))?;
    Ok((manifest, text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
