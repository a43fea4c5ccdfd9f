//! A file that looks like a plugin, and whose constructor ends the process that loads it. Ships nowhere.
#![allow(unsafe_code, reason = "a constructor is a function in a section")]

const MANIFEST: &[u8] = br#"{"schema":1,"name":"constructor","version":"1.0.0","sdk":"none","abi":{"major":1,"minor":0},"capabilities":[]}"#;

#[used]
#[unsafe(link_section = ".dstack.plugin")]
static SECTION: [u8; MANIFEST.len()] = {
    let mut bytes = [0; MANIFEST.len()];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = MANIFEST[at];
        at += 1;
    }
    bytes
};

extern "C" fn constructor() {
    std::process::abort();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
