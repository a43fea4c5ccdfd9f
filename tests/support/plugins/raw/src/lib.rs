//! A backend without the SDK, whose replies are not what replies should be. Its configuration is one word of JSON text:
//! `"malformed"`, `"utf8"`, `"huge"`, `"bad_error"`; anything else answers well. Ships nowhere.
#![allow(
    unsafe_code,
    reason = "it stands for a plugin that was built with something else"
)]

use dstack_backend_abi::{
    BackendModule, Handle, HostServices, RErr, ROk, RResult, RSlice, RStr, RVec, Reply,
};

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
    let config: Box<Vec<u8>> = Box::new(config.as_slice().to_vec());
    ROk(Handle::new(Box::into_raw(config).cast_const().cast()))
}

extern "C" fn call(
    handle: &Handle,
    _method: u32,
    _call_id: u64,
    _request: RSlice<'_, u8>,
) -> Reply {
    // SAFETY: a handle of `open`, not closed yet.
    let config = unsafe { &*handle.raw().cast::<Vec<u8>>() };
    match config.as_slice() {
        b"\"malformed\"" => ROk(RVec::from(b"{\"message\": ".to_vec())),
        b"\"utf8\"" => ROk(RVec::from(b"{\"message\": \"\xff\xfe\"}".to_vec())),
        b"\"huge\"" => ROk(RVec::from(vec![b' '; 1 << 30])),
        b"\"bad_error\"" => RErr(RVec::from(b"\xff no JSON \x00".to_vec())),
        _ => ROk(RVec::from(b"{\"message\": \"good\"}".to_vec())),
    }
}

extern "C" fn close(handle: Handle) {
    // SAFETY: the host closes a handle of `open` once.
    drop(unsafe { Box::from_raw(handle.raw().cast_mut().cast::<Vec<u8>>()) });
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
