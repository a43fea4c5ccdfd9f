//! The last check: what all others heard.

use dstack_backend_types::methods::{ConfigWithCreds, HealthRequest, ValidateConfigRequest};
use dstack_backend_types::{Requirements, ResourcesSpec};

use super::{Check, Verdict};
use crate::cx::{Cx, ensure};
use crate::host::lock;
use crate::http::Fault;
use crate::samples;

pub(super) const CHECKS: &[Check] = &[Check {
    id: "secrets.nowhere",
    title: "no credential in any log, error, reply or ledger entry",
    why: "logs and errors are read by people who must not have the account's keys",
    needs: None,
    run: nowhere,
}];

fn nowhere(cx: &Cx<'_>) -> Verdict {
    // Providers quote what they refuse: "no such token abc".
    if let Ok(caller) = cx.open() {
        let offer = cx.pick(&caller);
        for status in [400, 401, 500] {
            cx.session.faults.all(Fault::Echo(status));
            let fresh = cx.open()?;
            drop(fresh.call(&HealthRequest {}));
            drop(cx.list(&fresh, Requirements::of(ResourcesSpec::unconstrained())));
            if let Ok(offer) = &offer {
                drop(cx.make(&fresh, offer, &samples::provider_ref()));
            }
            drop(cx.unconfigured()?.call(&ValidateConfigRequest {
                config: ConfigWithCreds(cx.plan.config.clone()),
                default_creds_enabled: false,
            }));
            cx.session.faults.clear();
        }
    }
    cx.plan.look_for_leaks("secrets.nowhere", &cx.session);
    let leaks = lock(&cx.plan.leaks).clone();
    let first = leaks.first().cloned().unwrap_or_default();
    ensure(
        leaks.is_empty(),
        "none of the configuration's credentials, of the project's private key and of the registry's password",
        || format!("{} places, the first: {first}", leaks.len()),
        "keep credentials in `Secret`, never format a request or a configuration, never quote a provider's whole reply",
    )
}
