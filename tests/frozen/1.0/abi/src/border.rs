//! The types that cross. Frozen: see the crate's documentation.

use abi_stable::{
    StableAbi,
    library::{LibHeader, RootModule},
    sabi_types::VersionStrings,
    std_types::{RResult, RSlice, RStr, RVec},
};

/// Reply bytes, or error bytes. Each side frees what it gets: `RVec` carries its maker's deallocator.
pub type Reply = RResult<RVec<u8>, RVec<u8>>;

/// An opened backend: a pointer that only its plugin understands.
///
/// It has no `Drop`; the host calls `close` exactly once. (A box would run plugin code from the host through a wrapper that
/// ends the process on a panic.)
#[repr(transparent)]
#[derive(StableAbi, Debug)]
pub struct Handle(*const ());
// SAFETY: the plugin promises that the value behind it is `Send + Sync`; the SDK demands it of the backend's type.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}
impl Handle {
    /// Wraps the plugin's pointer.
    pub const fn new(raw: *const ()) -> Self {
        Handle(raw)
    }
    /// The plugin's pointer.
    pub const fn raw(&self) -> *const () {
        self.0
    }
}

/// What the host gives to a plugin, once per process and by value. Valid for the life of the process.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct HostServices {
    /// Handed back to the host with every call.
    pub context: *const (),
    /// Levels 1 error to 5 trace; `call_id` is 0 outside of a call; `fields` is a JSON object or empty.
    pub log: extern "C" fn(
        context: *const (),
        call_id: u64,
        level: u32,
        target: RStr<'_>,
        message: RStr<'_>,
        fields: RStr<'_>,
    ),
    /// Asks one of the numbered host services. Those that wait refuse call id 0.
    pub request: extern "C" fn(
        context: *const (),
        call_id: u64,
        service: u32,
        request: RSlice<'_, u8>,
    ) -> Reply,
}
// SAFETY: the host promises that `context` may be used from any thread.
unsafe impl Send for HostServices {}
// SAFETY: as above.
unsafe impl Sync for HostServices {}

/// The root module: six functions, in this order, for ever.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = BackendModuleRef, prefix_fields = BackendModulePrefix)))]
pub struct BackendModule {
    /// The same JSON as in the ELF section [`SECTION`].
    pub manifest: extern "C" fn() -> RStr<'static>,
    /// Once per process, before anything else. A second call is an error.
    pub init: extern "C" fn(services: HostServices) -> RResult<(), RVec<u8>>,
    /// Parses a configuration into a backend; empty bytes give a handle for the configurator's methods alone.
    ///
    /// Does no I/O, for it has no call id and so no deadline.
    pub open: extern "C" fn(config: RSlice<'_, u8>) -> RResult<Handle, RVec<u8>>,
    /// Runs one numbered method on a backend. Many threads may be inside at once.
    pub call:
        extern "C" fn(handle: &Handle, method: u32, call_id: u64, request: RSlice<'_, u8>) -> Reply,
    /// Ends a backend. No call may be running on it.
    pub close: extern "C" fn(handle: Handle),
    /// The one door for later; answers *unsupported* in 1.0.
    #[sabi(last_prefix_field)]
    pub reserved: extern "C" fn(op: u32, request: RSlice<'_, u8>) -> Reply,
}
impl RootModule for BackendModuleRef {
    abi_stable::declare_root_module_statics! { BackendModuleRef }
    const BASE_NAME: &'static str = "dstack_backend";
    const NAME: &'static str = "dstack_backend";
    const VERSION_STRINGS: VersionStrings = abi_stable::package_version_strings!();
}
#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<Handle>() == 8 && size_of::<HostServices>() == 24 && size_of::<BackendModule>() == 48
);

/// The ELF section that holds a plugin's manifest, so that it is read without running anything of the file.
pub const SECTION: &str = ".dstack.plugin";
/// The one exported symbol, with its closing zero.
pub const SYMBOL: &str = abi_stable::library::ROOT_MODULE_LOADER_NAME_WITH_NUL;
/// What stands behind [`SYMBOL`].
pub type Header = LibHeader;
