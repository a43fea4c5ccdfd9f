//! Where the agents' files are that go to other machines.

use std::path::PathBuf;
use std::sync::Arc;

use dstack_remote::FindAgent;

/// The words for a processor in the names of folders.
const WORDS: [&[&str]; 2] = [&["amd64", "x86_64"], &["arm64", "aarch64"]];
/// The word for this machine's own processor.
const OWN: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// Folders with agents, the first one wins: each holds `<arch>/dstack-shim`; for this machine's own processor also
/// `dstack-shim` itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentFiles {
    folders: Arc<Vec<PathBuf>>,
}

impl AgentFiles {
    /// In these folders.
    #[must_use]
    pub(crate) fn new(folders: Vec<PathBuf>) -> Self {
        Self {
            folders: Arc::new(folders),
        }
    }

    /// The file of an agent for `amd64` or `arm64`.
    ///
    /// # Errors
    /// Where it was looked for.
    pub(crate) fn find(&self, arch: &str, name: &str) -> Result<PathBuf, String> {
        let words = WORDS.iter().find(|words| words.contains(&arch));
        for folder in &*self.folders {
            let by_word = words.into_iter().copied().flatten();
            let mut places: Vec<PathBuf> = by_word.map(|word| folder.join(word)).collect();
            if arch == OWN {
                places.push(folder.clone());
            }
            let files = places.into_iter().map(|place| place.join(name));
            if let Some(file) = files.into_iter().find(|file| file.is_file()) {
                return Ok(file);
            }
        }
        let folders: Vec<String> = self
            .folders
            .iter()
            .map(|folder| folder.join(arch).display().to_string())
            .collect();
        Err(folders.join(", "))
    }

    /// The same as a function.
    #[must_use]
    pub(crate) fn finder(&self) -> FindAgent {
        let files = self.clone();
        Arc::new(move |arch, name| files.find(arch, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_of_other_processors_are_not_mistaken_for_own_ones() {
        let folder = tempfile::tempdir().unwrap();
        let other = if OWN == "amd64" { "arm64" } else { "amd64" };
        std::fs::write(folder.path().join("dstack-shim"), "own").unwrap();
        let files = AgentFiles::new(vec!["/nowhere".into(), folder.path().into()]);
        assert_eq!(
            files.find(OWN, "dstack-shim"),
            Ok(folder.path().join("dstack-shim"))
        );
        let error = files.find(other, "dstack-shim").unwrap_err();
        assert!(error.contains(&format!("/nowhere/{other}")), "{error}");
        std::fs::create_dir(folder.path().join(other)).unwrap();
        let file = folder.path().join(other).join("dstack-shim");
        std::fs::write(&file, "other").unwrap();
        assert_eq!(files.find(other, "dstack-shim"), Ok(file));
    }
}
