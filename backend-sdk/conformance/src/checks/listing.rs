//! What stands in the account: found, listed as a whole or not at all, deleted.

use dstack_backend_types::methods::{DeleteResourceGroupRequest, ListResourceGroupsRequest};
use dstack_backend_types::{ResourceGroup, capability};

use super::{Check, Verdict, skip_without_http};
use crate::cx::{Cx, ensure, fail, show, show_error};
use crate::http::{Fault, Which};
use crate::samples;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "listing.found",
        title: "a machine is listed with its reference, region and id",
        why: "the server finds by it what was made by a call whose answer it never got",
        needs: Some(capability::RESOURCE_LISTING),
        run: found,
    },
    Check {
        id: "listing.whole",
        title: "a region is listed as a whole or not at all",
        why: "a living machine's disk, listed without the machine, looks like an orphan and is deleted",
        needs: Some(capability::RESOURCE_LISTING),
        run: whole,
    },
    Check {
        id: "listing.delete",
        title: "an orphan is deleted, again, and nothing else",
        why: "the clean-up runs every ten minutes and must never touch what is in use",
        needs: Some(capability::RESOURCE_LISTING),
        run: delete,
    },
];

fn found(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let reference = samples::provider_ref();
    let data = cx.must_make(&caller, &reference)?;
    let group = cx.group_of(&caller, &reference).map_err(|error| {
        fail(
            "groups",
            show_error(&error),
            "what cannot be listed stands in `failures`",
        )
    })?;
    let Some(group) = group else {
        return Err(fail(
            "a group with the machine's reference",
            "none",
            "list everything that carries a reference",
        ));
    };
    ensure(
        group.primary_id.as_deref() == Some(data.instance_id.as_str())
            && group.region == data.region,
        "the machine's id as `primary_id`, and its region",
        || format!("{:?} in {:?}", group.primary_id, group.region),
        "the same id and region as in the machine's data",
    )?;
    ensure(
        group
            .resources
            .first()
            .is_some_and(|first| first.id == data.instance_id),
        "the machine as the first of `resources`",
        || format!("{} resources", group.resources.len()),
        "the instance first, then what was made beside it",
    )?;
    let elsewhere = ListResourceGroupsRequest {
        regions: vec!["conformance-elsewhere".to_owned()],
    };
    if let Ok(listed) = caller.call(&elsewhere) {
        ensure(
            listed
                .groups
                .iter()
                .all(|group| group.region == "conformance-elsewhere"),
            "only groups of the regions that were asked for",
            || format!("{} groups of other regions", listed.groups.len()),
            "look at `request.regions`; empty means all",
        )?;
    }
    cx.terminate(&caller, &data)?;
    let after = cx.group_of(&caller, &reference);
    ensure(
        matches!(&after, Ok(None))
            || matches!(&after, Ok(Some(group)) if group.primary_id.is_none()),
        "the machine not listed once it is gone",
        || show(&after),
        "leave out what is being deleted or is gone",
    )
}

fn whole(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let reference = samples::provider_ref();
    cx.must_make(&caller, &reference)?;
    let mark = cx.session.mark();
    let all = caller
        .call(&ListResourceGroupsRequest::default())
        .map_err(|error| {
            fail(
                "groups",
                show_error(&error),
                "what cannot be listed stands in `failures`",
            )
        })?;
    let requests = cx.requests_since(mark);
    if requests == 0 {
        return Err(skip_without_http());
    }
    for failing in 0..requests.min(12) {
        // For good, not once: a repeated request would hide it.
        for times in [1, usize::MAX] {
            cx.session
                .faults
                .set(Fault::Status(500, None), Which::All, failing, times);
            let answer = caller.call(&ListResourceGroupsRequest::default());
            let applied = cx.session.faults.clear();
            let Ok(listed) = answer else { continue };
            if applied == 0 || (times == 1 && listed.groups == all.groups) {
                continue;
            }
            ensure(
                !listed.failures.is_empty(),
                "an error, or the region in `failures`, when a listing fails",
                || {
                    format!(
                        "{} of {} groups and no failure",
                        listed.groups.len(),
                        all.groups.len()
                    )
                },
                "gather all listings of a region before any of its groups is returned",
            )?;
            let half = listed.groups.iter().find(|group| {
                listed
                    .failures
                    .iter()
                    .any(|failure| failure.region == group.region)
            });
            ensure(
                half.is_none(),
                "no group of a region that stands in `failures`",
                || {
                    half.map_or_else(String::new, |group| {
                        format!("{} of {}", group.provider_ref, group.region)
                    })
                },
                "gather all listings of a region before any of its groups is returned",
            )?;
        }
    }
    Ok(())
}

fn delete(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let kept = samples::provider_ref();
    let kept_machine = cx.must_make(&caller, &kept)?;
    let reference = samples::provider_ref();
    cx.must_make(&caller, &reference)?;
    // Each pass lists what is left and calls again, as the server does.
    let mut last: Option<ResourceGroup> = None;
    for _ in 0..60 {
        let group = cx.group_of(&caller, &reference).map_err(|error| {
            fail(
                "groups",
                show_error(&error),
                "what cannot be listed stands in `failures`",
            )
        })?;
        let Some(group) = group.or_else(|| last.clone()) else {
            return Err(fail(
                "a group with the machine's reference",
                "none",
                "list everything that carries a reference",
            ));
        };
        let answer = caller.call(&DeleteResourceGroupRequest {
            group: group.clone(),
        });
        last = Some(group);
        match answer {
            Ok(_) if matches!(cx.group_of(&caller, &reference), Ok(None)) => break,
            Ok(_) => {}
            Err(error) if error.kind == dstack_backend_types::ErrorKind::NotYetTerminated => {}
            Err(error) => {
                return Err(fail(
                    "the group gone, or `not_yet_terminated`",
                    show_error(&error),
                    "the instance first; `not_yet_terminated` between steps",
                ));
            }
        }
        cx.session.advance(std::time::Duration::from_secs(600));
    }
    let left = cx.inventory().unwrap_or_default();
    ensure(
        !left
            .iter()
            .any(|resource| resource.provider_ref.as_deref() == Some(reference.as_str())),
        "nothing with the reference at the provider",
        || format!("{} things stand", left.len()),
        "delete everything of the group, in the order that the provider needs",
    )?;
    if let Some(group) = last {
        let answer = caller.call(&DeleteResourceGroupRequest { group });
        ensure(
            answer.is_ok(),
            "success when deleted again",
            || show(&answer),
            "what is gone already is a success",
        )?;
    }
    let still = cx.group_of(&caller, &kept);
    ensure(
        matches!(&still, Ok(Some(group)) if group.primary_id.as_deref() == Some(kept_machine.instance_id.as_str())),
        "the other machine untouched",
        || show(&still),
        "delete only what carries the group's reference",
    )
}
