//! The two functions that plugins call back, and the log.

use super::Host;
use dstack_backend_abi::{HostServices, RResult, RSlice, RStr, RVec, Reply};
use dstack_backend_types::{BackendError, ErrorKind};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};
use tracing::{Level, level_filters::LevelFilter};

/// What `context` points to. Leaked: a plugin may call back as long as the process lives.
struct Context {
    host: Arc<Host>,
    plugin: String,
}

impl Host {
    /// The services for one plugin.
    pub(crate) fn border(host: &Arc<Self>, plugin: &str) -> HostServices {
        let context = Box::leak(Box::new(Context {
            host: Arc::clone(host),
            plugin: plugin.to_owned(),
        }));
        HostServices {
            context: std::ptr::from_mut(context).cast_const().cast(),
            log,
            request,
        }
    }
}

/// # Safety
/// `context` must be the pointer of [`Host::border`].
unsafe fn context_of<'a>(context: *const ()) -> &'a Context {
    // SAFETY: the caller's promise; the context is leaked, never changed, and `Sync`.
    unsafe { &*context.cast::<Context>() }
}

extern "C" fn log(
    context: *const (),
    call_id: u64,
    level: u32,
    target: RStr<'_>,
    message: RStr<'_>,
    fields: RStr<'_>,
) {
    // A panic must not leave an `extern "C"` function: it would abort the process.
    let logged = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: a plugin hands back the context it was given.
        let plugin = unsafe { context_of(context) }.plugin.as_str();
        write(
            plugin,
            call_id,
            level,
            [target.as_str(), message.as_str(), fields.as_str()],
        );
    }));
    if let Err(payload) = logged {
        // Dropping the payload could panic again.
        std::mem::forget(payload);
    }
}

pub(crate) fn write(backend: &str, call: u64, level: u32, [origin, message, fields]: [&str; 3]) {
    macro_rules! event {
        ($level:expr) => {
            if fields.is_empty() || fields == "{}" {
                tracing::event!(target: "dstack::backend", $level, backend, call, origin, "{message}")
            } else {
                tracing::event!(target: "dstack::backend", $level, backend, call, origin, fields, "{message}")
            }
        };
    }
    match level {
        0 | 1 => event!(Level::ERROR),
        2 => event!(Level::WARN),
        3 => event!(Level::INFO),
        4 => event!(Level::DEBUG),
        _ => event!(Level::TRACE),
    }
}

/// The finest level that is kept: 1 error to 5 trace, 0 none.
pub(crate) fn log_level() -> u32 {
    match LevelFilter::current().into_level() {
        None => 0,
        Some(Level::ERROR) => 1,
        Some(Level::WARN) => 2,
        Some(Level::INFO) => 3,
        Some(Level::DEBUG) => 4,
        Some(Level::TRACE) => 5,
    }
}

extern "C" fn request(
    context: *const (),
    call_id: u64,
    service: u32,
    request: RSlice<'_, u8>,
) -> Reply {
    let answered = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: a plugin hands back the context it was given.
        let context = unsafe { context_of(context) };
        context
            .host
            .answer(&context.plugin, call_id, service, request.as_slice())
    }));
    let answer = answered.unwrap_or_else(|payload| {
        std::mem::forget(payload);
        Err(BackendError::new(
            ErrorKind::Internal,
            format!("host service {service} failed"),
        ))
    });
    match answer {
        Ok(bytes) => RResult::ROk(RVec::from(bytes)),
        Err(error) => RResult::RErr(RVec::from(serde_json::to_vec(&error).unwrap_or_default())),
    }
}
