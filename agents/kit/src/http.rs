//! HTTP/1 with the manners common to both agents' APIs.

mod body;
mod error;
mod listen;
mod payload;
mod peer;
mod reply;
mod request;
mod router;
mod server;

pub use error::HttpError;
pub use listen::{Listen, Listener};
pub use payload::Body;
pub use reply::Reply;
pub use request::Request;
pub use router::Router;
pub use server::{GRACE, serve};

#[cfg(test)]
mod tests;
