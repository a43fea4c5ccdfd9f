//! The server's HTTP API, one blocking call at a time.

use std::cell::RefCell;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::CliError;
use crate::settings::{Token, VERSION};

/// How long a call may take. Plans ask clouds, whose own limit is 30 s.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Answers over this size are refused: nothing the API sends comes near.
const MAX_ANSWER: u64 = 256 * 1024 * 1024;

/// A connection to one server as one user.
#[derive(Debug)]
pub(crate) struct Client {
    agent: ureq::Agent,
    url: String,
    token: Option<Token>,
    api_version: String,
    host_version: RefCell<Option<String>>,
}

impl Client {
    pub(crate) fn new(url: &str, token: Option<Token>, api_version: &str) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT))
            .build()
            .into();
        Self {
            agent,
            url: url.trim_end_matches('/').to_owned(),
            token,
            api_version: api_version.to_owned(),
            host_version: RefCell::new(None),
        }
    }

    /// The server's address, without a slash at the end.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The version of our own server, once an answer told it; `None` for others.
    pub(crate) fn host_version(&self) -> Option<String> {
        self.host_version.borrow().clone()
    }

    /// `POST` with a JSON body.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        let body = serde_json::to_vec(body).map_err(|error| {
            CliError::message(format!("the request for {path} cannot be written: {error}"))
        })?;
        self.send(path, Some(("application/json", &body)))
    }

    /// `POST` without a body.
    pub(crate) fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.send(path, None)
    }

    /// `GET`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        let url = format!("{}{path}", self.url);
        let request = self.head(self.agent.get(&url));
        self.read(url, request.call())
    }

    /// `POST` of one file as `multipart/form-data` under the field `file`.
    pub(crate) fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        content: &[u8],
    ) -> Result<T, CliError> {
        let boundary = format!("dstack-{}", uuid::Uuid::new_v4().simple());
        let mut body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(content);
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        self.send(
            path,
            Some((&format!("multipart/form-data; boundary={boundary}"), &body)),
        )
    }

    fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<(&str, &[u8])>,
    ) -> Result<T, CliError> {
        let url = format!("{}{path}", self.url);
        let request = self.head(self.agent.post(&url));
        let answer = match body {
            Some((kind, bytes)) => request.header("Content-Type", kind).send(bytes),
            None => request.send_empty(),
        };
        self.read(url, answer)
    }

    /// What every request carries.
    fn head<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        let request = request
            .header("X-API-VERSION", &self.api_version)
            .header("X-Dstack-Client", VERSION);
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {}", token.0)),
            None => request,
        }
    }

    fn read<T: DeserializeOwned>(
        &self,
        url: String,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T, CliError> {
        let mut answer = answer.map_err(|error| CliError::Unreachable {
            url: self.url.clone(),
            reason: error.to_string(),
        })?;
        if let Some(version) = answer
            .headers()
            .get("x-dstack-host-version")
            .and_then(|value| value.to_str().ok())
        {
            *self.host_version.borrow_mut() = Some(version.to_owned());
        }
        let status = answer.status().as_u16();
        let bytes = answer
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER)
            .read_to_vec()
            .map_err(|error| CliError::Unreadable {
                url: url.clone(),
                reason: error.to_string(),
            })?;
        if status != 200 {
            return Err(refusal(status, url, &bytes));
        }
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| CliError::Unreadable {
            url,
            reason: error.to_string(),
        })
    }
}

/// The error behind a status, in the shapes that the API has for each.
fn refusal(status: u16, url: String, body: &[u8]) -> CliError {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let detail = &json["detail"];
    let words = |value: &serde_json::Value| value["msg"].as_str().map(str::to_owned);
    match status {
        400 | 422 if detail.is_array() => {
            let all = detail.as_array().map(Vec::as_slice).unwrap_or_default();
            let lines: Vec<String> = all
                .iter()
                .map(|one| {
                    let place = one["loc"].as_array().map(|loc| {
                        loc.iter()
                            .map(|part| {
                                part.as_str()
                                    .map_or_else(|| part.to_string(), str::to_owned)
                            })
                            .collect::<Vec<_>>()
                            .join(".")
                    });
                    let text = words(one).unwrap_or_else(|| one.to_string());
                    match place {
                        Some(place) if status == 422 => format!("{place}: {text}"),
                        _ => text,
                    }
                })
                .collect();
            let code = all
                .first()
                .and_then(|one| one["code"].as_str())
                .map(str::to_owned);
            CliError::Refused {
                message: lines.join("\n"),
                code,
            }
        }
        401 | 403 => {
            let text = words(detail).or_else(|| detail.as_str().map(str::to_owned));
            CliError::Denied {
                url,
                detail: text.map(|text| format!(": {text}")).unwrap_or_default(),
            }
        }
        404 if detail.is_object() && project_of(&url).is_some() => {
            let (server, project) = project_of(&url).unwrap_or_default();
            CliError::NoProject {
                project: project.to_owned(),
                server: server.to_owned(),
            }
        }
        _ => {
            let text = words(detail)
                .or_else(|| detail.as_str().map(str::to_owned))
                .unwrap_or_else(|| String::from_utf8_lossy(body).chars().take(300).collect());
            CliError::Status {
                status,
                url,
                body: text,
            }
        }
    }
}

/// The server and the project that an address is about.
fn project_of(url: &str) -> Option<(&str, &str)> {
    let (server, rest) = url
        .split_once("/api/project/")
        .or_else(|| url.split_once("/api/projects/"))?;
    Some((server, rest.split_once('/')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_of_refusal_becomes_words() {
        let url = || "http://x/api/y".to_owned();
        let body = br#"{"detail":[{"msg":"Run not found","code":"resource_not_exists"}]}"#;
        let error = refusal(400, url(), body);
        assert!(error.is_not_found());
        assert_eq!(error.to_string(), "Run not found");
        let error = refusal(
            422,
            url(),
            br#"{"detail":[{"loc":["body","limit"],"msg":"too big"}]}"#,
        );
        assert_eq!(error.to_string(), "body.limit: too big");
        let error = refusal(403, url(), br#"{"detail":{"msg":"Access denied"}}"#);
        assert!(
            error
                .to_string()
                .starts_with("Access to http://x/api/y is denied")
        );
        let error = refusal(404, url(), br#"{"detail":"Not Found"}"#);
        assert_eq!(
            error.to_string(),
            "Status code 404 when requesting http://x/api/y: Not Found"
        );
        let url = || "http://x/api/project/p/runs/get".to_owned();
        let error = refusal(404, url(), br#"{"detail":{"msg":"Not found","code":null}}"#);
        assert!(
            error
                .to_string()
                .starts_with("http://x has no project p that"),
            "{error}"
        );
        assert!(refusal(500, url(), b"boom").to_string().contains("boom"));
    }
}
