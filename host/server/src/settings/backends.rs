//! Settings of calls into backends, and of what machines of backends download.

use std::path::PathBuf;
use std::time::Duration;

use dstack_plugins::{Deadlines, HttpTape, WorkerLimits};

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
    /// `DSTACK_BACKEND_WORKER_…`: bounds of a backend's own process.
    pub worker: WorkerLimits,
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
    let deadline = |name, usual| above_zero(read, name, usual);
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
        worker: worker(read)?,
        http_tape: tape("DSTACK_BACKEND_HTTP_REPLAY")
            .map(HttpTape::Replay)
            .or_else(|| tape("DSTACK_BACKEND_HTTP_RECORD").map(HttpTape::Record)),
    })
}

fn above_zero<V: Vars>(
    read: &Reader<'_, V>,
    name: &'static str,
    usual: Duration,
) -> Result<Duration, SettingsError> {
    let limit = read.seconds(name, usual.as_secs())?;
    if limit.is_zero() {
        return Err(SettingsError {
            name,
            value: "0".to_owned(),
            wanted: "a number of seconds above 0",
        });
    }
    Ok(limit)
}

/// Less than this a process cannot even start with: libraries, stacks of threads, the plugin.
const LEAST_MEMORY: u64 = 256 << 20;
/// Standard streams, the plugin's file, and a few to work with.
const LEAST_OPEN_FILES: u64 = 32;

fn worker<V: Vars>(read: &Reader<'_, V>) -> Result<WorkerLimits, SettingsError> {
    let usual = WorkerLimits::default();
    let number = |name: &'static str, usual: u64, least: u64, wanted: &'static str| {
        let value = read.number(name, usual, wanted)?;
        if value < least {
            let value = value.to_string();
            return Err(SettingsError {
                name,
                value,
                wanted,
            });
        }
        Ok(value)
    };
    let starts = number(
        "DSTACK_BACKEND_WORKER_STARTS_PER_MINUTE",
        usual.starts_per_minute as u64,
        1,
        "a number above 0",
    )?;
    Ok(WorkerLimits {
        memory_bytes: number(
            "DSTACK_BACKEND_WORKER_MEMORY",
            usual.memory_bytes,
            LEAST_MEMORY,
            "a number of bytes, at least 268435456 (256 MiB)",
        )?,
        open_files: number(
            "DSTACK_BACKEND_WORKER_OPEN_FILES",
            usual.open_files,
            LEAST_OPEN_FILES,
            "a number of files, at least 32",
        )?,
        start: above_zero(read, "DSTACK_BACKEND_WORKER_START", usual.start)?,
        close: above_zero(read, "DSTACK_BACKEND_WORKER_CLOSE", usual.close)?,
        starts_per_minute: usize::try_from(starts).unwrap_or(usize::MAX),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use crate::settings::Settings;

    fn of(name: &str, value: &str) -> Result<Settings, String> {
        let vars = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        Settings::from_env(&vars).map_err(|error| error.to_string())
    }

    #[test]
    fn bounds_of_a_backends_process_are_settings() {
        let usual = of("NOTHING", "").unwrap().backend_calls.worker;
        assert_eq!(usual, dstack_plugins::WorkerLimits::default());
        let worker = |name: &str, value: &str| {
            let settings = of(&format!("DSTACK_BACKEND_WORKER_{name}"), value);
            settings.map(|settings| settings.backend_calls.worker)
        };
        assert_eq!(
            worker("MEMORY", "536870912").unwrap().memory_bytes,
            512 << 20
        );
        assert_eq!(worker("OPEN_FILES", "64").unwrap().open_files, 64);
        assert_eq!(worker("START", "3").unwrap().start, Duration::from_secs(3));
        assert_eq!(worker("CLOSE", "1").unwrap().close, Duration::from_secs(1));
        assert_eq!(
            worker("STARTS_PER_MINUTE", "5").unwrap().starts_per_minute,
            5
        );
        for (name, value, words) in [
            ("MEMORY", "1024", "256 MiB"),
            ("MEMORY", "2GB", "a number of bytes"),
            ("OPEN_FILES", "3", "at least 32"),
            ("START", "0", "above 0"),
            ("CLOSE", "-1", "seconds"),
            ("STARTS_PER_MINUTE", "0", "above 0"),
        ] {
            let error = worker(name, value).unwrap_err();
            assert!(error.contains(name) && error.contains(words), "{error}");
        }
    }
}
