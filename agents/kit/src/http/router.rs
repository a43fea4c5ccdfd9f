//! Finds the handler of a method and a path.

use std::pin::Pin;
use std::sync::Arc;

use http::{Method, StatusCode};
use hyper::body::{Body as _, Incoming};

use super::request::percent_decode;
use super::{HttpError, Reply, Request};

type Handled = Pin<Box<dyn Future<Output = Result<Reply, HttpError>> + Send>>;
type Handler<S> = Arc<dyn Fn(Arc<S>, Request) -> Handled + Send + Sync>;

/// A table of routes over a shared state. `{name}` in a path stands for one segment.
pub struct Router<S> {
    state: Arc<S>,
    observer: Option<fn(&S)>,
    routes: Vec<(Method, &'static str, Handler<S>)>,
}

impl<S> std::fmt::Debug for Router<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.routes.iter().map(|(method, path, _)| (method, path)))
            .finish()
    }
}

impl<S: Send + Sync + 'static> Router<S> {
    /// A table without routes: every path is 404.
    pub fn new(state: Arc<S>) -> Self {
        Self {
            state,
            observer: None,
            routes: Vec::new(),
        }
    }

    /// Calls `observer` at each request, whatever becomes of it.
    #[must_use]
    pub fn observed_by(mut self, observer: fn(&S)) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Adds a handler of `GET path`.
    #[must_use]
    pub fn get<F, Fut>(self, path: &'static str, handler: F) -> Self
    where
        F: Fn(Arc<S>, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, HttpError>> + Send + 'static,
    {
        self.route(Method::GET, path, handler)
    }

    /// Adds a handler of `POST path`.
    #[must_use]
    pub fn post<F, Fut>(self, path: &'static str, handler: F) -> Self
    where
        F: Fn(Arc<S>, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, HttpError>> + Send + 'static,
    {
        self.route(Method::POST, path, handler)
    }

    fn route<F, Fut>(mut self, method: Method, path: &'static str, handler: F) -> Self
    where
        F: Fn(Arc<S>, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, HttpError>> + Send + 'static,
    {
        let handler: Handler<S> =
            Arc::new(move |state, request| Box::pin(handler(state, request)) as Handled);
        self.routes.push((method, path, handler));
        self
    }

    /// Answers `request`: the handler's reply, or 404 for an unknown path, or 405 for another method.
    pub async fn handle(&self, request: http::Request<Incoming>) -> Reply {
        if let Some(observer) = self.observer {
            observer(&self.state);
        }
        let refused = |error: HttpError, has_body: bool| {
            let reply = Reply::from(error);
            // A refusal may leave a body unread. What is still on its way would stand where the next request is
            // expected, so the connection ends; said openly, or a client would use it again and find it closed.
            if has_body { reply.closing() } else { reply }
        };
        let has_body = !request.body().is_end_stream();
        let mut is_known_path = false;
        for (method, pattern, handler) in &self.routes {
            let Some(params) = match_path(pattern, request.uri().path()) else {
                continue;
            };
            is_known_path = true;
            if method == request.method() {
                let request = Request {
                    inner: request,
                    params,
                };
                return handler(Arc::clone(&self.state), request)
                    .await
                    .unwrap_or_else(|error| refused(error, has_body));
            }
        }
        let status = if is_known_path {
            StatusCode::METHOD_NOT_ALLOWED
        } else {
            StatusCode::NOT_FOUND
        };
        refused(HttpError::new(status, ""), has_body)
    }
}

pub(super) fn match_path(pattern: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let mut params = Vec::new();
    let mut segments = path.split('/');
    for wanted in pattern.split('/') {
        let segment = segments.next()?;
        match wanted
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
        {
            Some(_) if segment.is_empty() => return None,
            Some(name) => params.push((name, percent_decode(segment, false))),
            None if wanted == segment => {}
            None => return None,
        }
    }
    segments.next().is_none().then_some(params)
}
