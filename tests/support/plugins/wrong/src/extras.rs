//! Gateways, load balancers, placement groups, and groups of nodes.

use std::time::Duration;

use dstack_backend_sdk::capabilities::{
    GatewayLoadBalancer, Gateways, GroupProvisioning, PlacementGroups,
};
use dstack_backend_sdk::types::methods::{
    CreateGatewayLoadBalancerReply, CreateGatewayLoadBalancerRequest, CreateGatewayReplicaReply,
    CreateGatewayReplicaRequest, CreatePlacementGroupReply, CreatePlacementGroupRequest,
    DeletePlacementGroupRequest, DeregisterGatewayReplicaRequest, Done,
    IsSuitablePlacementGroupReply, IsSuitablePlacementGroupRequest, RegisterGatewayReplicaRequest,
    RunJobsReply, RunJobsRequest, TerminateComputeGroupRequest,
    TerminateGatewayLoadBalancerRequest, TerminateGatewayReplicaRequest,
};
use dstack_backend_sdk::types::{
    BackendType, ComputeGroupProvisioningData, GatewayLoadBalancerData, GatewayProvisioningData,
    JobProvisioningData, PlacementGroupProvisioningData,
};
use dstack_backend_sdk::{BackendError, host};
use serde::Deserialize;
use serde_json::{from_value, json};

use crate::Wrong;
use crate::cloud::Machine;
use crate::config::Defect;

/// Of a thing that was made: its id.
#[derive(Debug, Deserialize)]
struct Made {
    id: String,
}

impl Gateways for Wrong {
    fn create_gateway_replica(
        &self,
        request: &CreateGatewayReplicaRequest,
    ) -> Result<CreateGatewayReplicaReply, BackendError> {
        let config = &request.config;
        let reference = config.provider_ref.clone().unwrap_or_default();
        let known: Vec<Machine> = self
            .cloud
            .list(&format!("/v1/gateways?reference={reference}"))?;
        let found = known
            .into_iter()
            .next()
            .filter(|_| !self.cloud.has(Defect::GatewayTwice));
        let mut machine = match found {
            Some(machine) => machine,
            None => self.cloud.post(
                "/v1/gateways",
                &json!({"name": config.instance_name, "reference": reference, "region": config.region}),
            )?,
        };
        let address = loop {
            if let Some(address) = machine.address {
                break address;
            }
            host::sleep(Duration::from_secs(2))?;
            machine = self
                .cloud
                .find(&format!("/v1/gateways/{}", machine.id))?
                .ok_or_else(|| BackendError::provisioning("the gateway machine is gone"))?;
        };
        Ok(CreateGatewayReplicaReply {
            provisioning_data: GatewayProvisioningData {
                instance_id: machine.id,
                ip_address: address,
                region: config.region.clone(),
                availability_zone: None,
                hostname: None,
                backend_data: None,
            },
        })
    }

    fn terminate_gateway_replica(
        &self,
        request: &TerminateGatewayReplicaRequest,
    ) -> Result<Done, BackendError> {
        self.cloud
            .delete(&format!("/v1/gateways/{}", request.instance_id))?;
        Ok(Done {})
    }
}

fn balancer(data: &GatewayLoadBalancerData) -> &str {
    data.backend_data.as_deref().unwrap_or_default()
}

impl GatewayLoadBalancer for Wrong {
    fn create_gateway_load_balancer(
        &self,
        request: &CreateGatewayLoadBalancerRequest,
    ) -> Result<CreateGatewayLoadBalancerReply, BackendError> {
        let body =
            json!({"name": request.config.instance_name, "reference": request.config.provider_ref});
        let made: Made = self.cloud.post("/v1/balancers", &body)?;
        Ok(CreateGatewayLoadBalancerReply {
            load_balancer: GatewayLoadBalancerData {
                hostname: format!("{}.wrong.example", made.id),
                backend_data: Some(made.id),
            },
        })
    }

    fn terminate_gateway_load_balancer(
        &self,
        request: &TerminateGatewayLoadBalancerRequest,
    ) -> Result<Done, BackendError> {
        self.cloud.delete(&format!(
            "/v1/balancers/{}",
            balancer(&request.load_balancer)
        ))?;
        Ok(Done {})
    }

    fn register_gateway_replica(
        &self,
        request: &RegisterGatewayReplicaRequest,
    ) -> Result<Done, BackendError> {
        let path = format!(
            "/v1/balancers/{}/members/{}",
            balancer(&request.load_balancer),
            request.replica.instance_id
        );
        self.cloud.put(&path)?;
        Ok(Done {})
    }

    fn deregister_gateway_replica(
        &self,
        request: &DeregisterGatewayReplicaRequest,
    ) -> Result<Done, BackendError> {
        let path = format!(
            "/v1/balancers/{}/members/{}",
            balancer(&request.load_balancer),
            request.replica.instance_id
        );
        if !self.cloud.delete(&path)? && self.cloud.has(Defect::OutsiderIsAnError) {
            return Err(BackendError::not_found("no such member"));
        }
        Ok(Done {})
    }
}

impl PlacementGroups for Wrong {
    fn create_placement_group(
        &self,
        request: &CreatePlacementGroupRequest,
    ) -> Result<CreatePlacementGroupReply, BackendError> {
        let group = &request.placement_group;
        let made: Made = self.cloud.post(
            "/v1/groups",
            &json!({"name": group.name, "reference": group.provider_ref}),
        )?;
        Ok(CreatePlacementGroupReply {
            provisioning_data: PlacementGroupProvisioningData {
                backend: BackendType::new("wrong"),
                backend_data: Some(made.id),
            },
        })
    }

    fn delete_placement_group(
        &self,
        request: &DeletePlacementGroupRequest,
    ) -> Result<Done, BackendError> {
        let data = request.placement_group.provisioning_data.as_ref();
        if let Some(id) = data.and_then(|data| data.backend_data.as_ref()) {
            self.cloud.delete(&format!("/v1/groups/{id}"))?;
        }
        Ok(Done {})
    }

    fn is_suitable_placement_group(
        &self,
        request: &IsSuitablePlacementGroupRequest,
    ) -> Result<IsSuitablePlacementGroupReply, BackendError> {
        if self.cloud.has(Defect::PlacementAsks) {
            self.cloud.get("/v1/account")?;
        }
        Ok(IsSuitablePlacementGroupReply {
            suitable: request.placement_group.configuration.region == request.offer.region,
        })
    }
}

impl GroupProvisioning for Wrong {
    fn run_jobs(&self, request: &RunJobsRequest) -> Result<RunJobsReply, BackendError> {
        let mut nodes: Vec<JobProvisioningData> = Vec::new();
        let wanted = if self.cloud.has(Defect::OneNode) {
            1
        } else {
            request.jobs.len()
        };
        for job in request.jobs.iter().take(wanted) {
            let body = json!({"name": job.job.job_name, "region": request.offer.region});
            let made: Made = match self.cloud.post("/v1/nodes", &body) {
                Ok(made) => made,
                Err(error) => {
                    // All or none.
                    for node in nodes {
                        if !self.cloud.has(Defect::NodeLeftBehind) {
                            self.cloud
                                .delete(&format!("/v1/nodes/{}", node.instance_id))?;
                        }
                    }
                    return Err(error);
                }
            };
            let data = from_value(json!({
                "backend": request.offer.backend, "instance_type": request.offer.instance,
                "instance_id": made.id, "region": request.offer.region, "price": request.offer.price,
                "username": "root", "dockerized": false,
            }));
            nodes.push(data.map_err(|error| BackendError::internal(error.to_string()))?);
        }
        Ok(RunJobsReply {
            group: ComputeGroupProvisioningData {
                compute_group_id: format!("g-{}", request.run.run_name),
                compute_group_name: request.run.run_name.clone(),
                backend: request.offer.backend.clone(),
                region: request.offer.region.clone(),
                job_provisioning_datas: nodes,
                backend_data: None,
            },
        })
    }

    fn terminate_compute_group(
        &self,
        request: &TerminateComputeGroupRequest,
    ) -> Result<Done, BackendError> {
        for node in &request.group.provisioning_data.job_provisioning_datas {
            self.cloud
                .delete(&format!("/v1/nodes/{}", node.instance_id))?;
        }
        Ok(Done {})
    }
}
