//! The provider's API.

use std::time::Duration;

use dstack_backend_sdk::http::{Request, Response};
use dstack_backend_sdk::{BackendError, ErrorKind};
use serde::Deserialize;
use serde_json::Value;

use crate::config::{Config, Defect};

const API: &str = "https://api.wrong.example";

#[derive(Debug)]
pub(crate) struct Cloud {
    config: Config,
}

/// A machine.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) reference: String,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) address: Option<String>,
    #[serde(default)]
    pub(crate) disk: Option<String>,
}

/// A disk or a volume.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Disk {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) reference: String,
}

impl Cloud {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
        }
    }

    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.config.defect == defect
    }

    /// Sends a request and turns what is refused into the right kind.
    fn send(&self, request: &Request) -> Result<Response, BackendError> {
        let token = self.config.token.expose();
        if self.has(Defect::LeakInLog) {
            tracing::debug!("asking with {token}");
        }
        let mut request = request.clone().bearer(token);
        if self.has(Defect::Impatient) {
            request = request.timeout(Duration::from_secs(5));
        }
        if self.has(Defect::ShortReplies) {
            request = request.max_reply_bytes(1 << 20);
        }
        let mut times = 0;
        loop {
            times += 1;
            let response = match request.clone().send() {
                Ok(response) => response,
                Err(error)
                    if self.has(Defect::BlindPost)
                        && times < 3
                        && error.kind == ErrorKind::Transport =>
                {
                    continue;
                }
                Err(error) if self.has(Defect::SwallowsCancel) => {
                    return Err(BackendError::internal(format!("request failed: {error}")));
                }
                Err(error) => return Err(error),
            };
            if response.status() == 429 && self.has(Defect::EndlessRetries) && times < 200 {
                continue;
            }
            return self.checked(response);
        }
    }

    fn checked(&self, response: Response) -> Result<Response, BackendError> {
        // Provider's texts may quote the token, so only its code is passed on.
        let status = response.status();
        let code = response
            .json::<Value>()
            .ok()
            .and_then(|body| Some(body.get("code")?.as_str()?.to_owned()))
            .unwrap_or_default();
        match (status, code.as_str()) {
            (401, _) if self.has(Defect::AuthIsInternal) => {
                Err(BackendError::internal("status 401"))
            }
            (401, _) if self.has(Defect::LeakInError) => Err(BackendError::auth(
                format!("the token {} is refused", self.config.token.expose()),
                ["token"],
            )),
            (401, _) => Err(BackendError::auth("the token is refused", ["token"])),
            (409, "sold_out") if !self.has(Defect::NoCapacityIsInternal) => {
                Err(BackendError::no_capacity("the provider has none left"))
            }
            (500.., _) if self.has(Defect::ServerErrorIsInternal) => {
                Err(BackendError::internal(format!("status {status}")))
            }
            (409, "quota") if !self.has(Defect::QuotaIsInternal) => Err(BackendError::new(
                ErrorKind::Quota,
                "a limit of the account",
            )),
            _ => response.ok().map_err(|error| BackendError {
                message: format!("status {status} {code}"),
                ..error
            }),
        }
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, response: &Response) -> Result<T, BackendError> {
        if self.has(Defect::PanicsOnNonsense) {
            return Ok(response.json().unwrap());
        }
        response.json()
    }

    pub(crate) fn get(&self, path: &str) -> Result<Response, BackendError> {
        self.send(&Request::get(format!("{API}{path}")))
    }

    pub(crate) fn find<T: for<'de> Deserialize<'de>>(
        &self,
        path: &str,
    ) -> Result<Option<T>, BackendError> {
        match self.get(path) {
            Ok(response) => self.read(&response).map(Some),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn list<T: for<'de> Deserialize<'de>>(
        &self,
        path: &str,
    ) -> Result<Vec<T>, BackendError> {
        let response = self.get(path)?;
        self.read(&response)
    }

    pub(crate) fn post<T: for<'de> Deserialize<'de>>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, BackendError> {
        let response = self.send(&Request::post(format!("{API}{path}")).json(body))?;
        self.read(&response)
    }

    pub(crate) fn put(&self, path: &str) -> Result<(), BackendError> {
        self.send(&Request::put(format!("{API}{path}"))).map(drop)
    }

    /// Whether it was there.
    pub(crate) fn delete(&self, path: &str) -> Result<bool, BackendError> {
        match self.send(&Request::delete(format!("{API}{path}"))) {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
