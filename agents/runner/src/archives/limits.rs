//! Looks an archive over before anything of it is unpacked.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use tar::EntryType;

/// Longest name of an entry that is given apart from it; they are read into memory as a whole.
const LONGEST_NAME: u64 = 64 * 1024;

/// Refuses what no upload of ours holds: devices, pipes, names without end, and more content than the archive has
/// bytes. An archive that is not compressed cannot grow, unless it lies about holes or sizes.
pub(super) fn check(tar: &Path) -> io::Result<()> {
    let held = File::open(tar)?.metadata()?.len();
    let mut content: u64 = 0;
    let mut archive = tar::Archive::new(BufReader::new(File::open(tar)?));
    for entry in archive.entries_with_seek()?.raw(true) {
        let entry = entry?;
        let header = entry.header();
        let refused = |why: &str| {
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{name} {why}"),
            ))
        };
        match header.entry_type() {
            EntryType::Regular
            | EntryType::Continuous
            | EntryType::Directory
            | EntryType::Symlink
            | EntryType::Link
            | EntryType::GNUSparse => {}
            EntryType::GNULongName
            | EntryType::GNULongLink
            | EntryType::XHeader
            | EntryType::XGlobalHeader => {
                if header.entry_size()? > LONGEST_NAME {
                    return refused("has a name that is too long");
                }
            }
            _ => return refused("is neither a file nor a directory nor a link"),
        }
        // Of a sparse file the second size counts, with its holes.
        content = content.saturating_add(header.size()?.max(header.entry_size()?));
        if content > held {
            return refused("makes the archive claim more than it holds");
        }
    }
    Ok(())
}
