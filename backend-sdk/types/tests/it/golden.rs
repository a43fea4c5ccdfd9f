//! Every payload of the border is written down. `tests/contract/border/payloads-1.0.json` is never edited: what was sent in 1.0 is
//! understood for ever. `payloads.json` beside it is today's; `UPDATE_GOLDEN=1` writes it anew, and the difference is reviewed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dstack_backend_types::methods::*;
use dstack_backend_types::services::*;
use dstack_backend_types::{BackendError, Manifest, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

type Payloads = BTreeMap<String, Value>;

fn path(name: &str) -> PathBuf {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    PathBuf::from(root)
        .join("../../tests/contract/border")
        .join(name)
}

fn payloads(name: &str) -> Payloads {
    serde_json::from_str(&std::fs::read_to_string(path(name)).unwrap()).unwrap()
}

/// What today's types make of each payload.
struct Understood {
    is_today: bool,
    sent: Payloads,
    back: Payloads,
}

impl Understood {
    fn payload<T: DeserializeOwned + Serialize>(&mut self, name: &str) {
        let Some(sent) = self.sent.get(name) else {
            // It came later than the file; today's file has all.
            assert!(!self.is_today, "no payload {name:?}");
            return;
        };
        let read: T = serde_json::from_value(sent.clone())
            .unwrap_or_else(|error| panic!("{name} is not understood: {error}"));
        self.back
            .insert(name.to_owned(), serde_json::to_value(&read).unwrap());
    }

    fn method<M: Method>(&mut self) {
        self.payload::<M>(&format!("{} request", M::NAME));
        self.payload::<M::Reply>(&format!("{} reply", M::NAME));
    }
}

fn understood(name: &str) -> Understood {
    let mut u = Understood {
        is_today: name == "payloads.json",
        sent: payloads(name),
        back: Payloads::new(),
    };
    macro_rules! methods {
        ($($request:ty),+ $(,)?) => { $(u.method::<$request>();)+ };
    }
    methods!(
        GetOffersRequest,
        RunJobRequest,
        TerminateInstanceRequest,
        UpdateProvisioningDataRequest,
        HealthRequest,
        CreateInstanceRequest,
        RunJobsRequest,
        TerminateComputeGroupRequest,
        CreatePlacementGroupRequest,
        DeletePlacementGroupRequest,
        IsSuitablePlacementGroupRequest,
        PlacementGroupsCompatibleWithReservationRequest,
        CreateGatewayReplicaRequest,
        TerminateGatewayReplicaRequest,
        CreateGatewayLoadBalancerRequest,
        TerminateGatewayLoadBalancerRequest,
        RegisterGatewayReplicaRequest,
        DeregisterGatewayReplicaRequest,
        RegisterVolumeRequest,
        CreateVolumeRequest,
        DeleteVolumeRequest,
        AttachVolumeRequest,
        DetachVolumeRequest,
        IsVolumeDetachedRequest,
        ListResourceGroupsRequest,
        DeleteResourceGroupRequest,
        ValidateConfigRequest,
        CreateConfigRequest,
        PublicViewRequest,
        DescribeConfigRequest,
        WithCredsRequest,
    );
    u.payload::<Manifest>("manifest");
    u.payload::<BackendError>("error");
    u.payload::<Described>("describe reply");
    u.payload::<HttpRequest>("http request");
    u.payload::<HttpReply>("http reply");
    for op in ["write", "finish", "read", "close"] {
        u.payload::<HttpStreamOp>(&format!("http {op}"));
    }
    u.payload::<HttpChunk>("http chunk");
    u.payload::<HttpWritten>("http written");
    u.payload::<CatalogQuery>("catalog request");
    u.payload::<CatalogReply>("catalog reply");
    u.payload::<CacheGet>("cache_get request");
    u.payload::<CacheAnswer>("cache_get reply");
    u.payload::<CachePut>("cache_put request");
    u.payload::<Now>("now reply");
    u.payload::<RandomBytes>("random request");
    u.payload::<Sleep>("sleep request");
    u.payload::<Cancelled>("cancelled reply");
    u.payload::<LedgerRequest>("ledger declare");
    u.payload::<LedgerRequest>("ledger settle");
    u.payload::<SshRequest>("ssh request");
    u.payload::<SshReply>("ssh reply");
    u.payload::<EnvironmentRequest>("environment request");
    u.payload::<EnvironmentReply>("environment reply");
    for op in [
        "facts",
        "start_shim",
        "find_shim",
        "stop_shim",
        "list_shims",
        "image_runtime",
    ] {
        u.payload::<MachineRequest>(&format!("machine {op}"));
    }
    u.payload::<MachineFacts>("machine facts reply");
    u.payload::<ShimState>("machine shim reply");
    u.payload::<FoundShim>("machine shims reply");
    u.payload::<ImageRuntime>("machine image reply");
    let unread: Vec<&String> = u
        .sent
        .keys()
        .filter(|name| !u.back.contains_key(*name))
        .collect();
    assert!(unread.is_empty(), "nobody reads {unread:?}");
    u
}

#[test]
fn every_method_has_its_payloads() {
    let u = understood("payloads.json");
    for (_, name, _) in ALL {
        assert!(u.sent.contains_key(&format!("{name} request")), "{name}");
    }
}

#[test]
fn payloads_are_as_written_down() {
    let u = understood("payloads.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let text = serde_json::to_string_pretty(&u.back).unwrap();
        std::fs::write(path("payloads.json"), text + "\n").unwrap();
        return;
    }
    for (name, sent) in &u.sent {
        assert_eq!(
            sent, &u.back[name],
            "{name} has changed: see the head of this file"
        );
    }
}

/// Whether all of `old` is in `new`, with the same values.
fn keeps(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => old
            .iter()
            .all(|(key, value)| new.get(key).is_some_and(|now| keeps(value, now))),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| keeps(old, new))
        }
        _ => old == new,
    }
}

#[test]
fn what_was_sent_in_1_0_is_understood_for_ever() {
    let u = understood("payloads-1.0.json");
    for (name, sent) in &u.sent {
        let back = &u.back[name];
        assert!(keeps(sent, back), "{name}\n1.0:   {sent}\ntoday: {back}");
    }
}
