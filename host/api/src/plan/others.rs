//! What the server does with fleets, gateways and volumes before it plans: rules and defaults.

use std::collections::BTreeSet;

use dstack_backend_types::resources::ResourcesSpec;
use dstack_backend_types::{Requirements, capability};

use super::interpolate::{Namespace, Namespaces, interpolate_all};
use super::jobs::options_json;
use super::{PlanError, PlanLimits};
use crate::config::names::check_resource_name;
use crate::config::{
    Certificate, FleetConfiguration, GatewayConfiguration, Placement, Profile, ProfileRetry,
    SpotPolicy, SshHost, SshParams, VolumeConfiguration,
};

/// Lets the fleet's own parameters replace those of its profile.
pub fn merged_fleet_profile(fleet: &FleetConfiguration, profile: &Profile) -> Profile {
    let mut merged = profile.clone();
    merged.params.merge(&fleet.profile());
    merged
        .params
        .spot_policy
        .get_or_insert(SpotPolicy::OnDemand);
    merged
        .params
        .retry
        .get_or_insert(ProfileRetry::Switch(false));
    merged
}

/// What the instances of a fleet must have; `None` for own hosts. `profile` is the merged one.
pub fn fleet_requirements(fleet: &FleetConfiguration, profile: &Profile) -> Option<Requirements> {
    if fleet.ssh_config.is_some() {
        return None;
    }
    let params = &profile.params;
    Some(Requirements {
        resources: fleet
            .resources
            .clone()
            .unwrap_or_else(ResourcesSpec::unconstrained),
        max_price: params.max_price,
        spot: params.requires_spot(),
        reservation: params.reservation.clone(),
        multinode: Some(fleet.placement == Some(Placement::Cluster)),
        backend_options: params.backend_options.as_deref().map(options_json),
    })
}

/// Checks a fleet by all rules that need nothing stored.
///
/// # Errors
/// The first rule that is broken.
pub fn check_fleet(fleet: &FleetConfiguration) -> Result<(), PlanError> {
    if let Some(name) = &fleet.name {
        check_resource_name("fleet", name)?;
    }
    match (&fleet.nodes, &fleet.ssh_config) {
        (Some(_), Some(_)) => Err(PlanError::FleetBoth),
        (None, None) => Err(PlanError::FleetNeither),
        (Some(_), None) if !fleet.env.0.is_empty() => Err(PlanError::CloudFleetEnv),
        (Some(_), None) => Ok(()),
        (None, Some(ssh)) => {
            check_cloud_keys(fleet)?;
            check_ssh(ssh)
        }
    }
}

fn check_cloud_keys(fleet: &FleetConfiguration) -> Result<(), PlanError> {
    let set = [
        ("resources", fleet.resources.is_some()),
        ("backends", fleet.backends.is_some()),
        ("regions", fleet.regions.is_some()),
        ("availability_zones", fleet.availability_zones.is_some()),
        ("instance_types", fleet.instance_types.is_some()),
        ("spot_policy", fleet.spot_policy.is_some()),
        ("retry", fleet.retry.is_some()),
        ("max_price", fleet.max_price.is_some()),
        ("idle_duration", fleet.idle_duration.is_some()),
        ("reservation", fleet.reservation.is_some()),
        ("tags", fleet.tags.is_some()),
        ("backend_options", fleet.backend_options.is_some()),
    ];
    match set.into_iter().find(|(_, set)| *set) {
        Some((key, _)) => Err(PlanError::SshFleetKey(key)),
        None => Ok(()),
    }
}

fn check_ssh(ssh: &SshParams) -> Result<(), PlanError> {
    let (mut names, mut with_ip) = (BTreeSet::new(), 0);
    for host in &ssh.hosts {
        let name = host.hostname();
        let params = match host {
            SshHost::Name(_) => None,
            SshHost::Params(params) => Some(params),
        };
        // One address may lead to several machines by port forwarding.
        let port = params
            .and_then(|params| params.port)
            .or(ssh.port)
            .unwrap_or(22);
        if !names.insert((name, port)) {
            return Err(PlanError::HostTwice(name.to_owned()));
        }
        if ssh.user.is_none() && params.is_none_or(|params| params.user.is_none()) {
            return Err(PlanError::HostWithoutUser(name.to_owned()));
        }
        let own_key =
            params.is_some_and(|host| host.ssh_key.is_some() || host.identity_file.is_some());
        if !own_key && ssh.ssh_key.is_none() && ssh.identity_file.is_none() {
            return Err(PlanError::HostWithoutKey(name.to_owned()));
        }
        with_ip += usize::from(params.is_some_and(|params| params.internal_ip.is_some()));
    }
    if with_ip > 0 && ssh.network.is_some() {
        return Err(PlanError::InternalIpAndNetwork);
    }
    if with_ip > 0 && with_ip < ssh.hosts.len() {
        return Err(PlanError::SomeInternalIps);
    }
    Ok(())
}

/// The domain of a gateway for the services of a project.
///
/// # Errors
/// A reference that is not closed, malformed or not known.
pub fn gateway_domain(domain: &str, project: &str) -> Result<String, PlanError> {
    let values = Namespace::from([("project_name".to_owned(), project.to_owned())]);
    let names = Namespaces::default().with("run", &values);
    interpolate_all(domain, &names).map_err(|source| PlanError::Reference {
        place: "`domain`".to_owned(),
        source,
    })
}

/// Checks a gateway by all rules that need nothing stored.
///
/// # Errors
/// The first rule that is broken.
pub fn check_gateway(gateway: &GatewayConfiguration, limits: &PlanLimits) -> Result<(), PlanError> {
    if let Some(name) = &gateway.name {
        check_resource_name("gateway", name)?;
    }
    if let Some(domain) = &gateway.domain {
        gateway_domain(domain, "project")?;
    }
    let backend = &gateway.backend;
    let unable = |what| {
        Err(PlanError::GatewayBackend {
            backend: backend.clone(),
            what,
        })
    };
    // Backends that are not known here are asked when the gateway is made.
    let lacks = |capability| backend.facts().is_some_and(|facts| !facts.has(capability));
    if lacks(capability::GATEWAY) {
        return unable("have gateways");
    }
    let lets_encrypt = matches!(gateway.certificate, Some(Certificate::LetsEncrypt {}));
    if !gateway.public_ip {
        if lacks(capability::PRIVATE_GATEWAY) {
            return unable("have gateways without a public address");
        }
        if lets_encrypt {
            return Err(PlanError::PrivateLetsEncrypt);
        }
    }
    match &gateway.certificate {
        Some(Certificate::Acm { .. }) if *backend != "aws" => {
            return unable("use ACM certificates");
        }
        Some(Certificate::GcpCm { .. }) if *backend != "gcp" => {
            return unable("use certificates of GCP Certificate Manager");
        }
        Some(Certificate::GcpCm { .. }) if gateway.load_balancer.is_none() => {
            return Err(PlanError::CertificateNeedsBalancer);
        }
        _ => {}
    }
    if gateway.load_balancer.is_some() {
        if lacks(capability::GATEWAY_LOAD_BALANCER) {
            return unable("put a load balancer before a gateway");
        }
        if lets_encrypt {
            return Err(PlanError::BalancerCertificate);
        }
    }
    match gateway.replicas.unwrap_or(1) {
        replicas if replicas > limits.gateway_replicas => Err(PlanError::TooManyGatewayReplicas {
            replicas,
            max: limits.gateway_replicas,
        }),
        replicas if replicas > 1 && lets_encrypt => Err(PlanError::ReplicatedLetsEncrypt),
        _ => Ok(()),
    }
}

/// Checks a volume by all rules that need nothing stored.
///
/// # Errors
/// The first rule that is broken.
pub fn check_volume(volume: &VolumeConfiguration) -> Result<(), PlanError> {
    if let Some(name) = &volume.name {
        check_resource_name("volume", name)?;
    }
    let external = volume.place.external_id().is_some();
    if !external && volume.place.size().is_none() {
        return Err(PlanError::VolumeSize);
    }
    if external
        && volume
            .auto_cleanup_duration
            .is_some_and(|seconds| seconds > 0)
    {
        return Err(PlanError::ExternalCleanup);
    }
    Ok(())
}
