//! A shared library that is no plugin: no manifest, and a constructor that ends the process. Whoever lists it must survive.
#![allow(unsafe_code, reason = "a constructor is a function in a section")]

extern "C" fn constructor() {
    std::process::abort();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
