//! Variables of the server's environment, for credentials that stand there.

use crate::secret::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Asks for variables. An error of kind `auth` if one of them is not in the manifest, or if the host hands none over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnvironmentRequest {
    /// Their names.
    pub names: Vec<String>,
}

/// The variables that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnvironmentReply {
    /// Name to value.
    pub values: BTreeMap<String, Secret<String>>,
}
