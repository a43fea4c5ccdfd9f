//! Machines: made once, found, completed, gone.

use dstack_backend_types::methods::{ListResourceGroupsRequest, TerminateInstanceRequest};
use dstack_backend_types::{ErrorKind, JobProvisioningData, capability};

use super::{Check, Stop, Verdict};
use crate::calls::Caller;
use crate::cx::{Cx, ensure, fail, show, show_error};
use crate::host::Session;
use crate::http::{Fault, Which};
use crate::provider::Resource;
use crate::samples;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "create.made",
        title: "an offer becomes a machine with its data",
        why: "the server keeps what is returned and finds the machine by it",
        needs: None,
        run: made,
    },
    Check {
        id: "create.completes",
        title: "host name and port are known in the end",
        why: "the server waits for them, and gives up after the provisioning timeout",
        needs: None,
        run: completes,
    },
    Check {
        id: "create.idempotent",
        title: "the same `provider_ref` gives the same machine",
        why: "a call is repeated after a crash of the server: a second machine would be paid for and lost",
        needs: None,
        run: idempotent,
    },
    Check {
        id: "create.lost_answer",
        title: "a lost answer makes no second machine",
        why: "the provider said yes and nobody heard it: the next call must find the machine",
        needs: None,
        run: lost_answer,
    },
    Check {
        id: "create.reference",
        title: "the machine carries its `provider_ref` at the provider",
        why: "without it a machine whose answer was lost cannot be told from another's",
        needs: None,
        run: reference,
    },
    Check {
        id: "terminate.idempotent",
        title: "deleting again, or what never was, is a success",
        why: "the server repeats a deletion until it hears that it is done",
        needs: None,
        run: terminate_idempotent,
    },
    Check {
        id: "terminate.confirmed",
        title: "success means that the machine is gone",
        why: "the server forgets the machine then; one that still runs is paid for by nobody's knowledge",
        needs: None,
        run: terminate_confirmed,
    },
    Check {
        id: "terminate.gone",
        title: "a machine that is gone never becomes ready",
        why: "`provisioning` ends the wait at once; any other answer is asked again until the timeout",
        needs: None,
        run: gone,
    },
];

fn made(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    let data = cx.make(&caller, &offer, &samples::provider_ref()).map_err(|error| {
        fail(
            format!("a machine of type {} in {}", offer.instance.name, offer.region),
            show_error(&error),
            "the offers that `get_offers` calls available can be created; see the exchange for what the provider said",
        )
    })?;
    let has_shim = cx.has(capability::CREATE_INSTANCE);
    let rules = [
        (
            data.backend == offer.backend,
            "the offer's backend",
            data.backend.to_string(),
        ),
        (
            !data.instance_id.trim().is_empty(),
            "an instance id",
            "none".to_owned(),
        ),
        (
            data.region == offer.region,
            "the offer's region",
            data.region.clone(),
        ),
        (
            data.instance_type.name == offer.instance.name,
            "the offer's instance type",
            data.instance_type.name.clone(),
        ),
        (
            (data.price - offer.price).abs() < 1e-9,
            "the offer's price",
            data.price.to_string(),
        ),
        (
            !data.username.trim().is_empty(),
            "a user to log in as",
            "none".to_owned(),
        ),
        (
            data.dockerized == has_shim,
            "`dockerized` true with machines (the shim runs there), false with containers",
            data.dockerized.to_string(),
        ),
        (
            data.hostname.as_deref().is_none_or(|name| !name.is_empty()),
            "a host name or null",
            "an empty one".to_owned(),
        ),
    ];
    for (holds, expected, seen) in rules {
        ensure(
            holds,
            expected,
            || seen,
            "correct the `JobProvisioningData` that is returned",
        )?;
    }
    Ok(())
}

fn completes(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let first = cx.must_make(&caller, &samples::provider_ref())?;
    let data = cx.complete(&caller, &first)?;
    ensure(
        data.instance_id == first.instance_id && data.instance_type == first.instance_type,
        "the same machine",
        || format!("{} became {}", first.instance_id, data.instance_id),
        "`update_provisioning_data` adds what was not known and changes nothing else",
    )?;
    let again = cx.look(&caller, &data);
    ensure(
        matches!(&again, Ok(again) if again.hostname == data.hostname),
        "the same data when asked again",
        || show(&again),
        "a complete machine stays as it is",
    )
}

/// How many machines of the same kind as this one carry the reference, if that can be told.
pub(super) fn alike(cx: &Cx<'_>, caller: &Caller, provider_ref: &str, id: &str) -> Option<usize> {
    if let Some(inventory) = cx.inventory()
        && let Some(machine) = inventory.iter().find(|resource| resource.id == id)
    {
        let is_alike = |other: &&Resource| {
            other.kind == machine.kind && other.provider_ref.as_deref() == Some(provider_ref)
        };
        return Some(inventory.iter().filter(is_alike).count());
    }
    if cx.has(capability::RESOURCE_LISTING) {
        let groups = caller
            .call(&ListResourceGroupsRequest::default())
            .ok()?
            .groups;
        return Some(
            groups
                .iter()
                .filter(|group| group.provider_ref == provider_ref)
                .count(),
        );
    }
    None
}

fn idempotent(cx: &Cx<'_>) -> Verdict {
    const REMEDY: &str = "look for what carries the reference before anything is made: tag `dstack_provider_ref`, or the end of the name";
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    let reference = samples::provider_ref();
    let first = cx.must_make(&caller, &reference)?;
    let before = cx.inventory();
    let second = cx.make(&caller, &offer, &reference);
    ensure(
        matches!(&second, Ok(second) if second.instance_id == first.instance_id),
        "the first call's machine",
        || match &second {
            Ok(second) => format!("{} after {}", second.instance_id, first.instance_id),
            Err(error) => show_error(error),
        },
        REMEDY,
    )?;
    if let (Some(before), Some(after)) = (before, cx.inventory()) {
        ensure(
            after.len() == before.len(),
            "nothing new at the provider after the second call",
            || format!("{} things became {}", before.len(), after.len()),
            REMEDY,
        )?;
    }
    let other = cx.must_make(&caller, &samples::provider_ref())?;
    ensure(
        other.instance_id != first.instance_id,
        "another machine for another reference",
        || format!("{} twice", first.instance_id),
        "compare the whole reference",
    )
}

fn lost_answer(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    // How many requests change something on the way to a machine: each one's answer is lost in turn.
    let mark = cx.session.mark();
    cx.must_make(&caller, &samples::provider_ref())?;
    let changes = mutating(&cx.session, mark);
    if changes == 0 {
        return Err(super::skip_without_http());
    }
    for lost in 0..changes.min(6) {
        let reference = samples::provider_ref();
        cx.session
            .faults
            .set(Fault::LostAnswer, Which::Mutating, lost, 1);
        let first = cx.make(&caller, &offer, &reference);
        cx.session.faults.clear();
        let second = cx.make(&caller, &offer, &reference).map_err(|error| {
            fail(
                "the machine, when the call is repeated after a lost answer",
                show_error(&error),
                "look for what carries the reference first; a side resource that exists already is no error",
            )
        })?;
        if let Ok(first) = &first {
            ensure(
                first.instance_id == second.instance_id,
                "one machine after a lost answer",
                || format!("{} and {}", first.instance_id, second.instance_id),
                "repeat no request that makes something without looking whether it was made",
            )?;
        }
        if let Some(count) = alike(cx, &caller, &reference, &second.instance_id) {
            ensure(
                count <= 1,
                "one machine with the reference at the provider",
                || format!("{count} of them"),
                "look for what carries the reference before anything is made",
            )?;
        }
        let third = cx.make(&caller, &offer, &reference);
        ensure(
            matches!(&third, Ok(third) if third.instance_id == second.instance_id),
            "the same machine on every further call",
            || show(&third),
            "look for what carries the reference before anything is made",
        )?;
    }
    Ok(())
}

fn mutating(session: &Session, mark: usize) -> usize {
    session
        .requests_since(mark)
        .iter()
        .filter(|exchange| exchange.is_mutating())
        .count()
}

fn reference(cx: &Cx<'_>) -> Verdict {
    const REMEDY: &str =
        "tag everything with `tags::instance_tags`, or name it by `names::instance_name_with_ref`";
    let caller = cx.open()?;
    let reference = samples::provider_ref();
    let mark = cx.session.mark();
    let data = cx.must_make(&caller, &reference)?;
    if cx.has(capability::RESOURCE_LISTING) {
        let group = cx.group_of(&caller, &reference);
        // What was made beside it carries the reference too, and makes a group of its own.
        return ensure(
            matches!(&group, Ok(Some(group)) if group.primary_id.as_ref() == Some(&data.instance_id)),
            "a resource group with the reference and the machine",
            || match &group {
                Ok(Some(group)) => format!("the group has {:?}", group.primary_id),
                Ok(None) => format!("no group for {}", data.instance_id),
                Err(error) => show_error(error),
            },
            REMEDY,
        );
    }
    let requests = cx.session.requests_since(mark);
    if requests.is_empty() {
        return Err(super::skip_without_http());
    }
    let is_told = requests
        .iter()
        .filter(|exchange| exchange.is_mutating())
        .any(|exchange| {
            exchange.url.contains(&reference)
                || String::from_utf8_lossy(&exchange.body).contains(&reference)
        });
    ensure(
        is_told,
        "the reference in a request that makes the machine",
        || "nowhere".to_owned(),
        REMEDY,
    )
}

fn terminate_idempotent(cx: &Cx<'_>) -> Verdict {
    const REMEDY: &str = "a provider's `not found` is a success, and so is a state like `deleted`";
    let caller = cx.open()?;
    let data = cx.must_make(&caller, &samples::provider_ref())?;
    cx.terminate(&caller, &data)?;
    for _ in 0..2 {
        let answer = caller.call(&terminate_request(&data));
        ensure(
            answer.is_ok(),
            "success when deleted again",
            || show(&answer),
            REMEDY,
        )?;
    }
    let mut unknown = data;
    // Of the same form, so that the provider does not refuse it as no id at all.
    unknown.instance_id = unknown
        .instance_id
        .chars()
        .map(|c| match c {
            '0'..='8' => char::from(u8::try_from(c).unwrap_or(b'0') + 1),
            '9' => '0',
            other => other,
        })
        .collect();
    if unknown.instance_id.chars().all(|c| !c.is_ascii_digit()) {
        unknown.instance_id.push_str("-unknown");
    }
    let answer = caller.call(&terminate_request(&unknown));
    ensure(
        answer.is_ok(),
        "success for a machine that never was",
        || show(&answer),
        REMEDY,
    )
}

fn terminate_request(data: &JobProvisioningData) -> TerminateInstanceRequest {
    TerminateInstanceRequest {
        instance_id: data.instance_id.clone(),
        region: data.region.clone(),
        backend_data: data.backend_data.clone(),
    }
}

fn terminate_confirmed(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let reference = samples::provider_ref();
    let data = cx.must_make(&caller, &reference)?;
    cx.complete(&caller, &data)?;
    cx.terminate(&caller, &data)?;
    if let Some(inventory) = cx.inventory() {
        let left = inventory
            .iter()
            .find(|resource| resource.id == data.instance_id);
        ensure(
            left.is_none(),
            "no such machine at the provider",
            || {
                format!(
                    "{} {} still stands",
                    data.instance_id,
                    left.map_or("", |left| left.kind.as_str())
                )
            },
            "answer success only when the provider confirms; `not_yet_terminated` before",
        )?;
    } else if cx.has(capability::RESOURCE_LISTING) {
        let group = cx.group_of(&caller, &reference);
        ensure(
            matches!(&group, Ok(group) if group.as_ref().is_none_or(|group| group.primary_id.is_none())),
            "no group with the machine",
            || "the machine is still listed".to_owned(),
            "answer success only when the provider confirms; `not_yet_terminated` before",
        )?;
    }
    // A provider in trouble confirms nothing.
    let data = cx.must_make(&caller, &samples::provider_ref())?;
    cx.session.faults.all(Fault::Status(500, None));
    let answer = caller.call(&terminate_request(&data));
    if cx.session.faults.clear() == 0 {
        return Ok(());
    }
    ensure(
        answer.is_err(),
        "an error while the provider answers 500",
        || "success".to_owned(),
        "only `not found` counts as gone; pass every other error on",
    )
}

fn gone(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let data = cx.must_make(&caller, &samples::provider_ref())?;
    cx.terminate(&caller, &data)?;
    let answer = cx.look(&caller, &data);
    if let Err(error) = &answer
        && error.kind == ErrorKind::Provisioning
    {
        return Ok(());
    }
    if answer.is_ok() && data.hostname.is_some() && data.ssh_port.is_some() {
        return Err(Stop::Skip(
            "the machine's address is known at once, nothing is looked up".to_owned(),
        ));
    }
    Err(fail(
        "error `provisioning` from `update_provisioning_data`",
        show(&answer),
        "turn the provider's `not found`, and states that are the end, into `BackendError::provisioning`",
    ))
}
