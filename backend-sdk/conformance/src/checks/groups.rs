//! All nodes of a cluster by one call.

use std::collections::BTreeSet;

use dstack_backend_types::methods::{RunJobsReply, RunJobsRequest, TerminateComputeGroupRequest};
use dstack_backend_types::{
    BackendError, ComputeGroup, InstanceOfferWithAvailability, JobConfiguration, Requirements,
    ResourcesSpec, capability,
};
use uuid::Uuid;

use super::{Check, Verdict};
use crate::calls::Caller;
use crate::cx::{Cx, ensure, fail, is_without_login, show, show_error};
use crate::http::{Fault, Which};
use crate::samples;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "groups.lifecycle",
        title: "a group has one node for each job, and goes as a whole",
        why: "jobs are matched with nodes by their order",
        needs: Some(capability::GROUP_PROVISIONING),
        run: lifecycle,
    },
    Check {
        id: "groups.all_or_none",
        title: "a group that cannot be made whole leaves no node behind",
        why: "half a cluster runs nothing and costs the same",
        needs: Some(capability::GROUP_PROVISIONING),
        run: all_or_none,
    },
];

fn request(offer: &InstanceOfferWithAvailability) -> RunJobsRequest {
    let reference = samples::provider_ref();
    RunJobsRequest {
        run: samples::run(),
        jobs: (0..2)
            .map(|number| JobConfiguration {
                job: samples::job(&reference, number, 2),
                volumes: Vec::new(),
            })
            .collect(),
        offer: offer.clone(),
        project_key: samples::key(),
        placement_group: None,
        requirements: Requirements::of(ResourcesSpec::unconstrained()),
        extra_authorized_keys: vec![samples::USER_KEY.to_owned()],
    }
}

/// Makes a group; where the provider has no login to registries, one whose image needs none.
fn start(
    caller: &Caller,
    offer: &InstanceOfferWithAvailability,
) -> Result<RunJobsReply, BackendError> {
    let mut request = request(offer);
    let first = caller.call(&request);
    if !is_without_login(&first) {
        return first;
    }
    for job in &mut request.jobs {
        job.job.registry_auth = None;
    }
    caller.call(&request)
}

fn lifecycle(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    let before = cx.inventory();
    let group = start(&caller, &offer)
        .map_err(|error| {
            fail(
                "a group of two nodes",
                show_error(&error),
                "see the exchange for what the provider said",
            )
        })?
        .group;
    let nodes = &group.job_provisioning_datas;
    let ids: BTreeSet<&str> = nodes.iter().map(|node| node.instance_id.as_str()).collect();
    let is_good = nodes.len() == 2 && ids.len() == 2 && !group.compute_group_id.is_empty();
    let seen = format!(
        "{} nodes with {} ids in group {:?}",
        nodes.len(),
        ids.len(),
        group.compute_group_id
    );
    let request = TerminateComputeGroupRequest {
        group: ComputeGroup {
            id: Uuid::new_v4(),
            project_name: "main".to_owned(),
            name: None,
            provisioning_data: group,
        },
    };
    cx.until_gone(&caller, &request, "the group")?;
    ensure(
        is_good,
        "two nodes with ids of their own, in a group with an id",
        || seen,
        "one entry for each job, in their order",
    )?;
    let answer = caller.call(&request);
    ensure(
        answer.is_ok(),
        "success when deleted again",
        || show(&answer),
        "a provider's `not found` is a success",
    )?;
    nothing_new(cx, before)
}

fn nothing_new(cx: &Cx<'_>, before: Option<Vec<crate::provider::Resource>>) -> Verdict {
    if let (Some(before), Some(after)) = (before, cx.inventory()) {
        ensure(
            after.len() <= before.len(),
            "nothing left at the provider",
            || format!("{} things became {}", before.len(), after.len()),
            "delete every node, and what was made beside them",
        )?;
    }
    Ok(())
}

fn all_or_none(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    let before = cx.inventory();
    // The second change is refused, once: cleaning up after it is possible.
    cx.session
        .faults
        .set(Fault::Status(400, None), Which::Mutating, 1, 1);
    let answer = start(&caller, &offer);
    if cx.session.faults.clear() == 0 {
        if let Ok(reply) = answer {
            let group = ComputeGroup {
                id: Uuid::new_v4(),
                project_name: "main".to_owned(),
                name: None,
                provisioning_data: reply.group,
            };
            cx.until_gone(
                &caller,
                &TerminateComputeGroupRequest { group },
                "the group",
            )?;
        }
        return Err(super::Stop::Skip(
            "the group is made by one request".to_owned(),
        ));
    }
    ensure(
        answer.is_err(),
        "an error for a group of which one node was refused",
        || show(&answer),
        "all nodes or none",
    )?;
    nothing_new(cx, before)
}
