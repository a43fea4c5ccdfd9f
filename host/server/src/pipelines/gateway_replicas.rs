//! The machines of gateways: made, found alive, put behind the balancer, ended.

use std::sync::Arc;
use std::time::Duration;

use dstack_backend_types::methods::{
    CreateGatewayReplicaRequest, DeregisterGatewayReplicaRequest, RegisterGatewayReplicaRequest,
    TerminateGatewayReplicaRequest,
};
use dstack_backend_types::{BackendError, GatewayProvisioningData};
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::gateways::replicas::{self, Answer, Call, Plan, View};
use dstack_engine::ids::GatewayReplicaId;
use dstack_remote::{Address, Hop};
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::{DbError, Tx, views};

use super::driver::{Pipe, StepError, finish, write_keeping};
use super::{Context, facts, gateway_calls};
use crate::clouds::call;

/// The account that gateway images have.
const USER: &str = "ubuntu";

/// The pipeline.
pub(super) struct GatewayReplicas;

impl Pipe for GatewayReplicas {
    type Id = GatewayReplicaId;
    const PIPELINE: Pipeline = Pipeline::GatewayReplicas;
    const WORKERS: usize = 10;

    fn claim(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<GatewayReplicaId>>, DbError> {
        lease::claim_gateway_replicas(tx, how)
    }

    async fn step(
        cx: Arc<Context>,
        lease: Lease<GatewayReplicaId>,
    ) -> Result<Option<Duration>, StepError> {
        let (id, now, known) = (lease.id(), cx.now(), Arc::clone(&cx.known));
        let view = cx
            .store
            .read(move |tx| views::gateway_replica(tx, id, now, &known))
            .await?;
        let Some(mut view) = view else {
            return finish(&cx, lease, Changes::nothing()).await;
        };
        match replicas::plan(&view) {
            Plan::Change(changes) => finish(&cx, lease, changes).await,
            Plan::Call(order, before) => {
                let Some(lease) = write_keeping(&cx, lease, before).await? else {
                    return Ok(Some(Duration::ZERO));
                };
                let answer = put(&cx, &view, &order).await?;
                view.now = cx.now();
                finish(&cx, lease, replicas::conclude(&view, &order, &answer)).await
            }
        }
    }
}

async fn put(cx: &Context, view: &View, order: &Call) -> Result<Answer, StepError> {
    let gateway = &view.gateway;
    let config = gateway_calls::of_replica(cx, gateway, &view.replica).await?;
    let (clouds, project) = (&*cx.clouds, gateway.project_id);
    let backend = &gateway.configuration.backend;
    let done = match order {
        Call::Create => {
            let request = CreateGatewayReplicaRequest { config };
            let made = call(clouds, project, backend, &request).await;
            return Ok(match made {
                Ok(reply) => Answer::Made(Box::new(reply.provisioning_data)),
                Err(error) => answer(order, error),
            });
        }
        Call::Connect(machine) => return connect(cx, view, machine).await,
        Call::Register(machine) => {
            let Some(balancer) = gateway.load_balancer.as_deref() else {
                return Ok(Answer::NotYet);
            };
            let request = RegisterGatewayReplicaRequest {
                config,
                load_balancer: balancer.clone(),
                replica: GatewayProvisioningData::clone(machine),
            };
            call(clouds, project, backend, &request).await
        }
        Call::Deregister(machine) => {
            let Some(balancer) = gateway.load_balancer.as_deref() else {
                return Ok(Answer::Done);
            };
            let request = DeregisterGatewayReplicaRequest {
                config,
                load_balancer: balancer.clone(),
                replica: GatewayProvisioningData::clone(machine),
            };
            call(clouds, project, backend, &request).await
        }
        Call::Terminate(machine) => {
            let request = TerminateGatewayReplicaRequest {
                instance_id: machine.instance_id.clone(),
                config,
                backend_data: machine.backend_data.clone(),
            };
            call(clouds, project, backend, &request).await
        }
    };
    Ok(match done {
        Ok(_) => Answer::Done,
        Err(error) => answer(order, error),
    })
}

fn answer(order: &Call, error: BackendError) -> Answer {
    use gateway_calls::Outcome;
    match gateway_calls::judge(error) {
        Outcome::Gone if matches!(order, Call::Terminate(_) | Call::Deregister(_)) => Answer::Done,
        Outcome::Gone => Answer::Refused("not found".to_owned()),
        Outcome::NotYet => Answer::NotYet,
        Outcome::Refused(why) => Answer::Refused(why),
        Outcome::Unknown(why) => Answer::Unknown(why),
    }
}

/// Looks for the agent on the machine.
async fn connect(
    cx: &Context,
    view: &View,
    machine: &GatewayProvisioningData,
) -> Result<Answer, StepError> {
    let project = facts::project(cx, view.gateway.project_id).await?;
    let key = match project.gateway_key(view.replica.id) {
        Ok(key) => key,
        Err(error) => return Ok(Answer::Unknown(error.to_string())),
    };
    let at = Address::ssh(Hop {
        host: machine.ip_address.clone(),
        port: 22,
        username: USER.to_owned(),
        private_key: key.private,
        machine: Some(view.replica.id.to_string()),
    });
    Ok(match cx.machines.gateway_version(&at).await {
        Ok(version) => {
            tracing::info!(gateway.replica = %view.replica.name, version, "the agent of a gateway answers");
            Answer::Done
        }
        Err(error) => Answer::Unknown(error.to_string()),
    })
}
