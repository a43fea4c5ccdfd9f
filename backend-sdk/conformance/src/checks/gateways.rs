//! Gateway machines and their load balancers.

use dstack_backend_types::methods::{
    CreateGatewayLoadBalancerRequest, CreateGatewayReplicaRequest, DeregisterGatewayReplicaRequest,
    RegisterGatewayReplicaRequest, TerminateGatewayLoadBalancerRequest,
    TerminateGatewayReplicaRequest,
};
use dstack_backend_types::{GatewayComputeConfiguration, GatewayProvisioningData, capability};

use super::{Check, Stop, Verdict};
use crate::calls::Caller;
use crate::cx::{Cx, ensure, fail, show, show_error};
use crate::samples;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "gateways.replica",
        title: "a gateway machine is made once with its address, and deleted",
        why: "services are published at its address",
        needs: Some(capability::GATEWAY),
        run: replica,
    },
    Check {
        id: "gateways.load_balancer",
        title: "a load balancer takes machines in and out, each twice",
        why: "the server repeats every step until it hears that it is done",
        needs: Some(capability::GATEWAY_LOAD_BALANCER),
        run: load_balancer,
    },
];

fn wanted(cx: &Cx<'_>, caller: &Caller) -> Result<GatewayComputeConfiguration, Stop> {
    let offer = cx.pick(caller)?;
    Ok(samples::gateway(
        &cx.plan.manifest.name,
        &offer.region,
        &samples::provider_ref(),
    ))
}

fn make(
    caller: &Caller,
    config: &GatewayComputeConfiguration,
) -> Result<GatewayProvisioningData, Stop> {
    let answer = caller.call(&CreateGatewayReplicaRequest {
        config: config.clone(),
    });
    answer
        .map(|reply| reply.provisioning_data)
        .map_err(|error| {
            fail(
                "a gateway machine",
                show_error(&error),
                "see the exchange for what the provider said",
            )
        })
}

fn end(
    cx: &Cx<'_>,
    caller: &Caller,
    config: &GatewayComputeConfiguration,
    data: &GatewayProvisioningData,
) -> Verdict {
    let request = TerminateGatewayReplicaRequest {
        instance_id: data.instance_id.clone(),
        config: config.clone(),
        backend_data: data.backend_data.clone(),
    };
    cx.until_gone(caller, &request, "the gateway machine")?;
    let answer = caller.call(&request);
    ensure(
        answer.is_ok(),
        "success when deleted again",
        || show(&answer),
        "a provider's `not found` is a success",
    )
}

fn replica(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let config = wanted(cx, &caller)?;
    let before = cx.inventory();
    let data = make(&caller, &config)?;
    ensure(
        !data.ip_address.is_empty() && !data.instance_id.is_empty() && data.region == config.region,
        "id, address and region of the gateway machine",
        || format!("{:?}", (&data.instance_id, &data.ip_address, &data.region)),
        "wait for the address with `host::sleep`",
    )?;
    let second = make(&caller, &config)?;
    if second.instance_id != data.instance_id {
        end(cx, &caller, &config, &second)?;
    }
    ensure(
        second.instance_id == data.instance_id,
        "the same machine for the same reference",
        || format!("{} after {}", second.instance_id, data.instance_id),
        "look for what carries `config.provider_ref` before one is made",
    )?;
    end(cx, &caller, &config, &data)?;
    if let Some(reference) = &config.provider_ref {
        cx.clean_up(&caller, reference)?;
    }
    if let (Some(before), Some(after)) = (before, cx.inventory()) {
        ensure(
            after.len() <= before.len(),
            "nothing left at the provider",
            || format!("{} things became {}", before.len(), after.len()),
            "delete what was made beside the machine too",
        )?;
    }
    Ok(())
}

fn load_balancer(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let config = wanted(cx, &caller)?;
    let replica = make(&caller, &config)?;
    let answer = caller.call(&CreateGatewayLoadBalancerRequest {
        config: config.clone(),
    });
    let load_balancer = match answer {
        Ok(reply) => reply.load_balancer,
        Err(error) => {
            end(cx, &caller, &config, &replica)?;
            return Err(fail(
                "a load balancer",
                show_error(&error),
                "see the exchange for what the provider said",
            ));
        }
    };
    ensure(
        !load_balancer.hostname.is_empty(),
        "the name to publish",
        || "none".to_owned(),
        "return the provider's name",
    )?;
    for _ in 0..2 {
        let answer = caller.call(&RegisterGatewayReplicaRequest {
            config: config.clone(),
            load_balancer: load_balancer.clone(),
            replica: replica.clone(),
        });
        ensure(
            answer.is_ok(),
            "the machine taken in, twice",
            || show(&answer),
            "behind it already is a success",
        )?;
    }
    for _ in 0..2 {
        let answer = caller.call(&DeregisterGatewayReplicaRequest {
            config: config.clone(),
            load_balancer: load_balancer.clone(),
            replica: replica.clone(),
        });
        ensure(
            answer.is_ok(),
            "the machine taken out, twice",
            || show(&answer),
            "not behind it is a success",
        )?;
    }
    let request = TerminateGatewayLoadBalancerRequest {
        config: config.clone(),
        load_balancer,
    };
    cx.until_gone(&caller, &request, "the load balancer")?;
    let answer = caller.call(&request);
    ensure(
        answer.is_ok(),
        "success when deleted again",
        || show(&answer),
        "a provider's `not found` is a success",
    )?;
    end(cx, &caller, &config, &replica)
}
