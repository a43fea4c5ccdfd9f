//! Network volumes.

use dstack_backend_types::methods::{
    AttachVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest, DetachVolumeRequest,
    IsVolumeDetachedRequest, RegisterVolumeRequest,
};
use dstack_backend_types::{ErrorKind, Volume, capability};

use super::{Check, Stop, Verdict};
use crate::calls::Caller;
use crate::cx::{Cx, ensure, fail, show, show_error};
use crate::samples;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "volumes.create",
        title: "a volume is made once, deleted, and deleted again",
        why: "volumes hold data and cost money: neither a second nor a forgotten one",
        needs: Some(capability::VOLUMES),
        run: create,
    },
    Check {
        id: "volumes.register",
        title: "a volume made outside is taken over, an unknown one refused",
        why: "users bring the data they have",
        needs: Some(capability::VOLUMES),
        run: register,
    },
    Check {
        id: "volumes.attach",
        title: "attached, detached, and each again",
        why: "the server repeats both until it hears that they are done",
        needs: Some(capability::VOLUMES),
        run: attach,
    },
];

/// A volume where an offer is.
fn wanted(cx: &Cx<'_>, caller: &Caller, reference: &str) -> Result<Volume, Stop> {
    let offer = cx.pick(caller)?;
    let zone = offer
        .availability_zones
        .and_then(|zones| zones.into_iter().next());
    Ok(samples::volume(
        &cx.plan.manifest.name,
        &offer.region,
        zone,
        reference,
    ))
}

/// Makes it; skips backends that only take over.
fn make(caller: &Caller, mut volume: Volume) -> Result<Volume, Stop> {
    let answer = caller.call(&CreateVolumeRequest {
        volume: volume.clone(),
    });
    match answer {
        Ok(reply) => {
            volume.volume_id = Some(reply.provisioning_data.volume_id.clone());
            volume.provisioning_data = Some(reply.provisioning_data);
            Ok(volume)
        }
        Err(error) if error.kind == ErrorKind::Unsupported => {
            Err(Stop::Skip("the backend only takes over volumes".to_owned()))
        }
        Err(error) => Err(fail(
            "a volume of 100 GB",
            show_error(&error),
            "see the exchange for what the provider said",
        )),
    }
}

fn delete(caller: &Caller, cx: &Cx<'_>, volume: &Volume) -> Verdict {
    let request = DeleteVolumeRequest {
        volume: volume.clone(),
    };
    cx.until_gone(caller, &request, "the volume").map(|_| ())
}

fn create(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let reference = samples::provider_ref();
    let asked = wanted(cx, &caller, &reference)?;
    let before = cx.inventory();
    let volume = make(&caller, asked.clone())?;
    let data = volume.provisioning_data.clone();
    let (id, size) = data.map_or((String::new(), None), |data| (data.volume_id, data.size_gb));
    ensure(
        !id.is_empty(),
        "the volume's id",
        || "none".to_owned(),
        "return the provider's id",
    )?;
    ensure(
        size.is_none_or(|size| size >= 100),
        "a size of at least the 100 GB that were asked for, in GB",
        || format!("{size:?}"),
        "round up to what the provider sells; `size_gb` is in GB",
    )?;
    let again = make(&caller, asked)?;
    let second = again.volume_id.clone();
    if second.as_deref() != Some(id.as_str()) {
        delete(&caller, cx, &again)?;
    }
    ensure(
        second.as_deref() == Some(id.as_str()),
        "the same volume for the same reference",
        || format!("{second:?} after {id}"),
        "look for what carries `volume.provider_ref` before one is made",
    )?;
    delete(&caller, cx, &volume)?;
    let answer = caller.call(&DeleteVolumeRequest {
        volume: volume.clone(),
    });
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
            "delete all that was made for the volume",
        )?;
    }
    Ok(())
}

fn register(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let mut asked = wanted(cx, &caller, &samples::provider_ref())?;
    asked.external = true;
    asked.configuration.volume_id = Some("conformance-unknown-volume".to_owned());
    let answer = caller.call(&RegisterVolumeRequest {
        volume: asked.clone(),
    });
    ensure(
        matches!(&answer, Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Invalid)),
        "error `not_found` for a volume that the provider does not know",
        || show(&answer),
        "ask the provider for the volume; turn its `not found` into `BackendError::not_found`",
    )?;
    let volume = make(&caller, wanted(cx, &caller, &samples::provider_ref())?)?;
    asked.configuration.volume_id = volume.volume_id.clone();
    let answer = caller.call(&RegisterVolumeRequest { volume: asked });
    let is_same = matches!(&answer, Ok(reply) if Some(&reply.provisioning_data.volume_id) == volume.volume_id.as_ref());
    delete(&caller, cx, &volume)?;
    ensure(
        is_same,
        "the data of the volume that is there",
        || show(&answer),
        "return the provider's id of the volume",
    )
}

fn attach(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let volume = make(&caller, wanted(cx, &caller, &samples::provider_ref())?)?;
    let facts = volume.provisioning_data.clone();
    let (attachable, detachable) =
        facts.map_or((true, true), |data| (data.attachable, data.detachable));
    if !attachable {
        delete(&caller, cx, &volume)?;
        return Err(Stop::Skip(
            "volumes are given to the machine when it is made".to_owned(),
        ));
    }
    let machine = cx.must_make(&caller, &samples::provider_ref())?;
    let machine = cx.complete(&caller, &machine)?;
    let request = AttachVolumeRequest {
        volume: volume.clone(),
        provisioning_data: machine.clone(),
    };
    let mut volume = volume;
    for which in ["once", "again"] {
        let answer = caller.call(&request);
        ensure(
            answer.is_ok(),
            &format!("the volume attached {which}"),
            || show(&answer),
            "attached to this very machine already is a success",
        )?;
        volume.attachment_data = answer.ok().map(|reply| reply.attachment_data);
    }
    if detachable {
        let request = DetachVolumeRequest {
            volume: volume.clone(),
            provisioning_data: machine.clone(),
            force: false,
        };
        for which in ["once", "again"] {
            let answer = caller.call(&request);
            ensure(
                answer.is_ok(),
                &format!("the volume detached {which}"),
                || show(&answer),
                "not attached is a success",
            )?;
        }
        is_off(cx, &caller, &volume, &machine)?;
    }
    cx.terminate(&caller, &machine)?;
    delete(&caller, cx, &volume)
}

fn is_off(
    cx: &Cx<'_>,
    caller: &Caller,
    volume: &Volume,
    machine: &dstack_backend_types::JobProvisioningData,
) -> Verdict {
    for _ in 0..60 {
        let request = IsVolumeDetachedRequest {
            volume: volume.clone(),
            provisioning_data: machine.clone(),
        };
        let answer = caller.call(&request);
        match answer {
            Ok(reply) if reply.detached => return Ok(()),
            Ok(_) => cx.session.advance(std::time::Duration::from_secs(5)),
            Err(error) => {
                return Err(fail(
                    "an answer from `is_volume_detached`",
                    show_error(&error),
                    "a volume or machine that is gone is detached",
                ));
            }
        }
    }
    Err(fail(
        "the volume off within 5 minutes",
        "`is_volume_detached` still says no",
        "read the state from the provider each time",
    ))
}
