//! What to make, and what was made.

use std::path::PathBuf;

/// What the provider rents out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Machines, with the shim on them.
    Vm,
    /// Containers, with the runner as their entry point.
    Container,
}

/// How the provider's API is logged in to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// A token in the header `Authorization`.
    Bearer,
    /// User and password.
    Basic,
    /// A signature of every request.
    Signed,
}

/// What to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// In camel case, e.g. `ExampleXYZ`: the backend is then called `examplexyz`.
    pub name: String,
    /// What the provider rents out.
    pub kind: Kind,
    /// How its API is logged in to.
    pub auth: Auth,
}

/// Where to make it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In `backends/` of the repository with this root.
    Repository(PathBuf),
    /// A crate on its own.
    Outside {
        /// The folder in which the crate's folder is made; it is made too if it does not exist.
        folder: PathBuf,
        /// Where the SDK comes from.
        sdk: Sdk,
    },
}

/// Where a crate on its own has the SDK from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sdk {
    /// The registry, in the version that this crate belongs to.
    Version,
    /// A folder with the crates of the SDK: a copy of `backend-sdk`, or unpacked packages.
    Path(PathBuf),
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The backend's name.
    pub name: String,
    /// The crate's name.
    pub package: String,
    /// The crate's folder.
    pub folder: PathBuf,
    /// Files below it, in order.
    pub files: Vec<PathBuf>,
}
