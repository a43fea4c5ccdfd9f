//! Gateways: their load balancers, and how many machines they have.

use std::sync::Arc;
use std::time::Duration;

use dstack_backend_types::methods::{
    CreateGatewayLoadBalancerRequest, TerminateGatewayLoadBalancerRequest,
};
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::gateways::{self, Answer, Call, Plan, View};
use dstack_engine::ids::GatewayId;
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::{DbError, Tx, views};

use super::driver::{Pipe, StepError, chance, finish, write_keeping};
use super::{Context, gateway_calls};
use crate::clouds::call;

/// The pipeline.
pub(super) struct Gateways;

impl Pipe for Gateways {
    type Id = GatewayId;
    const PIPELINE: Pipeline = Pipeline::Gateways;
    const WORKERS: usize = 10;

    fn claim(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<GatewayId>>, DbError> {
        lease::claim_gateways(tx, how)
    }

    async fn step(
        cx: Arc<Context>,
        lease: Lease<GatewayId>,
    ) -> Result<Option<Duration>, StepError> {
        let (id, now, known) = (lease.id(), cx.now(), Arc::clone(&cx.known));
        let view = cx
            .store
            .read(move |tx| views::gateway(tx, id, now, &known))
            .await?;
        let Some(mut view) = view else {
            return finish(&cx, lease, Changes::nothing()).await;
        };
        match gateways::plan(&view, &mut chance()) {
            Plan::Change(changes) => finish(&cx, lease, changes).await,
            Plan::Call(order, before) => {
                let Some(lease) = write_keeping(&cx, lease, before).await? else {
                    return Ok(Some(Duration::ZERO));
                };
                let answer = put(&cx, &view, order).await?;
                view.now = cx.now();
                finish(&cx, lease, gateways::conclude(&view, order, &answer)).await
            }
        }
    }
}

async fn put(cx: &Context, view: &View, order: Call) -> Result<Answer, StepError> {
    use gateway_calls::Outcome;
    let row = &view.gateway;
    let config = gateway_calls::of_balancer(cx, row).await?;
    let (clouds, project, backend) = (&*cx.clouds, row.project_id, &row.configuration.backend);
    let failed = match order {
        Call::CreateBalancer => {
            let request = CreateGatewayLoadBalancerRequest { config };
            match call(clouds, project, backend, &request).await {
                Ok(reply) => return Ok(Answer::Balancer(Box::new(reply.load_balancer))),
                Err(error) => error,
            }
        }
        Call::DeleteBalancer => {
            let Some(balancer) = row.load_balancer.as_deref() else {
                return Ok(Answer::Deleted);
            };
            let request = TerminateGatewayLoadBalancerRequest {
                config,
                load_balancer: balancer.clone(),
            };
            match call(clouds, project, backend, &request).await {
                Ok(_) => return Ok(Answer::Deleted),
                Err(error) => error,
            }
        }
    };
    Ok(match gateway_calls::judge(failed) {
        Outcome::Gone if order == Call::DeleteBalancer => Answer::Deleted,
        Outcome::Gone => Answer::Refused("not found".to_owned()),
        Outcome::NotYet => Answer::NotYet,
        Outcome::Refused(why) => Answer::Refused(why),
        Outcome::Unknown(why) => Answer::Unknown(why),
    })
}
