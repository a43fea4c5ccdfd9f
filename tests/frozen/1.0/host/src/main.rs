//! A host built in the days of 1.0: loads the `.so` that is its argument, calls it, prints what it understood as JSON.
//! Frozen: see `../README.md`.

use dstack_backend_abi::{
    AbiHeaderRef, BackendModuleRef, Handle, HostServices, RResult, RSlice, RStr, RVec, Reply, SYMBOL,
};
use frozen_backend_sdk::{
    BackendError, CreateInstanceReply, Described, ErrorKind, GetOffersReply, Manifest, Now, methods,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde_json::{Value, json};

extern "C" fn log(_: *const (), _: u64, _: u32, _: RStr<'_>, _: RStr<'_>, _: RStr<'_>) {}

extern "C" fn request(_: *const (), _: u64, service: u32, _: RSlice<'_, u8>) -> Reply {
    let answer = match service {
        0 => serde_json::to_vec(&Described {
            host_version: "1.0.0".to_owned(),
            log_level: 3,
            services: [("0".to_owned(), 1), ("5".to_owned(), 1)].into_iter().collect(),
        }),
        5 => serde_json::to_vec(&Now { unix_micros: 1_700_000_000_000_000 }),
        other => {
            let error = BackendError::new(ErrorKind::Unsupported, format!("this host has no service {other}"));
            return RResult::RErr(RVec::from(serde_json::to_vec(&error).unwrap_or_default()));
        }
    };
    RResult::ROk(RVec::from(answer.unwrap_or_default()))
}

struct Opened {
    module: BackendModuleRef,
    handle: Handle,
}

impl Opened {
    fn call(&self, method: u32, request: &Value) -> Result<Vec<u8>, BackendError> {
        let request = request.to_string();
        match self.module.call()(&self.handle, method, 1, RSlice::from_slice(request.as_bytes())) {
            RResult::ROk(reply) => Ok(reply.as_slice().to_vec()),
            RResult::RErr(error) => Err(serde_json::from_slice(error.as_slice()).expect("an error of the border")),
        }
    }
}

fn main() {
    let path = std::env::args_os().nth(1).expect("the path of a plugin");
    // SAFETY: a plugin of the test that runs this.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.expect("it loads");
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: the symbol is abi_stable's header, which `upgrade` checks.
    let header = unsafe { library.get::<AbiHeaderRef>(SYMBOL.as_bytes()) }.expect("it has the symbol");
    let module = (*header)
        .upgrade()
        .and_then(|header| header.init_root_module::<BackendModuleRef>())
        .expect("its layout is that of 1.0");
    let manifest: Manifest = serde_json::from_str(module.manifest()().as_str()).expect("its manifest is read");
    let services = HostServices { context: std::ptr::null(), log, request };
    assert!(matches!(module.init()(services), RResult::ROk(())), "init");
    let config = json!({"type": manifest.name, "token": "t"}).to_string();
    let handle = match module.open()(RSlice::from_slice(config.as_bytes())) {
        RResult::ROk(handle) => handle,
        RResult::RErr(error) => panic!("{}", String::from_utf8_lossy(error.as_slice())),
    };
    let opened = Opened { module, handle };
    let offers = opened.call(methods::GET_OFFERS, &json!({"requirements": {"resources": {}}})).expect("offers");
    let offers: GetOffersReply = serde_json::from_slice(&offers).expect("offers are read");
    let create = json!({
        "offer": offers.offers[0],
        "config": {"project_name": "main", "instance_name": "i", "user": "me", "provider_ref": "0123456789abcdef"},
    });
    let made = opened.call(methods::CREATE_INSTANCE, &create).expect("a machine");
    let made: CreateInstanceReply = serde_json::from_slice(&made).expect("a machine is read");
    let terminate = json!({"instance_id": "i", "region": "r"});
    let refused = opened.call(methods::TERMINATE_INSTANCE, &terminate).expect_err("refused in a new way");
    let unknown = opened.call(4_000_000, &json!({})).expect_err("a method that nobody has");
    let health = opened.call(methods::HEALTH, &json!({})).expect("health");
    println!(
        "{}",
        json!({
            "manifest": manifest,
            "offers": offers,
            "made": made,
            "refused": refused,
            "unknown": unknown,
            "health": serde_json::from_slice::<Value>(&health).expect("health is read"),
        })
    );
    let Opened { module, handle } = opened;
    module.close()(handle);
}
