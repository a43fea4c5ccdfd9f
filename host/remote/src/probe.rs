//! One request to something that listens on a machine: only the status of the answer counts.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;

use crate::{Address, Endpoint, Remote, RemoteError};

/// What is asked.
#[derive(Debug, Clone)]
pub struct ProbeRequest {
    /// In upper case.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names and values, in this order.
    pub headers: Vec<(String, String)>,
    /// What is sent along.
    pub body: Option<String>,
    /// How long the answer's head may take, the connection included.
    pub timeout: Duration,
}

impl ProbeRequest {
    fn build(self) -> Result<Request<Full<Bytes>>, RemoteError> {
        let wrong =
            |why: &dyn std::fmt::Display| RemoteError::Invalid(format!("cannot probe: {why}"));
        let method = Method::from_bytes(self.method.as_bytes()).map_err(|e| wrong(&e))?;
        let mut request = Request::builder().method(method).uri(&self.path);
        let has = |name: &str| {
            self.headers
                .iter()
                .any(|(own, _)| own.eq_ignore_ascii_case(name))
        };
        if !has("host") {
            request = request.header(header::HOST, "localhost");
        }
        if self.body.is_some() && !has("content-type") {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from(self.body.unwrap_or_default())))
            .map_err(|e| wrong(&e))
    }
}

impl Remote {
    /// Sends one request to what listens at `endpoint` on the machine; the status of the answer, whatever it is.
    /// Redirects are not followed and the answer's body is not read.
    ///
    /// # Errors
    /// [`RemoteError`] when there was no answer in time, or the request cannot be written.
    pub async fn probe(
        &self,
        at: &Address,
        endpoint: &Endpoint,
        request: ProbeRequest,
    ) -> Result<u16, RemoteError> {
        let limit = request.timeout;
        let (name, path) = (endpoint.to_string(), request.path.clone());
        let place = format!("{name}{path}");
        let request = request.build()?;
        let asked = async {
            let stream = self.open(at, endpoint).await?;
            let broken = |e: hyper::Error| RemoteError::Unreachable {
                at: place.clone(),
                reason: format!("the connection broke: {e}"),
            };
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(broken)?;
            let answer = sender.send_request(request);
            // The connection makes progress only while it is polled.
            tokio::pin!(answer);
            tokio::pin!(connection);
            let mut is_open = true;
            loop {
                tokio::select! {
                    answer = &mut answer => return answer.map(|answer| answer.status().as_u16()).map_err(broken),
                    _ = &mut connection, if is_open => is_open = false,
                }
            }
        };
        tokio::time::timeout(limit, asked)
            .await
            .unwrap_or_else(|_| {
                Err(RemoteError::TimedOut {
                    at: place.clone(),
                    limit,
                })
            })
    }
}
