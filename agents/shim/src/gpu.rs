//! The machine's GPUs: what there is and who uses it.

mod amd;
mod detect;
mod lock;
mod parse;
mod tenstorrent;

pub(crate) use detect::{Detected, Machine, detect};
pub(crate) use lock::GpuLock;

/// Maker of the GPUs, with the words of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vendor {
    Nvidia,
    Amd,
    Intel,
    Tenstorrent,
}

impl Vendor {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Intel => "intel",
            Self::Tenstorrent => "tenstorrent",
        }
    }
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gpu {
    /// By which it is handed to containers: UUID (NVIDIA), render node (AMD), index (others).
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) memory_mib: u64,
    /// Empty if unknown.
    pub(crate) driver: String,
}
