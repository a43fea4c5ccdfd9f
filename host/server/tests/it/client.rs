//! A server in a folder of its own, and a client with a token.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use dstack_plugins::PluginsConfig;
use dstack_server::{Server, Settings};
use serde_json::Value;
use tokio::sync::oneshot;

pub(crate) const ADMIN: &str = "admin-token";

pub(crate) struct TestServer {
    pub(crate) url: String,
    pub(crate) folder: tempfile::TempDir,
    agent: ureq::Agent,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// An answer: status, headers of ours, body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) host_version: Option<String>,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl TestServer {
    /// Without loops, so that rows stay as requests left them.
    pub(crate) fn start(vars: &[(&str, &str)]) -> Self {
        let mut all = vec![("DSTACK_SERVER_BACKGROUND_PROCESSING_DISABLED", "")];
        all.extend(vars);
        Self::with_loops(&all)
    }

    /// With everything that a server does by itself.
    pub(crate) fn with_loops(vars: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().display().to_string();
        let mut all = BTreeMap::from([
            ("HOME".to_owned(), home),
            ("DSTACK_SERVER_PORT".to_owned(), "0".to_owned()),
            ("DSTACK_SERVER_ADMIN_TOKEN".to_owned(), ADMIN.to_owned()),
        ]);
        all.extend(
            vars.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        let settings = Settings::from_env(&all).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (ready, url) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let server = Server::start(settings, PluginsConfig::new(Vec::new()))
                    .await
                    .unwrap();
                ready.send(server.url().to_owned()).unwrap();
                let stop = async {
                    // The sender is dropped to stop the server.
                    stopped.await.unwrap_or_default();
                };
                server.run(stop).await.unwrap();
            });
        });
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        Self {
            url: url.recv().unwrap(),
            folder,
            agent,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn send(
        &self,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = self.agent.post(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = match body {
            Some(body) => request.send_json(body),
            None => request.send_empty(),
        };
        answered(answer.unwrap())
    }

    /// A request as it is, without following redirects; status and text of the answer.
    pub(crate) fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .build()
            .into();
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut answer = if method == "GET" {
            agent.run(request.body(()).unwrap()).unwrap()
        } else {
            agent.run(request.body(body).unwrap()).unwrap()
        };
        let text = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), text)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        answered(
            self.agent
                .get(format!("{}{path}", self.url))
                .call()
                .unwrap(),
        )
    }

    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answered(request.call().unwrap())
    }

    /// `POST` of a text, whatever it is.
    pub(crate) fn post_text(&self, path: &str, text: &str, token: Option<&str>) -> Answer {
        let mut request = self.agent.post(format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request.header("Content-Type", "application/json");
        answered(request.send(text).unwrap())
    }

    pub(crate) fn post_as(&self, token: &str, path: &str, body: Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let body = (!body.is_null()).then_some(&body);
        self.send(
            path,
            body,
            &[("Authorization", &bearer), ("X-API-VERSION", "0.22.5")],
        )
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Answer {
        self.post_as(ADMIN, path, body)
    }

    pub(crate) fn ok(&self, path: &str, body: Value) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.body
    }

    /// `POST` of one file as a form, named by its hash.
    pub(crate) fn upload(&self, path: &str, name: &str, content: &[u8]) -> Answer {
        let mut body = format!(
            "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n--XX--\r\n");
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("Authorization", format!("Bearer {ADMIN}"));
        answered(
            request
                .header("Content-Type", "multipart/form-data; boundary=XX")
                .send(&body)
                .unwrap(),
        )
    }
}

fn answered(mut answer: ureq::http::Response<ureq::Body>) -> Answer {
    let status = answer.status().as_u16();
    let header = answer.headers().get("x-dstack-host-version");
    let host_version = header.map(|value| value.to_str().unwrap().to_owned());
    let text = answer.body_mut().read_to_string().unwrap();
    Answer {
        status,
        host_version,
        body: serde_json::from_str(&text).unwrap_or(Value::Null),
        text,
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server's thread panicked");
        }
    }
}
