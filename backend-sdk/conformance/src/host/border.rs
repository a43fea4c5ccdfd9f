//! The two functions that a plugin calls back. The context is not a pointer but a number of the list below: nothing here
//! trusts what a plugin hands back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, PoisonError, RwLock};

use dstack_backend_abi::{HostServices, RResult, RSlice, RStr, RVec, Reply};
use dstack_backend_types::BackendError;

use super::{Event, Host};

/// Hosts of the plugins in this process, for ever: a plugin may call back as long as the process lives.
static HOSTS: RwLock<Vec<Arc<Host>>> = RwLock::new(Vec::new());

fn host_of(context: *const ()) -> Option<Arc<Host>> {
    let hosts = HOSTS.read().unwrap_or_else(PoisonError::into_inner);
    hosts.get(context.addr().checked_sub(1)?).cloned()
}

impl Host {
    /// The services to hand to a plugin.
    pub(crate) fn border(self: &Arc<Self>) -> HostServices {
        let mut hosts = HOSTS.write().unwrap_or_else(PoisonError::into_inner);
        hosts.push(Arc::clone(self));
        HostServices {
            context: ptr::without_provenance(hosts.len()),
            log,
            request,
        }
    }
}

extern "C" fn log(
    context: *const (),
    call_id: u64,
    level: u32,
    target: RStr<'_>,
    message: RStr<'_>,
    fields: RStr<'_>,
) {
    // A panic must not leave an `extern "C"` function.
    let logged = catch_unwind(AssertUnwindSafe(|| {
        let Some(host) = host_of(context) else { return };
        let session = host
            .call(call_id)
            .map_or_else(|| host.session(), |call| Arc::clone(&call.session));
        session.note(Event::Log {
            level,
            text: format!(
                "{}: {} {}",
                target.as_str(),
                message.as_str(),
                fields.as_str()
            ),
        });
    }));
    if let Err(payload) = logged {
        std::mem::forget(payload);
    }
}

extern "C" fn request(
    context: *const (),
    call_id: u64,
    service: u32,
    request: RSlice<'_, u8>,
) -> Reply {
    let answered = catch_unwind(AssertUnwindSafe(|| match host_of(context) {
        Some(host) => host.answer(call_id, service, request.as_slice()),
        None => Err(BackendError::invalid(
            "the context is not the one that was given",
        )),
    }));
    let answer = answered.unwrap_or_else(|payload| {
        std::mem::forget(payload);
        Err(BackendError::internal(format!(
            "host service {service} failed"
        )))
    });
    match answer {
        Ok(bytes) => RResult::ROk(RVec::from(bytes)),
        Err(error) => RResult::RErr(RVec::from(serde_json::to_vec(&error).unwrap_or_default())),
    }
}
