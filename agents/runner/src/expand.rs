//! Paths as users write them.

use std::path::{Component, Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    #[error("~username syntax is not supported")]
    OtherHome,
    #[error("working dir must be absolute: {0}")]
    NotAbsolute(String),
}

/// Expands `~` and `~/x` with `home`, sets relative paths below `base`, and cleans the result.
pub(crate) fn expand(path: &str, base: &Path, home: &Path) -> Result<PathBuf, PathError> {
    Ok(clean(&base.join(with_home(path, home)?)))
}

/// The same for a working directory, which has no base.
pub(crate) fn expand_absolute(path: &str, home: &Path) -> Result<PathBuf, PathError> {
    let path = with_home(path, home)?;
    if path.is_absolute() {
        return Ok(clean(&path));
    }
    Err(PathError::NotAbsolute(path.display().to_string()))
}

fn with_home(path: &str, home: &Path) -> Result<PathBuf, PathError> {
    match path.strip_prefix('~') {
        None => Ok(PathBuf::from(path)),
        Some("") => Ok(home.to_owned()),
        Some(rest) => match rest.strip_prefix('/') {
            Some(rest) => Ok(home.join(rest.trim_start_matches('/'))),
            None => Err(PathError::OtherHome),
        },
    }
}

/// Resolves `.`, `..` and doubled slashes without looking at the disk.
pub(crate) fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => match out.components().next_back() {
                Some(Component::Normal(_)) => {
                    out.pop();
                }
                Some(Component::RootDir) => {}
                _ => out.push(".."),
            },
            other => out.push(other),
        }
    }
    if out.as_os_str().is_empty() {
        out.push(".");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_expanded_and_cleaned() {
        let at = |path| {
            expand(path, Path::new("/job"), Path::new("/home/app")).map(|p| p.display().to_string())
        };
        for (path, want) in [
            ("/a/../b//c/.", "/b/c"),
            ("rel/x", "/job/rel/x"),
            ("./rel", "/job/rel"),
            ("../up", "/up"),
            ("../../../up", "/up"),
            ("", "/job"),
            (".", "/job"),
            ("~", "/home/app"),
            ("~/", "/home/app"),
            ("~/.config/x", "/home/app/.config/x"),
            ("~/../x", "/home/x"),
            ("a~b", "/job/a~b"),
        ] {
            assert_eq!(at(path).as_deref(), Ok(want), "{path}");
        }
        assert_eq!(at("~root/x"), Err(PathError::OtherHome));
    }

    #[test]
    fn a_working_dir_must_be_absolute() {
        let home = Path::new("/h");
        assert_eq!(expand_absolute("~/w", home), Ok(PathBuf::from("/h/w")));
        assert_eq!(
            expand_absolute("w", home).unwrap_err().to_string(),
            "working dir must be absolute: w"
        );
    }
}
