//! A plugin whose root module differs from the host's: `call` takes a `u64` where the border has a `u32`. Ships nowhere.
#![allow(unsafe_code, reason = "it stands for a plugin with another border")]

use abi_stable::{
    StableAbi,
    library::{CheckTypeLayout, LibHeader, RootModule, RootModuleResult},
    prefix_type::{PrefixRefTrait, WithMetadata},
    sabi_types::VersionStrings,
    std_types::{RResult, RSlice, RStr, RVec},
};

const MANIFEST: &str = r#"{"schema":1,"name":"other-border","version":"1.0.0","sdk":"0.1.0","abi":{"major":1,"minor":0},"capabilities":[]}"#;

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

/// The changed module.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = BackendModuleRef, prefix_fields = BackendModulePrefix)))]
pub struct BackendModule {
    /// As in the border.
    pub manifest: extern "C" fn() -> RStr<'static>,
    /// The method's number has another type.
    #[sabi(last_prefix_field)]
    pub call: extern "C" fn(method: u64, request: RSlice<'_, u8>) -> RResult<RVec<u8>, RVec<u8>>,
}
impl RootModule for BackendModuleRef {
    abi_stable::declare_root_module_statics! { BackendModuleRef }
    const BASE_NAME: &'static str = "dstack_backend";
    const NAME: &'static str = "dstack_backend";
    // The border's version, or that would be what is refused.
    const VERSION_STRINGS: VersionStrings = VersionStrings::new("1.0.0");
}

extern "C" fn manifest() -> RStr<'static> {
    RStr::from_str(MANIFEST)
}
extern "C" fn call(_method: u64, _request: RSlice<'_, u8>) -> RResult<RVec<u8>, RVec<u8>> {
    RResult::ROk(RVec::new())
}
extern "C" fn load() -> RootModuleResult {
    static MODULE: WithMetadata<BackendModule> =
        WithMetadata::new(BackendModule { manifest, call });
    let module = BackendModuleRef(MODULE.static_as_prefix());
    // SAFETY: erasing the type is what abi_stable's own loader does.
    RResult::ROk(unsafe { module.to_prefix_ref().cast() })
}

/// The header.
#[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
pub static HEADER: LibHeader =
    // SAFETY: `load` returns the prefix of this very module type.
    unsafe { LibHeader::from_constructor::<BackendModuleRef>(load, CheckTypeLayout::Yes) };
