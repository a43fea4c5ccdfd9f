//! Reads just enough of an ELF file to know that mapping it is safe and where the manifest is.

use crate::error::InspectError;
use dstack_backend_abi::SECTION;
use object::{
    LittleEndian, elf,
    read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader},
};

#[cfg(target_arch = "x86_64")]
const HOST: (u16, &str) = (elf::EM_X86_64.0, "x86_64");
#[cfg(target_arch = "aarch64")]
const HOST: (u16, &str) = (elf::EM_AARCH64.0, "aarch64");

type Header = elf::FileHeader64<LittleEndian>;

/// Facts of a file for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElfFacts {
    /// The file's size.
    pub size_bytes: u64,
    /// Its processor.
    pub machine: &'static str,
    /// Shared libraries that the system's loader will look for.
    pub needed: Vec<String>,
    /// Whether it has no symbol table beside the one for loading.
    pub is_stripped: bool,
}

/// Facts of a file that [`manifest_of`] found right.
pub(crate) fn facts_of(data: &[u8]) -> ElfFacts {
    let mut facts = ElfFacts {
        size_bytes: data.len() as u64,
        machine: HOST.1,
        ..ElfFacts::default()
    };
    let sections = Header::parse(data).and_then(|header| header.sections(LittleEndian, data));
    let Ok(sections) = sections else { return facts };
    facts.is_stripped = sections
        .iter()
        .all(|section| section.sh_type(LittleEndian) != elf::SHT_SYMTAB);
    for section in sections.iter() {
        let Ok(Some((entries, strings))) = section.dynamic(LittleEndian, data) else {
            continue;
        };
        let Ok(strings) = sections.strings(LittleEndian, data, strings) else {
            continue;
        };
        for entry in entries {
            if entry.tag(LittleEndian) == elf::DT_NEEDED
                && let Ok(name) = entry.string(LittleEndian, strings)
            {
                facts
                    .needed
                    .push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    facts
}

/// Checks the file's shape and returns the bytes of its manifest section.
pub(crate) fn manifest_of(data: &[u8]) -> Result<&[u8], InspectError> {
    identity(data)?;
    let truncated = |what| InspectError::Truncated { what };
    let header = Header::parse(data).map_err(|_| truncated("the header"))?;
    let machine = header.e_machine(LittleEndian).0;
    if machine != HOST.0 {
        return Err(InspectError::Machine {
            found: machine_name(machine),
            host: HOST.1,
        });
    }
    if header.e_type(LittleEndian) != elf::ET_DYN {
        return Err(InspectError::NotShared);
    }
    let length = data.len() as u64;
    let segments = header
        .program_headers(LittleEndian, data)
        .map_err(|_| truncated("the program header table"))?;
    // A loaded segment past the end of the file is what ends a process with SIGBUS, long after dlopen said yes.
    for segment in segments {
        let end = segment
            .p_offset(LittleEndian)
            .checked_add(segment.p_filesz(LittleEndian));
        if end.is_none_or(|end| end > length) {
            return Err(truncated("a segment"));
        }
    }
    let sections = header
        .sections(LittleEndian, data)
        .map_err(|_| truncated("the section table"))?;
    let (_, section) = sections
        .section_by_name(LittleEndian, SECTION.as_bytes())
        .ok_or(InspectError::NoManifest)?;
    section
        .data(LittleEndian, data)
        .map_err(|_| truncated("the manifest"))
}

fn identity(data: &[u8]) -> Result<(), InspectError> {
    if data.get(..4) != Some(b"\x7fELF".as_slice()) {
        return Err(InspectError::NotElf);
    }
    match data.get(4) {
        Some(2) => {}
        Some(1) => return Err(InspectError::Class { found: "32-bit" }),
        _ => return Err(InspectError::NotElf),
    }
    match data.get(5) {
        Some(1) => Ok(()),
        Some(2) => Err(InspectError::Class {
            found: "big-endian",
        }),
        _ => Err(InspectError::NotElf),
    }
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "x86".to_owned(),
        21 => "ppc64".to_owned(),
        22 => "s390x".to_owned(),
        40 => "arm".to_owned(),
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        243 => "riscv64".to_owned(),
        other => format!("machine {other}"),
    }
}
