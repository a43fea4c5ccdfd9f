//! What [`export_module!`](crate::export_module) expands to. Not for use by hand.

use crate::border::{BackendModule, BackendModulePrefix, BackendModuleRef, Header};
use abi_stable::{
    library::{CheckTypeLayout, RootModuleResult},
    prefix_type::{PrefixRef, PrefixRefTrait, WithMetadata},
    std_types::RResult,
};

/// What the header's function returns.
pub type Loaded = RootModuleResult;
/// The static that a plugin keeps its module in.
pub type Meta = WithMetadata<BackendModule>;

/// Erases the module's type.
pub fn loaded(module: PrefixRef<BackendModulePrefix>) -> Loaded {
    // SAFETY: erasing the type is what abi_stable's own loader does; the header's layout check restores it.
    RResult::ROk(unsafe { BackendModuleRef(module).to_prefix_ref().cast() })
}

/// Makes the header around `load`.
///
/// # Safety
/// `load` must return the prefix of a [`BackendModule`].
pub const unsafe fn header(load: extern "C" fn() -> Loaded) -> Header {
    // SAFETY: the caller's promise.
    unsafe { Header::from_constructor::<BackendModuleRef>(load, CheckTypeLayout::Yes) }
}

/// Emits abi_stable's header for a constant [`BackendModule`]; used by the SDK's `export_backend!` only.
#[macro_export]
macro_rules! export_module {
    ($module:expr) => {
        /// The header by which the host finds the backend module of this file.
        #[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
        pub static DSTACK_BACKEND_HEADER: $crate::Header = {
            static MODULE: $crate::private::Meta = $crate::private::Meta::new($module);
            extern "C" fn load() -> $crate::private::Loaded {
                $crate::private::loaded(MODULE.static_as_prefix())
            }
            // SAFETY: `load` returns the prefix of this very module type.
            unsafe { $crate::private::header(load) }
        };
    };
}
