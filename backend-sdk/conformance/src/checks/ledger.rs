//! Side resources: written down before they are made, gone at the end.

use std::sync::atomic::Ordering;

use dstack_backend_types::services::LedgerRequest;

use super::{Check, Stop, Verdict, skip_without_http};
use crate::cx::{Cx, ensure};
use crate::host::Event;
use crate::samples;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "ledger.before",
        title: "side resources are declared before they are made",
        why: "what is made first and written down later is lost if the server dies in between",
        needs: None,
        run: before,
    },
    Check {
        id: "ledger.end",
        title: "side resources are gone when the machine is",
        why: "a forgotten disk or address is paid for by the month",
        needs: None,
        run: end,
    },
];

/// Skips plugins whose creations nobody can look into.
fn watched(cx: &Cx<'_>) -> Result<(), Stop> {
    if cx.plan.provider.is_none() {
        return Err(skip_without_http());
    }
    if cx.inventory().is_none() {
        return Err(Stop::Skip(
            "the provider has no inventory: script it with `FakeProvider::inventory`".to_owned(),
        ));
    }
    Ok(())
}

fn before(cx: &Cx<'_>) -> Verdict {
    watched(cx)?;
    let caller = cx.open()?;
    let reference = samples::provider_ref();
    let mark = cx.session.mark();
    cx.session.watches.store(true, Ordering::SeqCst);
    let data = cx.must_make(&caller, &reference);
    cx.session.watches.store(false, Ordering::SeqCst);
    let data = data?;
    let mut declared = Vec::new();
    let mut used = 0;
    for event in cx.session.since(mark) {
        match event {
            Event::Ledger(LedgerRequest::Declare { resource }) => {
                ensure(
                    resource.provider_ref == reference,
                    "the reference of the call in the ledger",
                    || format!("{:?}", resource.provider_ref),
                    "declare with `config.provider_ref`",
                )?;
                let entry = (resource.kind.clone(), resource.name.clone());
                // Declared again with its id: the same entry.
                if !declared.contains(&entry) {
                    declared.push(entry);
                }
            }
            Event::Http(exchange) => {
                for added in exchange
                    .added
                    .iter()
                    .filter(|added| added.id != data.instance_id)
                {
                    used += 1;
                    ensure(
                        declared.len() >= used,
                        "a declaration in the ledger before the request that makes a side resource",
                        || {
                            format!(
                                "{} makes {} {}, with {} declared before",
                                exchange.line(),
                                added.kind,
                                added.id,
                                declared.len()
                            )
                        },
                        "`host::ledger::declare` comes back when it is stored: make the thing after that",
                    )?;
                }
            }
            Event::Ledger(LedgerRequest::Settle { .. })
            | Event::Log { .. }
            | Event::Begin { .. }
            | Event::Reply { .. }
            | Event::Error { .. } => {}
        }
    }
    Ok(())
}

fn end(cx: &Cx<'_>) -> Verdict {
    watched(cx)?;
    let caller = cx.open()?;
    let reference = samples::provider_ref();
    let before = cx.inventory().unwrap_or_default();
    let data = cx.must_make(&caller, &reference)?;
    cx.complete(&caller, &data)?;
    cx.terminate(&caller, &data)?;
    cx.clean_up(&caller, &reference)?;
    let after = cx.inventory().unwrap_or_default();
    let left: Vec<String> = after
        .iter()
        .filter(|resource| !before.contains(resource))
        .map(|resource| format!("{} {}", resource.kind, resource.id))
        .collect();
    ensure(
        left.is_empty(),
        "nothing at the provider that was not there before",
        || left.join(", "),
        "delete side resources with the machine, or declare them to the ledger: the server then deletes them",
    )
}
