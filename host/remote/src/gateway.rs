//! The agent on a gateway's machine.

use serde::Deserialize;

use crate::{Address, Endpoint, Remote, RemoteError};

/// Where it listens, on loopback.
const PORT: u16 = 8000;

#[derive(Deserialize)]
struct Info {
    version: String,
}

impl Remote {
    /// The version of the agent on a gateway's machine; proof that it is up.
    ///
    /// # Errors
    /// [`RemoteError`] if the machine or the agent does not answer.
    pub async fn gateway_version(&self, at: &Address) -> Result<String, RemoteError> {
        let info: Info = self.http(at, Endpoint::Port(PORT)).get("/").await?;
        Ok(info.version)
    }
}
