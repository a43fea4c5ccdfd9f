//! What the agents share: a small HTTP/1 server, logging, the stop signal.
//!
//! Used by the shim and the runner. It knows the rules common to both APIs (texts of errors, body limits, content
//! types) and nothing about tasks or jobs.
//!
//! ```no_run
//! use std::sync::Arc;
//! use dstack_agent_kit::http::{Listen, Listener, Reply, Router};
//! use dstack_agent_kit::stop::Stop;
//!
//! # async fn run() -> std::io::Result<()> {
//! let router = Router::new(Arc::new("0.22.5".to_owned()))
//!     .get("/api/version/{name}", async |version, request| {
//!         Ok(Reply::json(&(request.param("name").to_owned(), version.as_str())))
//!     });
//! let listener = Listener::bind(&Listen::Tcp { host: "localhost".to_owned(), port: 0 }).await?;
//! let stop = Stop::on_signals()?;
//! dstack_agent_kit::http::serve(listener, router, &stop).await;
//! # Ok(())
//! # }
//! ```

pub mod http;
pub mod logging;
pub mod rotating;
pub mod stop;
pub mod websocket;
