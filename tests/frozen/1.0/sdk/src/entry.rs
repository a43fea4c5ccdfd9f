//! The six functions of the border as of 1.0. None of them unwinds.

use crate::{BackendError, ErrorKind};
use dstack_backend_abi::{BackendModule, Handle, HostServices, RResult, RSlice, RStr, RVec, Reply};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

static HOST: OnceLock<HostServices> = OnceLock::new();

/// A backend of the frozen plugin.
pub trait Backend: Sized + Send + Sync + 'static {
    /// The bytes of the manifest's section.
    fn manifest() -> &'static [u8];
    /// Parses a configuration.
    ///
    /// # Errors
    /// If it makes no sense.
    fn open(config: Value) -> Result<Self, BackendError>;
    /// Runs a method; `None` if there is none of this number.
    fn call(&self, method: u32, call_id: u64, request: &[u8]) -> Option<Result<Vec<u8>, BackendError>>;
}

/// Asks a host service.
///
/// # Errors
/// The service's own.
pub fn host(call_id: u64, service: u32, request: &[u8]) -> Result<Vec<u8>, BackendError> {
    let host = HOST
        .get()
        .ok_or_else(|| BackendError::new(ErrorKind::Unsupported, "no host"))?;
    match (host.request)(host.context, call_id, service, RSlice::from_slice(request)) {
        RResult::ROk(reply) => Ok(reply.as_slice().to_vec()),
        RResult::RErr(error) => Err(serde_json::from_slice(error.as_slice())
            .unwrap_or_else(|_| BackendError::new(ErrorKind::Internal, "no reason"))),
    }
}

/// The root module.
pub const fn module<B: Backend>() -> BackendModule {
    BackendModule {
        manifest: manifest::<B>,
        init,
        open: open::<B>,
        call: call::<B>,
        close: close::<B>,
        reserved,
    }
}

fn guarded<T>(run: impl FnOnce() -> Result<T, BackendError>) -> Result<T, RVec<u8>> {
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        Err(BackendError::new(ErrorKind::Panic, "the backend panicked"))
    });
    result.map_err(|error| RVec::from(serde_json::to_vec(&error).unwrap_or_default()))
}

extern "C" fn manifest<B: Backend>() -> RStr<'static> {
    RStr::from(std::str::from_utf8(B::manifest()).unwrap_or_default())
}

extern "C" fn init(services: HostServices) -> RResult<(), RVec<u8>> {
    RResult::from(guarded(|| {
        HOST.set(services)
            .map_err(|_| BackendError::new(ErrorKind::Invalid, "already initialised"))?;
        let (target, text) = (RStr::from("frozen"), RStr::from("hello from 1.0"));
        (services.log)(services.context, 0, 3, target, text, RStr::from("{\"a\":1}"));
        Ok(())
    }))
}

extern "C" fn open<B: Backend>(config: RSlice<'_, u8>) -> RResult<Handle, RVec<u8>> {
    RResult::from(guarded(|| {
        let config = serde_json::from_slice(config.as_slice())
            .map_err(|error| BackendError::new(ErrorKind::Invalid, error.to_string()))?;
        let opened = Box::new(B::open(config)?);
        Ok(Handle::new(Box::into_raw(opened).cast_const().cast()))
    }))
}

extern "C" fn call<B: Backend>(
    handle: &Handle,
    method: u32,
    call_id: u64,
    request: RSlice<'_, u8>,
) -> Reply {
    RResult::from(
        guarded(|| {
            // SAFETY: the host gives back a handle of `open`, and closes it only when no call runs on it.
            let opened = unsafe { &*handle.raw().cast::<B>() };
            opened
                .call(method, call_id, request.as_slice())
                .unwrap_or_else(|| {
                    let text = format!("the backend has no method {method}");
                    Err(BackendError::new(ErrorKind::Unsupported, text))
                })
        })
        .map(RVec::from),
    )
}

extern "C" fn close<B: Backend>(handle: Handle) {
    // SAFETY: the host calls `close` once for a handle of `open`, when no call runs on it.
    let opened = unsafe { Box::from_raw(handle.raw().cast_mut().cast::<B>()) };
    catch_unwind(AssertUnwindSafe(|| drop(opened))).ok();
}

extern "C" fn reserved(op: u32, _request: RSlice<'_, u8>) -> Reply {
    let error = BackendError::new(ErrorKind::Unsupported, format!("operation {op}"));
    RResult::RErr(RVec::from(serde_json::to_vec(&error).unwrap_or_default()))
}
