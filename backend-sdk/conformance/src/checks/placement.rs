//! Placement groups.

use dstack_backend_types::methods::{
    CreatePlacementGroupRequest, DeletePlacementGroupRequest, IsSuitablePlacementGroupRequest,
};
use dstack_backend_types::{ErrorKind, capability};

use super::{Check, Stop, Verdict};
use crate::cx::{Cx, ensure, fail, show, show_error};
use crate::samples;

pub(super) const CHECKS: &[Check] = &[Check {
    id: "placement.lifecycle",
    title: "a placement group is made, judged without requests, deleted, and deleted again",
    why: "the scheduler judges every offer by it, hundreds at a time",
    needs: Some(capability::PLACEMENT_GROUPS),
    run: lifecycle,
}];

fn lifecycle(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    let mut group = samples::placement_group(
        &cx.plan.manifest.name,
        &offer.region,
        &samples::provider_ref(),
    );
    let before = cx.inventory();
    let answer = caller.call(&CreatePlacementGroupRequest {
        placement_group: group.clone(),
        master_offer: offer.offer(),
    });
    group.provisioning_data = match answer {
        Ok(reply) => Some(reply.provisioning_data),
        Err(error) if error.kind == ErrorKind::PlacementGroupNotSupported => {
            return Err(Stop::Skip(format!(
                "{} cannot be placed",
                offer.instance.name
            )));
        }
        Err(error) => {
            return Err(fail(
                "a placement group",
                show_error(&error),
                "`placement_group_not_supported` for types that cannot be placed",
            ));
        }
    };
    let suits = |region: &str| {
        let mut other = offer.offer();
        region.clone_into(&mut other.region);
        caller.call(&IsSuitablePlacementGroupRequest {
            placement_group: group.clone(),
            offer: other,
        })
    };
    let mark = cx.session.mark();
    let here = suits(&offer.region);
    let elsewhere = suits("conformance-elsewhere");
    ensure(
        cx.requests_since(mark) == 0,
        "no request from `is_suitable_placement_group`",
        || format!("{} requests", cx.requests_since(mark)),
        "decide from the group's and the offer's data alone",
    )?;
    ensure(
        matches!(&here, Ok(reply) if reply.suitable),
        "the group's own offer suitable",
        || show(&here),
        "compare regions",
    )?;
    ensure(
        matches!(&elsewhere, Ok(reply) if !reply.suitable),
        "an offer of another region not suitable",
        || "suitable".to_owned(),
        "compare regions",
    )?;
    let request = DeletePlacementGroupRequest {
        placement_group: group.clone(),
    };
    cx.until_gone(&caller, &request, "the placement group")?;
    let answer = caller.call(&request);
    ensure(
        answer.is_ok(),
        "success when deleted again",
        || show(&answer),
        "a provider's `not found` is a success",
    )?;
    if let (Some(before), Some(after)) = (before, cx.inventory()) {
        ensure(
            after.len() <= before.len(),
            "nothing left at the provider",
            || format!("{} things became {}", before.len(), after.len()),
            "delete the group at the provider",
        )?;
    }
    Ok(())
}
