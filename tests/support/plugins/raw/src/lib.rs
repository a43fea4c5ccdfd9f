//! A backend without the SDK, whose replies are not what replies should be. Its configuration is one word of JSON text, or an
//! object with that word as `mode`: `malformed`, `utf8`, `huge`, `bad_error`, `strict` (refuses a field that it does not know);
//! anything else answers well. So do the methods for configurations, always: it can stand in `config.yml`. Ships nowhere.
#![allow(
    unsafe_code,
    reason = "it stands for a plugin that was built with something else"
)]

mod configurator;
mod replies;

use dstack_backend_abi::{
    BackendModule, Handle, HostServices, RErr, ROk, RResult, RSlice, RStr, RVec, Reply,
};
use serde_json::Value;

const MANIFEST: &str = r#"{"schema":1,"name":"raw","version":"1.0.0","sdk":"none","abi":{"major":1,"minor":0},"capabilities":[]}"#;

#[used]
#[unsafe(link_section = ".dstack.plugin")]
static SECTION: [u8; MANIFEST.len()] = {
    let mut bytes = [0; MANIFEST.len()];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = MANIFEST.as_bytes()[at];
        at += 1;
    }
    bytes
};

extern "C" fn manifest() -> RStr<'static> {
    RStr::from_str(MANIFEST)
}

extern "C" fn init(_services: HostServices) -> RResult<(), RVec<u8>> {
    ROk(())
}

extern "C" fn open(config: RSlice<'_, u8>) -> RResult<Handle, RVec<u8>> {
    let config: Value = serde_json::from_slice(config.as_slice()).unwrap_or_default();
    let mode = config.as_str().or_else(|| config["mode"].as_str());
    let mode: Box<String> = Box::new(mode.unwrap_or_default().to_owned());
    ROk(Handle::new(Box::into_raw(mode).cast_const().cast()))
}

extern "C" fn call(handle: &Handle, method: u32, _call_id: u64, request: RSlice<'_, u8>) -> Reply {
    if method >= 256 {
        let answer = configurator::answer(method, request.as_slice());
        return ROk(RVec::from(answer.to_string().into_bytes()));
    }
    // SAFETY: a handle of `open`, not closed yet.
    let mode = unsafe { &*handle.raw().cast::<String>() };
    replies::of(mode, request.as_slice())
}

extern "C" fn close(handle: Handle) {
    // SAFETY: the host closes a handle of `open` once.
    drop(unsafe { Box::from_raw(handle.raw().cast_mut().cast::<String>()) });
}

extern "C" fn reserved(_op: u32, _request: RSlice<'_, u8>) -> Reply {
    RErr(RVec::new())
}

dstack_backend_abi::export_module!(BackendModule {
    manifest,
    init,
    open,
    call,
    close,
    reserved,
});
