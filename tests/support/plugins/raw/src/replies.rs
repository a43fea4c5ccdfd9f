//! What each mode answers.

use dstack_backend_abi::{RErr, ROk, RVec, Reply};

pub(crate) fn of(mode: &str, request: &[u8]) -> Reply {
    match mode {
        "malformed" => ROk(RVec::from(b"{\"message\": ".to_vec())),
        "utf8" => ROk(RVec::from(b"{\"message\": \"\xff\xfe\"}".to_vec())),
        "huge" => ROk(RVec::from(vec![b' '; 1 << 30])),
        "strict" if request.windows(7).any(|word| word == b"x_newer") => RErr(RVec::from(
            br#"{"kind": "invalid", "message": "unknown field x_newer"}"#.to_vec(),
        )),
        "bad_error" => RErr(RVec::from(b"\xff no JSON \x00".to_vec())),
        _ => ROk(RVec::from(
            b"{\"message\": \"good\", \"offers\": []}".to_vec(),
        )),
    }
}
