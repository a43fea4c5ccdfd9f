//! The six functions of the border. None of them unwinds: an `extern "C"` function that did would end the host.
#![allow(
    unsafe_code,
    reason = "handles are raw pointers; each block says why it is sound"
)]

use super::dispatch::{Answer, configurator};
use crate::{Backend, Configurator, call::Call, host, rest::without_values};
use dstack_backend_abi::{BackendModule, Handle, HostServices, RResult, RSlice, RStr, RVec, Reply};
use dstack_backend_types::{BackendError, ErrorKind, methods};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the macro says about a plugin.
pub trait Exported: 'static {
    /// The backend's type.
    type Backend: Backend;
    /// The bytes of the manifest's section.
    fn manifest() -> &'static [u8];
    /// Runs a method of one of the exported capabilities.
    fn dispatch(backend: &Self::Backend, method: u32, request: &[u8]) -> Answer;
}

/// Behind a handle. `None`: only the configurator's methods work.
struct Opened<E: Exported>(Option<E::Backend>);

/// The root module.
pub const fn module<E: Exported>() -> BackendModule {
    BackendModule {
        manifest: manifest::<E>,
        init,
        open: open::<E>,
        call: call::<E>,
        close: close::<E>,
        reserved,
    }
}

/// Runs the plugin's code. A panic becomes an error of kind `panic`.
fn guarded<T>(run: impl FnOnce() -> Result<T, BackendError>) -> Result<T, RVec<u8>> {
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        // A payload whose drop panics would unwind out of here.
        std::mem::forget(payload);
        let text = text.unwrap_or_else(|| "a payload that is no text".to_owned());
        Err(BackendError::new(
            ErrorKind::Panic,
            format!("the backend panicked: {text}"),
        ))
    });
    result.map_err(|error| RVec::from(serde_json::to_vec(&error).unwrap_or_default()))
}

extern "C" fn manifest<E: Exported>() -> RStr<'static> {
    RStr::from(std::str::from_utf8(E::manifest()).unwrap_or_default())
}

extern "C" fn init(services: HostServices) -> RResult<(), RVec<u8>> {
    RResult::from(guarded(|| {
        host::install(services)?;
        host::log::install();
        Ok(())
    }))
}

extern "C" fn open<E: Exported>(config: RSlice<'_, u8>) -> RResult<Handle, RVec<u8>> {
    RResult::from(guarded(|| {
        let opened = if config.is_empty() {
            Opened::<E>(None)
        } else {
            type Config<E> =
                <<<E as Exported>::Backend as Backend>::Configurator as Configurator>::Config;
            let config: Config<E> = serde_json::from_slice(config.as_slice()).map_err(|e| {
                let reason = without_values(&e.to_string());
                BackendError::invalid(format!("the configuration is not understood: {reason}"))
            })?;
            Opened(Some(E::Backend::new(config)?))
        };
        Ok(Handle::new(
            Box::into_raw(Box::new(opened)).cast_const().cast(),
        ))
    }))
}

extern "C" fn call<E: Exported>(
    handle: &Handle,
    method: u32,
    call_id: u64,
    request: RSlice<'_, u8>,
) -> Reply {
    RResult::from(
        guarded(|| {
            let _entered = Call::new(call_id).enter();
            // SAFETY: the host gives back a handle of `open`, and calls `close` only when no call runs on it.
            let opened = unsafe { &*handle.raw().cast::<Opened<E>>() };
            let request = request.as_slice();
            configurator::<<E::Backend as Backend>::Configurator>(method, request)
                .or_else(|| match &opened.0 {
                    Some(backend) => E::dispatch(backend, method, request),
                    None => Some(Err(BackendError::invalid(
                        "the backend was opened without a configuration",
                    ))),
                })
                .unwrap_or_else(|| {
                    let name = methods::name_of(method).unwrap_or("unknown to its SDK");
                    Err(BackendError::unsupported(format!(
                        "the backend has no method {method} ({name})"
                    )))
                })
        })
        .map(RVec::from),
    )
}

extern "C" fn close<E: Exported>(handle: Handle) {
    let closed = guarded(|| {
        // SAFETY: the host calls `close` once for a handle of `open`, when no call runs on it.
        let opened = unsafe { Box::from_raw(handle.raw().cast_mut().cast::<Opened<E>>()) };
        if let Some(backend) = opened.0 {
            backend.close();
        }
        Ok(())
    });
    if let Err(error) = closed {
        tracing::error!(error = %String::from_utf8_lossy(error.as_slice()), "the backend failed to close");
    }
}

extern "C" fn reserved(op: u32, _request: RSlice<'_, u8>) -> Reply {
    RResult::from(guarded(|| {
        Err(BackendError::unsupported(format!("operation {op}")))
    }))
}
