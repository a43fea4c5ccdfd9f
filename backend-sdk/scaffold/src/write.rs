//! Writing a crate so that it is there as a whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Created, Names, Order, Place, ScaffoldError, Sdk, render, sdk};

/// Makes the crate of a backend in one new folder.
///
/// All is written beside the place first and put there by renaming, so that a crash leaves nothing half.
///
/// # Errors
/// See [`ScaffoldError`]; nothing is left then.
pub fn create(order: &Order, place: &Place) -> Result<Created, ScaffoldError> {
    let names = Names::parse(&order.name)?;
    let (parent, patches) = match place {
        Place::Repository(root) => {
            let backends = root.join("backends");
            if !backends.is_dir() {
                return Err(ScaffoldError::NotARepository { root: root.clone() });
            }
            (backends, None)
        }
        Place::Outside { folder, sdk } => {
            let patches = match sdk {
                Sdk::Version => String::new(),
                Sdk::Path(path) => sdk::patches(path)?,
            };
            (folder.clone(), Some(patches))
        }
    };
    let folder = parent.join(&names.lower);
    refuse_existing(&parent, &folder, &names.lower)?;
    let files = render::files(order, &names, patches.as_deref());

    let made = make_missing(&parent)?;
    let temporary = parent.join(format!(".{}.new.{}", names.lower, std::process::id()));
    let written = write(&temporary, &files).and_then(|()| {
        // Somebody may have made it in the meantime: an empty folder would be replaced by the renaming.
        refuse_existing(&parent, &folder, &names.lower)?;
        fs::rename(&temporary, &folder).map_err(|source| failed(&folder, source))
    });
    if let Err(error) = written {
        // The first error is the one to tell; what could be removed is.
        fs::remove_dir_all(&temporary).ok();
        for parent in made {
            fs::remove_dir(parent).ok();
        }
        return Err(error);
    }
    Ok(Created {
        package: names.package(),
        name: names.lower,
        folder,
        files: files.into_iter().map(|(path, _)| path.into()).collect(),
    })
}

/// Also in another spelling: not every file system tells capitals apart.
fn refuse_existing(parent: &Path, folder: &Path, lower: &str) -> Result<(), ScaffoldError> {
    if folder.symlink_metadata().is_ok() {
        return Err(ScaffoldError::Exists {
            path: folder.to_owned(),
        });
    }
    let Ok(entries) = fs::read_dir(parent) else {
        return Ok(());
    };
    let twin = entries
        .flatten()
        .find(|entry| entry.file_name().eq_ignore_ascii_case(lower));
    match twin {
        Some(entry) => Err(ScaffoldError::Exists { path: entry.path() }),
        None => Ok(()),
    }
}

/// Makes the folder and those above it; returns those that were not there, the innermost first.
fn make_missing(folder: &Path) -> Result<Vec<PathBuf>, ScaffoldError> {
    let missing: Vec<PathBuf> = folder
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .map(Path::to_path_buf)
        .collect();
    fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
    Ok(missing)
}

fn write(folder: &Path, files: &[(String, String)]) -> Result<(), ScaffoldError> {
    fs::create_dir(folder).map_err(|source| failed(folder, source))?;
    for (path, text) in files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|source| failed(parent, source))?;
        }
        fs::write(&path, text).map_err(|source| failed(&path, source))?;
    }
    Ok(())
}

fn failed(path: &Path, source: std::io::Error) -> ScaffoldError {
    ScaffoldError::Write {
        path: path.to_owned(),
        source,
    }
}
