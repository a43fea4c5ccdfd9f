use super::{BackendModuleRef as Now, border, frozen_1_0::BackendModuleRef as Frozen};
use abi_stable::{
    StableAbi, abi_stability::abi_checking::check_layout_compatibility as check,
    library::ROOT_MODULE_LOADER_NAME,
};

#[test]
fn the_border_is_frozen() {
    // The very comparison of a load. Both directions: an appended field passes one of them.
    let (now, frozen) = (<Now as StableAbi>::LAYOUT, <Frozen as StableAbi>::LAYOUT);
    check(now, frozen).map_err(|e| e.to_string()).unwrap();
    check(frozen, now).map_err(|e| e.to_string()).unwrap();
}

#[test]
fn the_package_keeps_its_name_and_major() {
    // The layout check compares the package's name, and the header its major version.
    assert_eq!(env!("CARGO_PKG_NAME"), "dstack-backend-abi");
    assert_eq!(env!("CARGO_PKG_VERSION_MAJOR"), "1");
    assert_eq!(border::SECTION, ".dstack.plugin");
    assert_eq!(
        ROOT_MODULE_LOADER_NAME,
        "_1as_0lib_1header_0root_bmodule_bloader"
    );
}
