//! Load balancers before gateway machines (application load balancers).

use std::collections::BTreeSet;

use dstack_backend_sdk::host::ledger;
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::types::services::SideResource;
use dstack_backend_sdk::types::{GatewayComputeConfiguration, GatewayLoadBalancerData};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::Aws;
use crate::client::{Api, Service};
use crate::errors;
use crate::network::Network;
use crate::params::Params;
use crate::security::Role;
use crate::xml::Members;

/// The word for a load balancer with all that belongs to it, in the ledger.
pub(crate) const KIND: &str = "load_balancer";
const TLS_POLICY: &str = "ELBSecurityPolicy-2016-08";
const MISSING: &[&str] = &[
    "LoadBalancerNotFound",
    "ListenerNotFound",
    "TargetGroupNotFound",
];

/// What was made for a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    lb_arn: String,
    tg_arn: String,
    /// Listens where clients come: for HTTPS with a certificate, else for HTTP.
    listener_arn: String,
    /// Sends clients of HTTP to HTTPS; only with a certificate.
    http_listener_arn: Option<String>,
}

impl Kept {
    fn of(data: &GatewayLoadBalancerData) -> Result<Self> {
        let text = data.backend_data.as_deref().unwrap_or_default();
        serde_json::from_str(text)
            .map_err(|error| BackendError::internal(format!("data of the load balancer: {error}")))
    }
}

#[derive(Deserialize)]
struct Balancers {
    #[serde(rename = "CreateLoadBalancerResult")]
    result: BalancersResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BalancersResult {
    #[serde(default)]
    load_balancers: Members<Balancer>,
}

#[derive(Deserialize)]
struct Balancer {
    #[serde(rename = "LoadBalancerArn")]
    arn: String,
    #[serde(rename = "DNSName")]
    dns_name: String,
}

#[derive(Deserialize)]
struct TargetGroups {
    #[serde(rename = "CreateTargetGroupResult")]
    result: TargetGroupsResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TargetGroupsResult {
    #[serde(default)]
    target_groups: Members<TargetGroup>,
}

#[derive(Deserialize)]
struct TargetGroup {
    #[serde(rename = "TargetGroupArn")]
    arn: String,
}

#[derive(Deserialize)]
struct Listeners {
    #[serde(rename = "CreateListenerResult")]
    result: ListenersResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListenersResult {
    #[serde(default)]
    listeners: Members<Listener>,
}

#[derive(Deserialize)]
struct Listener {
    #[serde(rename = "ListenerArn")]
    arn: String,
}

fn first<T>(members: Members<T>, what: &str) -> Result<T> {
    let first = members.items.into_iter().next();
    first.ok_or_else(|| BackendError::internal(format!("the answer has no {what}")))
}

/// Of the certificate: `None` for plain HTTP.
fn certificate(config: &GatewayComputeConfiguration) -> Result<Option<String>> {
    let Some(certificate) = config.certificate.as_ref().filter(|it| !it.is_null()) else {
        return Ok(None);
    };
    let text = |key: &str| certificate.get(key).and_then(Value::as_str);
    match (text("type"), text("arn")) {
        (Some("acm"), Some(arn)) => Ok(Some(arn.to_owned())),
        (kind, _) => Err(BackendError::invalid(format!(
            "certificate: a load balancer takes one of type acm with its arn, not {}",
            kind.unwrap_or("one without a type")
        ))),
    }
}

/// One subnet for each zone.
fn subnets(network: &Network) -> Vec<&str> {
    let mut zones = BTreeSet::new();
    let all = network.subnets.iter();
    all.filter(|subnet| zones.insert(&subnet.zone))
        .map(|subnet| subnet.id.as_str())
        .collect()
}

/// `dstack-<8>`, the same for the same reference: names are what the provider knows a repeated request by.
fn short_name(reference: Option<&str>) -> String {
    crate::create::steady_name(names::short_name(), reference)
}

/// The entry of the ledger for the load balancer of a gateway.
fn entry(config: &GatewayComputeConfiguration) -> Option<SideResource> {
    let reference = config.provider_ref.as_deref()?;
    Some(SideResource {
        provider_ref: reference.to_owned(),
        kind: KIND.to_owned(),
        name: short_name(Some(reference)),
        region: config.region.clone(),
        ..SideResource::default()
    })
}

/// Deletes one thing; one that is not there is deleted.
fn delete(elb: &Api, what: &str, arn: &str) -> Result<()> {
    let params = Params::new().set(format!("{what}Arn"), arn);
    match elb.done(&format!("Delete{what}"), &params) {
        Err(error) if errors::is(&error, MISSING) => Ok(()),
        // The load balancer before it is on its way out.
        Err(error) if errors::is(&error, &["ResourceInUse"]) => {
            Err(provisioning::still_there(what))
        }
        other => other,
    }
}

fn listener(balancer: &str, protocol: &str, port: u16) -> Params {
    Params::new()
        .set("LoadBalancerArn", balancer)
        .set("Protocol", protocol)
        .set("Port", port)
}

/// Deletes what a call has made for a gateway that gave no answer. Names are made of the reference, so what is found is its own.
pub(crate) fn delete_of_attempt(aws: &Aws, region: &str, reference: &str) -> Result<()> {
    #[derive(Deserialize)]
    struct FoundBalancers {
        #[serde(rename = "DescribeLoadBalancersResult")]
        result: BalancersResult,
    }
    #[derive(Deserialize)]
    struct FoundGroups {
        #[serde(rename = "DescribeTargetGroupsResult")]
        result: TargetGroupsResult,
    }
    let elb = aws.elb(region)?;
    let name = short_name(Some(reference));
    let named = |end: &str| Params::new().list("Names.member", [format!("{name}-{end}")]);
    match elb.read::<FoundBalancers>("DescribeLoadBalancers", &named("lb")) {
        Ok(found) => {
            for balancer in found.result.load_balancers.items {
                delete(&elb, "LoadBalancer", &balancer.arn)?;
            }
        }
        Err(error) if errors::is(&error, MISSING) => {}
        Err(error) => return Err(error),
    }
    match elb.read::<FoundGroups>("DescribeTargetGroups", &named("tg")) {
        Ok(found) => {
            for group in found.result.target_groups.items {
                delete(&elb, "TargetGroup", &group.arn)?;
            }
            Ok(())
        }
        Err(error) if errors::is(&error, MISSING) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Aws {
    fn elb(&self, region: &str) -> Result<Api> {
        self.apis.of(Service::LoadBalancing, region)
    }

    /// Listeners: HTTPS that forwards and HTTP that redirects to it, or HTTP that forwards.
    fn listen(elb: &Api, certificate: Option<&str>, mut kept: Kept) -> Result<Kept> {
        let make = |params: &Params| -> Result<String> {
            let made: Listeners = elb.change("CreateListener", params)?;
            Ok(first(made.result.listeners, "listener")?.arn)
        };
        let forward = |params: Params| {
            params
                .set("DefaultActions.member.1.Type", "forward")
                .set("DefaultActions.member.1.TargetGroupArn", &kept.tg_arn)
        };
        let Some(certificate) = certificate else {
            kept.listener_arn = make(&forward(listener(&kept.lb_arn, "HTTP", 80)))?;
            return Ok(kept);
        };
        let https = listener(&kept.lb_arn, "HTTPS", 443)
            .set("SslPolicy", TLS_POLICY)
            .set("Certificates.member.1.CertificateArn", certificate);
        let action = "DefaultActions.member.1";
        let redirect = listener(&kept.lb_arn, "HTTP", 80)
            .set(format!("{action}.Type"), "redirect")
            .set(format!("{action}.RedirectConfig.Protocol"), "HTTPS")
            .set(format!("{action}.RedirectConfig.Port"), 443)
            .set(format!("{action}.RedirectConfig.StatusCode"), "HTTP_301");
        kept.listener_arn = make(&forward(https))?;
        kept.http_listener_arn = Some(make(&redirect)?);
        Ok(kept)
    }

    fn target(
        &self,
        action: &str,
        config: &GatewayComputeConfiguration,
        balancer: &GatewayLoadBalancerData,
        machine: &str,
    ) -> Result<()> {
        let kept = Kept::of(balancer)?;
        let params = Params::new()
            .set("TargetGroupArn", &kept.tg_arn)
            .set("Targets.member.1.Id", machine);
        self.elb(&config.region)?.done(action, &params)
    }
}

impl GatewayLoadBalancer for Aws {
    fn create_gateway_load_balancer(
        &self,
        request: &CreateGatewayLoadBalancerRequest,
    ) -> Result<CreateGatewayLoadBalancerReply> {
        let config = &request.config;
        let region = &config.region;
        let certificate = certificate(config)?;
        let network = self.network(region, config.public_ip)?;
        let subnets = subnets(&network);
        if subnets.len() < 2 {
            return Err(BackendError::invalid(format!(
                "a load balancer needs subnets in two zones, and {region} has them in {}",
                subnets.len()
            )));
        }
        let group =
            self.security_group(region, &network.vpc, &config.project_name, Role::Gateways)?;
        let elb = self.elb(region)?;
        let name = short_name(config.provider_ref.as_deref());
        let tags = self.gateway_tags(config);
        let scheme = if config.public_ip {
            "internet-facing"
        } else {
            "internal"
        };
        if let Some(entry) = entry(config) {
            ledger::declare(&entry)?;
        }
        let params = Params::new()
            .set("Name", format!("{name}-lb"))
            .list("Subnets.member", subnets)
            .list("SecurityGroups.member", [group])
            .set("Scheme", scheme)
            .set("Type", "application")
            .set("IpAddressType", "ipv4")
            .pairs_of("Tags.member", &tags);
        let made: Balancers = elb.change("CreateLoadBalancer", &params)?;
        let balancer = first(made.result.load_balancers, "load balancer")?;
        let params = Params::new()
            .set("Name", format!("{name}-tg"))
            .set("Protocol", "HTTP")
            .set("Port", 80)
            .set("VpcId", &network.vpc)
            .set("TargetType", "instance")
            .pairs_of("Tags.member", &tags);
        let made: TargetGroups = elb.change("CreateTargetGroup", &params)?;
        let kept = Kept {
            lb_arn: balancer.arn,
            tg_arn: first(made.result.target_groups, "target group")?.arn,
            ..Kept::default()
        };
        let kept = Self::listen(&elb, certificate.as_deref(), kept)?;
        let backend_data = serde_json::to_string(&kept)
            .map_err(|error| BackendError::internal(error.to_string()))?;
        Ok(GatewayLoadBalancerData {
            hostname: balancer.dns_name,
            backend_data: Some(backend_data),
        }
        .into())
    }

    fn terminate_gateway_load_balancer(
        &self,
        request: &TerminateGatewayLoadBalancerRequest,
    ) -> Result<Done> {
        let kept = Kept::of(&request.load_balancer)?;
        let elb = self.elb(&request.config.region)?;
        for arn in kept.http_listener_arn.iter().chain([&kept.listener_arn]) {
            delete(&elb, "Listener", arn)?;
        }
        delete(&elb, "LoadBalancer", &kept.lb_arn)?;
        delete(&elb, "TargetGroup", &kept.tg_arn)?;
        if let Some(entry) = entry(&request.config) {
            ledger::settle(&entry)?;
        }
        Ok(Done {})
    }

    fn register_gateway_replica(&self, request: &RegisterGatewayReplicaRequest) -> Result<Done> {
        let machine = &request.replica.instance_id;
        self.target(
            "RegisterTargets",
            &request.config,
            &request.load_balancer,
            machine,
        )?;
        Ok(Done {})
    }

    fn deregister_gateway_replica(
        &self,
        request: &DeregisterGatewayReplicaRequest,
    ) -> Result<Done> {
        /// A machine or group that is gone is behind nothing.
        const OFF: &[&str] = &["InvalidTarget", "TargetGroupNotFound"];
        let machine = &request.replica.instance_id;
        let balancer = &request.load_balancer;
        match self.target("DeregisterTargets", &request.config, balancer, machine) {
            Err(error) if errors::is(&error, OFF) => Ok(Done {}),
            other => other.map(|()| Done {}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{certificate, short_name};
    use dstack_backend_sdk::types::GatewayComputeConfiguration;
    use serde_json::{Value, json};

    fn config(certificate: &Value) -> GatewayComputeConfiguration {
        let config = json!({
            "project_name": "main", "instance_name": "gw", "backend": "aws", "region": "us-east-1", "ssh_key_pub": "k",
            "certificate": certificate,
        });
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn only_certificates_of_the_provider_are_taken() {
        let acm = config(&json!({"type": "acm", "arn": "arn:x"}));
        assert_eq!(certificate(&acm).unwrap().as_deref(), Some("arn:x"));
        assert_eq!(certificate(&config(&Value::Null)).unwrap(), None);
        let other = certificate(&config(&json!({"type": "lets-encrypt"}))).unwrap_err();
        assert!(other.message.contains("lets-encrypt"), "{other}");
    }

    #[test]
    fn a_repeated_request_has_the_same_name() {
        assert_eq!(short_name(Some("0123456789abcdef")), "dstack-01234567");
        assert_eq!(short_name(None).len(), 15);
    }
}
