//! Real HTTP, blocking.

use std::sync::OnceLock;
use std::time::Duration;

use dstack_backend_types::{BackendError, ErrorKind};
use ureq::Agent;
use ureq::http::Request;

use super::Answer;
use crate::provider::{CONTROL, Resource, Scenario};

const MAX_REPLY_BYTES: u64 = 64 << 20;
const CONTROL_LIMIT: Duration = Duration::from_secs(10);

/// A client with its connections. One serves the whole process.
pub(crate) struct Client {
    agent: Agent,
}

fn lost(error: impl std::fmt::Display) -> BackendError {
    BackendError::new(ErrorKind::Transport, format!("no reply: {error}"))
}

impl Client {
    pub(crate) fn shared() -> &'static Self {
        static CLIENT: OnceLock<Client> = OnceLock::new();
        CLIENT.get_or_init(|| Self {
            agent: Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .max_redirects_will_error(false)
                .allow_non_standard_methods(true)
                // The provider is a local server, or the very address that somebody named.
                .proxy(None)
                .build()
                .into(),
        })
    }

    pub(crate) fn send(
        &self,
        method: &str,
        url: &str,
        headers: &[(String, String)],
        body: &[u8],
        limit: Duration,
    ) -> Result<Answer, BackendError> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let invalid =
            |error: ureq::http::Error| BackendError::invalid(format!("{method} request: {error}"));
        let run = |result: Result<ureq::http::Response<ureq::Body>, ureq::Error>| {
            let mut response = result.map_err(|error| match error {
                ureq::Error::Timeout(_) => {
                    BackendError::new(ErrorKind::Timeout, "the provider does not answer in time")
                }
                other => lost(other),
            })?;
            let body = response
                .body_mut()
                .with_config()
                .limit(MAX_REPLY_BYTES)
                .read_to_vec()
                .map_err(lost)?;
            Ok(Answer {
                status: response.status().as_u16(),
                headers: response
                    .headers()
                    .iter()
                    .map(|(name, value)| {
                        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                        (name.as_str().to_owned(), value)
                    })
                    .collect(),
                body,
            })
        };
        let timed = |request: Request<_>| {
            self.agent
                .configure_request(request)
                .timeout_global(Some(limit))
                .build()
        };
        if body.is_empty() && matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS") {
            run(self.agent.run(timed(request.body(()).map_err(invalid)?)))
        } else {
            let timed = |request: Request<_>| {
                self.agent
                    .configure_request(request)
                    .timeout_global(Some(limit))
                    .build()
            };
            run(self.agent.run(timed(request.body(body).map_err(invalid)?)))
        }
    }

    fn control(&self, method: &str, base: &str, rest: &str) -> Option<Answer> {
        let url = format!("{base}{CONTROL}{rest}");
        let answer = self.send(method, &url, &[], &[], CONTROL_LIMIT).ok()?;
        (200..300).contains(&answer.status).then_some(answer)
    }

    /// Makes the fake provider's state anew; `false` if it is none of ours.
    pub(crate) fn reset(&self, base: &str) -> bool {
        self.control("POST", base, "/reset").is_some()
    }

    /// What stands at the provider, if it tells.
    pub(crate) fn inventory(&self, base: &str) -> Option<Vec<Resource>> {
        let answer = self.control("GET", base, "/inventory")?;
        serde_json::from_slice(&answer.body).ok()
    }

    /// Switches a scenario on or off; `false` if it is not scripted.
    pub(crate) fn play(&self, base: &str, scenario: Option<Scenario>) -> bool {
        let answer = match scenario {
            Some(scenario) => {
                self.control("PUT", base, &format!("/scenario/{}", scenario.as_str()))
            }
            None => self.control("DELETE", base, "/scenario"),
        };
        answer.is_some()
    }
}

/// Scheme, authority and the rest of an absolute URL.
fn parts(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(at)?;
    Some((scheme, authority, path))
}

/// Host and port of a URL, without user and password.
pub(crate) fn host_of(url: &str) -> &str {
    let authority = parts(url).map_or("", |(_, authority, _)| authority);
    authority.rsplit('@').next().unwrap_or_default()
}

/// The same request at the fake provider.
pub(crate) fn redirected(base: &str, url: &str) -> Result<String, BackendError> {
    let (scheme, authority, path) = parts(url)
        .filter(|(scheme, authority, _)| {
            matches!(*scheme, "http" | "https") && !authority.is_empty()
        })
        .ok_or_else(|| {
            BackendError::invalid("the URL of a request is not an absolute one of http or https")
        })?;
    let base = base.trim_end_matches('/');
    // A base with a path of its own was maybe given to the backend as its address: then the path is there already.
    if let Some(rest) = url.strip_prefix(base)
        && (rest.is_empty() || rest.starts_with(['/', '?']))
        && base.starts_with(&format!("{scheme}://{authority}"))
    {
        return Ok(url.to_owned());
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(format!("{base}{slash}{path}"))
}

/// Where a `Location` leads.
pub(super) fn resolve(from: &str, target: &str) -> String {
    if target.contains("://") {
        return target.to_owned();
    }
    let Some((scheme, authority, path)) = parts(from) else {
        return target.to_owned();
    };
    if target.starts_with('/') {
        return format!("{scheme}://{authority}{target}");
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{scheme}://{authority}{folder}/{target}")
}

#[cfg(test)]
mod tests {
    use super::{host_of, redirected, resolve};

    #[test]
    fn every_request_goes_to_the_provider() {
        let at = |url| redirected("http://127.0.0.1:1", url).unwrap();
        assert_eq!(
            at("https://api.acme.example/v1/x?a=1"),
            "http://127.0.0.1:1/v1/x?a=1"
        );
        assert_eq!(at("https://api.acme.example"), "http://127.0.0.1:1/");
        assert_eq!(at("http://127.0.0.1:1/v1"), "http://127.0.0.1:1/v1");
        assert!(redirected("http://127.0.0.1:1", "/v1").is_err());
        assert!(redirected("http://127.0.0.1:1", "file:///etc/passwd").is_err());
        assert_eq!(
            host_of("https://u:p@api.acme.example:8443/x"),
            "api.acme.example:8443"
        );
    }

    #[test]
    fn locations_are_resolved() {
        assert_eq!(resolve("http://a/b/c?d", "/e"), "http://a/e");
        assert_eq!(resolve("http://a/b/c?d", "e"), "http://a/b/e");
        assert_eq!(resolve("http://a/b", "https://x/y"), "https://x/y");
    }
}
