//! What requests do, one file a domain. Services are the only callers of the store on behalf of requests.

pub(crate) mod events;
pub(crate) mod keyring;
pub(crate) mod projects;
pub(crate) mod secrets;
pub(crate) mod users;
