//! All operations of the API: path, who may use it, what its body is, who answers. Router, guards, our OpenAPI document and
//! the tests of all operations are made from it.

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::app::App;
use crate::extract::guard::{Guard, stand};
use crate::roles::{Class, Needs};

/// What the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// None; one that comes is not looked at.
    None,
    /// JSON, or none.
    Optional,
    /// JSON.
    Json,
    /// A form with one file.
    Multipart,
}

/// Makes the schema of a type, with references to those of others.
pub type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// An operation of the API, for documents and tests.
#[derive(Debug, Clone)]
pub struct OperationInfo {
    /// `POST` or `GET`.
    pub method: Method,
    /// Path with `{parameters}`.
    pub path: &'static str,
    /// Who may use it.
    pub class: Class,
    /// What an extra token must be good for.
    pub needs: Needs,
    /// What its body is.
    pub body: BodyKind,
    /// What a JSON body looks like.
    pub takes: Option<MakeSchema>,
    /// What the query looks like, as an object.
    pub asks: Option<MakeSchema>,
    /// What the answer looks like.
    pub gives: Option<MakeSchema>,
}

/// An operation with its handler.
pub(crate) struct Operation {
    pub(crate) info: OperationInfo,
    handler: MethodRouter<App>,
}

impl Operation {
    fn new<H, T>(
        (method, filter): (Method, MethodFilter),
        path: &'static str,
        class: Class,
        needs: Needs,
        handler: H,
    ) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        Self {
            info: OperationInfo {
                method,
                path,
                class,
                needs,
                body: BodyKind::None,
                takes: None,
                asks: None,
                gives: None,
            },
            handler: on(filter, handler),
        }
    }

    /// An operation of `POST`.
    pub(crate) fn post<H, T>(path: &'static str, class: Class, needs: Needs, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        Self::new(
            (Method::POST, MethodFilter::POST),
            path,
            class,
            needs,
            handler,
        )
    }

    /// An operation of `GET`.
    pub(crate) fn get<H, T>(path: &'static str, class: Class, needs: Needs, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        Self::new(
            (Method::GET, MethodFilter::GET),
            path,
            class,
            needs,
            handler,
        )
    }

    /// It takes JSON.
    pub(crate) fn takes<T: JsonSchema>(mut self) -> Self {
        self.info.body = BodyKind::Json;
        self.info.takes = Some(schema_of::<T>);
        self
    }

    /// It takes JSON, or nothing.
    pub(crate) fn maybe<T: JsonSchema>(mut self) -> Self {
        self.info.body = BodyKind::Optional;
        self.info.takes = Some(schema_of::<T>);
        self
    }

    /// What it answers.
    pub(crate) fn gives<T: JsonSchema>(mut self) -> Self {
        self.info.gives = Some(schema_of::<T>);
        self
    }

    /// What it takes in the query.
    pub(crate) fn asks<T: JsonSchema>(mut self) -> Self {
        self.info.asks = Some(schema_of::<T>);
        self
    }

    /// It takes a file.
    pub(crate) fn takes_file(mut self) -> Self {
        self.info.body = BodyKind::Multipart;
        self
    }

    /// The route with its guard.
    pub(crate) fn route(self, router: Router<App>, app: &App) -> Router<App> {
        let guard = Guard {
            class: self.info.class,
            needs: self.info.needs,
            is_json: matches!(self.info.body, BodyKind::Json | BodyKind::Optional),
        };
        let app = app.clone();
        let guarded = self
            .handler
            .layer(from_fn(move |request: Request, next: Next| {
                stand(app.clone(), guard, request, next)
            }));
        router.route(self.info.path, guarded)
    }
}

/// Every operation of the API.
#[must_use]
pub fn operations() -> Vec<OperationInfo> {
    super::all().into_iter().map(|one| one.info).collect()
}
