//! Names of backends and what is known about the well-known ones.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a backend: `aws`, `local`, `acme`.
///
/// An open set: any plugin may bring a new one. The word is the same in YAML, API and database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BackendType(Cow<'static, str>);

/// Why a word is not a backend name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("backend name {0:?} must be 1 to 32 of [a-z0-9_-] and start with a letter")]
pub struct BadBackendName(pub String);

impl BackendType {
    /// Amazon EC2.
    pub const AWS: Self = Self::known("aws");
    /// The hosted marketplace.
    pub const DSTACK: Self = Self::known("dstack");
    /// Google Cloud.
    pub const GCP: Self = Self::known("gcp");
    /// Pods of a Kubernetes cluster.
    pub const KUBERNETES: Self = Self::known("kubernetes");
    /// The machine the server runs on.
    pub const LOCAL: Self = Self::known("local");
    /// Hosts of SSH fleets; no driver of its own.
    pub const REMOTE: Self = Self::known("remote");

    const fn known(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Checks `name` against the rule `^[a-z][a-z0-9_-]{0,31}$`.
    ///
    /// # Errors
    /// [`BadBackendName`] if it does not fit.
    pub fn parse(name: &str) -> Result<Self, BadBackendName> {
        let fits = (1..=32).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c));
        if fits {
            Ok(Self(Cow::Owned(name.to_owned())))
        } else {
            Err(BadBackendName(name.to_owned()))
        }
    }

    /// Takes `name` as it is, for data that was checked before it was stored.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self(name.into())
    }

    /// The word itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is known about it, or `None` for a backend this table does not list.
    pub fn facts(&self) -> Option<&'static BackendFacts> {
        FACTS.iter().find(|facts| facts.name == self.0)
    }

    /// Name of the offer catalog's provider. Mostly the same word.
    pub fn catalog_provider(&self) -> &str {
        match self.0.as_ref() {
            "lambda" => "lambdalabs",
            "datacrunch" => "verda",
            "amddevcloud" => "digitalocean",
            other => other,
        }
    }
}

impl fmt::Display for BackendType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for BackendType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::str::FromStr for BackendType {
    type Err = BadBackendName;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::parse(name)
    }
}

impl PartialEq<str> for BackendType {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for BackendType {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

/// What a backend rents out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// Machines, with the shim on them.
    Vm,
    /// Containers, with the runner as their entry point.
    Container,
    /// Not a driver: SSH hosts and the marketplace.
    Virtual,
}

/// Facts of a well-known backend that do not need its plugin.
#[derive(Debug, PartialEq, Eq)]
pub struct BackendFacts {
    /// The name.
    pub name: &'static str,
    /// What it rents out.
    pub kind: BackendKind,
    /// Whether the product lists it as one that can be configured.
    pub listed: bool,
    /// Capabilities by their letters: C create instance, P privileged, I instance volumes, M multinode,
    /// R reservations, G placement groups, W gateways, L gateway load balancers, w private gateways,
    /// V volumes, J group provisioning.
    pub letters: &'static str,
    /// Minutes from the request to a usable instance, unless the offer says otherwise.
    pub provisioning_timeout_min: u32,
}

impl BackendFacts {
    /// Whether the well-known backend has this capability.
    pub fn has(&self, capability: &str) -> bool {
        let letter = match capability {
            crate::capability::COMPUTE => return self.kind != BackendKind::Virtual,
            crate::capability::CREATE_INSTANCE => 'C',
            crate::capability::PRIVILEGED => 'P',
            crate::capability::INSTANCE_VOLUMES => 'I',
            crate::capability::MULTINODE => 'M',
            crate::capability::RESERVATION => 'R',
            crate::capability::PLACEMENT_GROUPS => 'G',
            crate::capability::GATEWAY => 'W',
            crate::capability::GATEWAY_LOAD_BALANCER => 'L',
            crate::capability::PRIVATE_GATEWAY => 'w',
            crate::capability::VOLUMES => 'V',
            crate::capability::GROUP_PROVISIONING => 'J',
            _ => return false,
        };
        self.letters.contains(letter)
    }
}

/// The well-known backends, the listed ones in the order in which they are shown.
pub const KNOWN_BACKENDS: &[BackendFacts] = FACTS;

const FACTS: &[BackendFacts] = &[
    vm("amddevcloud", "CPI", 10),
    vm("aws", "CPIMRGWLwV", 10),
    vm("azure", "CPIMW", 10),
    vm("cloudrift", "CPI", 30),
    vm("crusoe", "CPIMG", 10),
    vm("datacrunch", "CPI", 10),
    container("daytona", "V", 20),
    vm("digitalocean", "CPI", 10),
    vm("gcp", "CPIMRGWwLV", 10),
    vm("hotaisle", "CPI", 10),
    vm("jarvislabs", "CPIM", 10),
    container("kubernetes", "PIVWM", 20),
    vm("lambda", "CPI", 30),
    container("lium", "V", 10),
    vm("nebius", "CPIMG", 10),
    vm("oci", "CPIM", 10),
    container("runpod", "VMJ", 20),
    container("slurm", "MJ", 20),
    vm("seeweb", "CPIM", 20),
    container("vastai", "", 10),
    vm("verda", "CPI", 10),
    vm("vultr", "CPIM", 10),
    BackendFacts {
        listed: false,
        ..vm("local", "CPI", 10)
    },
    BackendFacts {
        listed: false,
        kind: BackendKind::Virtual,
        ..vm("remote", "MPI", 10)
    },
    BackendFacts {
        listed: false,
        kind: BackendKind::Virtual,
        ..vm("dstack", "", 10)
    },
    BackendFacts {
        listed: false,
        kind: BackendKind::Virtual,
        ..vm("cudo", "", 10)
    },
    BackendFacts {
        listed: false,
        kind: BackendKind::Virtual,
        ..vm("tensordock", "", 10)
    },
];

const fn vm(name: &'static str, letters: &'static str, minutes: u32) -> BackendFacts {
    BackendFacts {
        name,
        kind: BackendKind::Vm,
        listed: true,
        letters,
        provisioning_timeout_min: minutes,
    }
}

const fn container(name: &'static str, letters: &'static str, minutes: u32) -> BackendFacts {
    BackendFacts {
        kind: BackendKind::Container,
        ..vm(name, letters, minutes)
    }
}
