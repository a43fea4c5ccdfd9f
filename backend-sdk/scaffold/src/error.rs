//! Why nothing was made.

use std::path::PathBuf;

/// Why nothing was made. Nothing was written then.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// The name cannot be one of a backend.
    #[error("{name:?} is no name for a backend: {reason}")]
    Name {
        /// As it was given.
        name: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// There is something where the crate would go.
    #[error("{} is there already: remove it, or choose another name", path.display())]
    Exists {
        /// What is there.
        path: PathBuf,
    },
    /// The folder is not this repository.
    #[error("{} has no folder `backends`: it is not the root of this repository", root.display())]
    NotARepository {
        /// The folder.
        root: PathBuf,
    },
    /// The folder has no SDK.
    #[error("{} has no crate {package}: expected a copy of `backend-sdk`, or its unpacked packages", path.display())]
    NoSdk {
        /// The folder.
        path: PathBuf,
        /// The first crate that is not there.
        package: String,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
