//! Files of a configuration: packed and brought to the server.

use std::fs::File;
use std::io;
use std::path::Path;

use dstack_api::config::FileMapping;
use dstack_api::files::FileArchive;
use dstack_api::jobs::FileArchiveMapping;
use sha2::{Digest, Sha256};

use crate::cx::{Cx, Here};
use crate::error::CliError;

/// An archive is made in memory, and servers take less: a home folder named by mistake must not fill it.
const MOST_BYTES: u64 = 512 << 20;

/// Uploads each file or folder; local paths become absolute ones.
pub(crate) fn upload(
    files: &mut [FileMapping],
    folder: &Path,
    here: &Here,
    cx: &Cx<'_>,
) -> Result<Vec<FileArchiveMapping>, CliError> {
    let mut archives = Vec::new();
    for file in files {
        let path = cx.expand(&file.local_path, folder);
        let content = pack(&path).map_err(|source| CliError::File {
            verb: "pack",
            path: path.clone(),
            source,
        })?;
        let hash: String = Sha256::digest(&content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let archive: FileArchive =
            here.client
                .upload("/api/files/upload_archive", &hash, &content)?;
        archives.push(FileArchiveMapping {
            id: archive.id,
            path: file.path.clone(),
        });
        file.local_path = path.display().to_string();
    }
    Ok(archives)
}

/// A tar of one file or folder, which is its one top entry. What `.gitignore` and `.dstackignore` files name is left out.
///
/// The same content gives the same bytes: entries are sorted, owners and times are not kept.
fn pack(path: &Path) -> io::Result<Vec<u8>> {
    let real = path.canonicalize()?;
    let name = path
        .file_name()
        .or_else(|| real.file_name())
        .unwrap_or_else(|| "files".as_ref());
    let mut tar = tar::Builder::new(Vec::new());
    if !real.is_dir() {
        if !real.is_file() {
            return Err(io::Error::other("it is neither a file nor a folder"));
        }
        append(&mut tar, &real, Path::new(name))?;
        return tar.into_inner();
    }
    let walk = ignore::WalkBuilder::new(&real)
        .standard_filters(false)
        .git_ignore(true)
        .require_git(false)
        .parents(true)
        .add_custom_ignore_filename(".dstackignore")
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_name(std::cmp::Ord::cmp)
        .build();
    for entry in walk {
        let entry = entry.map_err(io::Error::other)?;
        let inner = entry.path().strip_prefix(&real).map_err(io::Error::other)?;
        append(&mut tar, entry.path(), &Path::new(name).join(inner))?;
    }
    tar.into_inner()
}

fn append(tar: &mut tar::Builder<Vec<u8>>, path: &Path, name: &Path) -> io::Result<()> {
    let facts = path.symlink_metadata()?;
    let mut header = tar::Header::new_gnu();
    header.set_metadata_in_mode(&facts, tar::HeaderMode::Deterministic);
    if facts.is_symlink() {
        header.set_size(0);
        return tar.append_link(&mut header, name, path.read_link()?);
    }
    if facts.is_dir() {
        header.set_size(0);
        return tar.append_data(&mut header, name, io::empty());
    }
    // Sockets and the like have no content to bring along.
    if facts.is_file() {
        let packed = u64::try_from(tar.get_ref().len()).unwrap_or(u64::MAX);
        if packed.saturating_add(facts.len()) > MOST_BYTES {
            return Err(io::Error::other(format!(
                "there are more than {} MiB; leave files out by .gitignore or .dstackignore",
                MOST_BYTES >> 20
            )));
        }
        tar.append_data(&mut header, name, File::open(path)?)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(content: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(content);
        let entries = archive.entries().unwrap();
        entries
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect()
    }

    #[test]
    fn a_folder_is_packed_without_what_is_ignored_and_always_alike() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("code");
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::create_dir_all(folder.join(".git")).unwrap();
        fs::write(folder.join(".git/config"), "x").unwrap();
        fs::write(folder.join("a.py"), "print()").unwrap();
        fs::write(folder.join(".env"), "A=1").unwrap();
        fs::write(folder.join("sub/big.bin"), "x").unwrap();
        fs::write(folder.join("sub/b.log"), "x").unwrap();
        fs::write(folder.join(".gitignore"), "*.log\n").unwrap();
        fs::write(folder.join(".dstackignore"), "big.bin\n").unwrap();
        std::os::unix::fs::symlink("a.py", folder.join("link")).unwrap();
        let content = pack(&folder).unwrap();
        assert_eq!(
            names(&content),
            [
                "code/",
                "code/.dstackignore",
                "code/.env",
                "code/.gitignore",
                "code/a.py",
                "code/link",
                "code/sub"
            ]
        );
        fs::write(folder.join("a.py"), "print()").unwrap();
        assert_eq!(pack(&folder).unwrap(), content);
    }

    #[test]
    fn one_file_is_one_entry_and_a_missing_one_an_error() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("a.txt"), "hi").unwrap();
        assert_eq!(names(&pack(&home.path().join("a.txt")).unwrap()), ["a.txt"]);
        assert!(pack(&home.path().join("b.txt")).is_err());
    }

    #[test]
    fn devices_and_mountains_of_bytes_are_refused() {
        let error = pack(Path::new("/dev/null")).unwrap_err().to_string();
        assert!(error.contains("neither a file nor a folder"), "{error}");
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("data")).unwrap();
        // Sparse: it takes no room, and none of it is read.
        let file = File::create(home.path().join("data/huge")).unwrap();
        file.set_len(MOST_BYTES + 1).unwrap();
        let error = pack(&home.path().join("data")).unwrap_err().to_string();
        assert!(
            error.contains("512 MiB") && error.contains(".gitignore"),
            "{error}"
        );
    }
}
