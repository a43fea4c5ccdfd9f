//! What a later version of the SDK would do at the border: more of everything, in places where more may be.
#![allow(
    unsafe_code,
    reason = "a handle is passed on; the header is a named symbol in a section of its own"
)]

use crate::backend::Future;
use dstack_backend_abi::{BackendModule, Handle, RResult, RSlice, RStr, RVec, Reply};
use dstack_backend_sdk::export::dispatch::{self, Answer};
use dstack_backend_sdk::export::entry::{Exported, module};
use dstack_backend_sdk::serde_json::{self, Value, json};

const TEXT: &str = r#"{"schema":1,"name":"future","version":"9.0.0","sdk":"1.9.0","abi":{"major":1,"minor":9},"encodings":["json","later"],"capabilities":["create_instance","time_travel","weightless"],"later_key":{"a":[1]}}"#;

#[used]
#[unsafe(link_section = ".dstack.plugin")]
static MANIFEST: [u8; TEXT.len()] = {
    let (mut bytes, mut at) = ([0; TEXT.len()], 0);
    while at < bytes.len() {
        bytes[at] = TEXT.as_bytes()[at];
        at += 1;
    }
    bytes
};

struct Later;

impl Exported for Later {
    type Backend = Future;
    fn manifest() -> &'static [u8] {
        &MANIFEST
    }
    fn dispatch(backend: &Future, method: u32, request: &[u8]) -> Answer {
        // A method that no host of today calls.
        if method == 400 {
            return Some(Ok(b"{\"moved_h\":-3}".to_vec()));
        }
        dispatch::Compute(backend, method, request)
            .or_else(|| dispatch::CreateInstance(backend, method, request))
    }
}

const TODAY: BackendModule = module::<Later>();

extern "C" fn manifest() -> RStr<'static> {
    (TODAY.manifest)()
}

extern "C" fn call(handle: &Handle, method: u32, call_id: u64, request: RSlice<'_, u8>) -> Reply {
    let later = |bytes: RVec<u8>| {
        let Ok(mut value) = serde_json::from_slice::<Value>(bytes.as_slice()) else {
            return bytes;
        };
        add_fields(&mut value);
        RVec::from(value.to_string().into_bytes())
    };
    match (TODAY.call)(handle, method, call_id, request) {
        RResult::ROk(reply) => RResult::ROk(later(reply)),
        RResult::RErr(error) => RResult::RErr(later(error)),
    }
}

/// A field more in every object, a new word where words may be new.
fn add_fields(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.values_mut().for_each(add_fields);
            object.insert("later_field".to_owned(), json!({"deep": [null, 1.5]}));
            if object.get("kind") == Some(&json!("not_yet_terminated")) {
                object.insert("kind".to_owned(), json!("almost_terminated"));
            }
            if object.contains_key("availability") {
                object.insert("availability".to_owned(), json!("next_week"));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(add_fields),
        _ => {}
    }
}

dstack_backend_sdk::export::export_module!(BackendModule {
    manifest,
    call,
    ..TODAY
});
