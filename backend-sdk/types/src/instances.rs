//! Machines: what they have, and what to tell a backend when one is made.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::volumes::Volume;

/// Size of a disk nobody stated, in MiB (100 GB).
pub const DEFAULT_DISK_MIB: u64 = 102_400;

/// Processor family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuArchitecture {
    /// 64-bit x86.
    X86,
    /// 64-bit ARM.
    Arm,
}

impl CpuArchitecture {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::Arm => "arm",
        }
    }

    /// The word in download addresses: `amd64` or `arm64`.
    pub const fn download_name(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// Reads a word of the configuration language, in any case.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::X86, Self::Arm]
            .into_iter()
            .find(|arch| arch.as_str().eq_ignore_ascii_case(word))
    }
}

impl fmt::Display for CpuArchitecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Who makes the accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorVendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Google (TPU).
    Google,
    /// Intel (Gaudi).
    Intel,
    /// Tenstorrent.
    Tenstorrent,
    /// A vendor this version does not know.
    #[serde(other)]
    Unknown,
}

impl AcceleratorVendor {
    /// All vendors that have a name here.
    pub const ALL: [Self; 5] = [
        Self::Nvidia,
        Self::Amd,
        Self::Google,
        Self::Intel,
        Self::Tenstorrent,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Google => "google",
            Self::Intel => "intel",
            Self::Tenstorrent => "tenstorrent",
            Self::Unknown => "unknown",
        }
    }

    /// Reads a word of the configuration language: the name, `tpu` for Google, `tt` for Tenstorrent; in any case.
    pub fn parse(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "tpu" => Some(Self::Google),
            "tt" => Some(Self::Tenstorrent),
            name => Self::ALL.into_iter().find(|vendor| vendor.as_str() == name),
        }
    }
}

impl fmt::Display for AcceleratorVendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One accelerator of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gpu {
    /// Model, e.g. `A100`.
    pub name: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Maker; found by the name if it is not given.
    #[serde(default)]
    pub vendor: Option<AcceleratorVendor>,
}

impl Gpu {
    /// The stated vendor, else the one its name suggests, else NVIDIA.
    pub fn vendor(&self) -> AcceleratorVendor {
        self.vendor.unwrap_or_else(|| {
            crate::gpus::vendor_by_name(&self.name).unwrap_or(AcceleratorVendor::Nvidia)
        })
    }
}

/// The disk of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Disk {
    /// Size in MiB; 0 if unknown.
    pub size_mib: u64,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            size_mib: DEFAULT_DISK_MIB,
        }
    }
}

/// What a machine has.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resources {
    /// Number of virtual processors.
    pub cpus: u32,
    /// Main memory in MiB.
    pub memory_mib: u64,
    /// Accelerators, one entry each.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// Whether it can be taken away at any time.
    #[serde(default)]
    pub spot: bool,
    /// The disk.
    #[serde(default)]
    pub disk: Disk,
    /// Processor family; unknown counts as x86.
    #[serde(default)]
    pub cpu_arch: Option<CpuArchitecture>,
    /// Free text; on the wire for older clients, empty.
    #[serde(default)]
    pub description: String,
}

/// A kind of machine of one provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InstanceType {
    /// The provider's name for it, e.g. `p4d.24xlarge`.
    pub name: String,
    /// What it has.
    pub resources: Resources,
}

/// A key pair, or only its public half.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshKey {
    /// In the form of `authorized_keys`.
    pub public: String,
    /// PEM; never printed.
    #[serde(default)]
    pub private: Option<String>,
}

impl SshKey {
    /// A key of which only the public half is known.
    pub fn public(key: impl Into<String>) -> Self {
        Self {
            public: key.into(),
            private: None,
        }
    }
}

impl fmt::Debug for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let private = self.private.as_ref().map(|_| "***");
        f.debug_struct("SshKey")
            .field("public", &self.public)
            .field("private", &private)
            .finish()
    }
}

/// What to make: input of `create_instance`. The zones to choose from stand in the offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceConfiguration {
    /// The project it is for.
    pub project_name: String,
    /// Name of the instance, or of the job it is made for.
    pub instance_name: String,
    /// Name of the person who asked for it.
    pub user: String,
    /// Keys that may log in; the public half is what is needed.
    #[serde(default)]
    pub ssh_keys: Vec<SshKey>,
    /// The host's own id of the instance.
    #[serde(default)]
    pub instance_id: Option<String>,
    /// Volumes that will be attached.
    #[serde(default)]
    pub volumes: Option<Vec<Volume>>,
    /// Reserved capacity to use.
    #[serde(default)]
    pub reservation: Option<String>,
    /// Tags of the user; those of the backend's configuration win over them.
    #[serde(default)]
    pub tags: Option<BTreeMap<String, String>>,
    /// 16 characters of `[a-z0-9]`, stored by the host before the call. A backend puts it on every resource it
    /// makes (tag `dstack_provider_ref`, else the end of the name), so that a lost answer loses no machine:
    /// a second call with the same value must return the machine of the first.
    #[serde(default)]
    pub provider_ref: Option<String>,
}
