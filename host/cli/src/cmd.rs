//! One file a command.

pub(crate) mod apply;
pub(crate) mod attach;
pub(crate) mod backend;
pub(crate) mod catalog;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod event;
pub(crate) mod export;
pub(crate) mod fleet;
pub(crate) mod gateway;
pub(crate) mod init;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod offer;
pub(crate) mod options;
pub(crate) mod project;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod secret;
pub(crate) mod server;
pub(crate) mod stop;
pub(crate) mod token;
pub(crate) mod user;
pub(crate) mod volume;
