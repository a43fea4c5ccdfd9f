//! Settings of calls into backends, and of what machines of backends download.

use std::path::PathBuf;
use std::time::Duration;

use dstack_plugins::{Deadlines, HttpTape};

use super::{Reader, SettingsError, Vars};

/// Templates of the agents' addresses, with `{version}` and `{arch}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentDownloads {
    /// `DSTACK_SHIM_DOWNLOAD_URL`
    pub shim: Option<String>,
    /// `DSTACK_RUNNER_DOWNLOAD_URL`
    pub runner: Option<String>,
}

/// Bounds of calls into backends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendCalls {
    /// `DSTACK_BACKEND_CALL_THREADS` (16, 1 to 256): threads of one backend.
    pub threads: usize,
    /// `DSTACK_BACKEND_DEADLINE_…`: how long calls may take.
    pub deadlines: Deadlines,
    /// `DSTACK_BACKEND_HTTP_RECORD`, `DSTACK_BACKEND_HTTP_REPLAY`: file of requests that were recorded.
    pub http_tape: Option<HttpTape>,
}

pub(super) fn agent_downloads<V: Vars>(read: &Reader<'_, V>) -> AgentDownloads {
    AgentDownloads {
        shim: read.text("DSTACK_SHIM_DOWNLOAD_URL"),
        runner: read.text("DSTACK_RUNNER_DOWNLOAD_URL"),
    }
}

pub(super) fn backend_calls<V: Vars>(read: &Reader<'_, V>) -> Result<BackendCalls, SettingsError> {
    let threads = read.number("DSTACK_BACKEND_CALL_THREADS", 16_usize, "1 to 256 threads")?;
    if !(1..=256).contains(&threads) {
        return Err(SettingsError {
            name: "DSTACK_BACKEND_CALL_THREADS",
            value: threads.to_string(),
            wanted: "1 to 256 threads",
        });
    }
    let usual = Deadlines::default();
    let deadline = |name: &'static str, usual: Duration| {
        let limit = read.seconds(name, usual.as_secs())?;
        if limit.is_zero() {
            return Err(SettingsError {
                name,
                value: "0".to_owned(),
                wanted: "a number of seconds above 0",
            });
        }
        Ok(limit)
    };
    let tape = |name: &'static str| read.text(name).map(PathBuf::from);
    Ok(BackendCalls {
        threads,
        deadlines: Deadlines {
            offers: deadline("DSTACK_BACKEND_DEADLINE_OFFERS", usual.offers)?,
            validate: deadline("DSTACK_BACKEND_DEADLINE_VALIDATE", usual.validate)?,
            update: deadline("DSTACK_BACKEND_DEADLINE_UPDATE", usual.update)?,
            terminate: deadline("DSTACK_BACKEND_DEADLINE_TERMINATE", usual.terminate)?,
            create: deadline("DSTACK_BACKEND_DEADLINE_CREATE", usual.create)?,
            gateways: deadline("DSTACK_BACKEND_DEADLINE_GATEWAYS", usual.gateways)?,
        },
        http_tape: tape("DSTACK_BACKEND_HTTP_REPLAY")
            .map(HttpTape::Replay)
            .or_else(|| tape("DSTACK_BACKEND_HTTP_RECORD").map(HttpTape::Record)),
    })
}
