//! Making a machine, once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dstack_backend_sdk::boot::ShimSetup;
use dstack_backend_sdk::host;
use dstack_backend_sdk::prelude::*;

use crate::backend::Aws;
use crate::client::Api;
use crate::errors;
use crate::images::{Image, Wanted};
use crate::interfaces::{self, Interface};
use crate::machines::{self, Machine, Started};
use crate::network::Subnet;
use crate::params::Params;
use crate::reservations::Reservation;
use crate::security::Role;

/// All that is the same in every zone.
struct Order<'r> {
    request: &'r CreateInstanceRequest,
    image: Image,
    group: String,
    interfaces: Vec<Interface>,
    reservation: Option<Reservation>,
    user_data: String,
    has_public_ip: bool,
    profile: Option<String>,
    tags: tags::Tags,
}

impl Order<'_> {
    fn region(&self) -> &str {
        &self.request.offer.region
    }

    /// The same for the same attempt in the same zone, so that the provider knows a repeated request by it.
    fn token(&self, zone: &str) -> Option<String> {
        let reference = self.request.config.provider_ref.as_ref()?;
        Some(format!("{reference}-{zone}"))
    }

    fn params(&self, subnet: &Subnet) -> Params {
        let offer = &self.request.offer;
        let resources = &offer.instance.resources;
        let params = Params::new()
            .set("ImageId", &self.image.id)
            .set("InstanceType", &offer.instance.name)
            .set("MinCount", 1)
            .set("MaxCount", 1)
            .maybe("ClientToken", self.token(&subnet.zone))
            .set("UserData", STANDARD.encode(&self.user_data))
            .set("BlockDeviceMapping.1.DeviceName", &self.image.root_device)
            .set(
                "BlockDeviceMapping.1.Ebs.VolumeSize",
                resources.disk.size_mib.div_ceil(1024),
            )
            .set("BlockDeviceMapping.1.Ebs.VolumeType", "gp2")
            .set("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true")
            .maybe("IamInstanceProfile.Name", self.profile.as_ref())
            .maybe(
                "Placement.GroupName",
                self.request.placement_group.as_ref().map(|it| &it.name),
            )
            .tags("instance", &self.tags);
        self.market(self.network(params, subnet))
    }

    fn network(&self, mut params: Params, subnet: &Subnet) -> Params {
        // The provider gives an address to a machine with one interface only.
        let has_address = self.has_public_ip && self.interfaces.len() == 1;
        for (at, interface) in self.interfaces.iter().enumerate() {
            let name = format!("NetworkInterface.{}", at + 1);
            params = params
                .set(format!("{name}.DeviceIndex"), interface.device)
                .set(format!("{name}.NetworkCardIndex"), interface.card)
                .set(format!("{name}.SubnetId"), &subnet.id)
                .set(format!("{name}.SecurityGroupId.1"), &self.group)
                .maybe(&format!("{name}.InterfaceType"), interface.kind);
            if at == 0 {
                params = params.set(format!("{name}.AssociatePublicIpAddress"), has_address);
            }
        }
        params
    }

    fn market(&self, params: Params) -> Params {
        const MARKET: &str = "InstanceMarketOptions";
        if self.request.offer.instance.resources.spot {
            return params
                .set(format!("{MARKET}.MarketType"), "spot")
                .set(format!("{MARKET}.SpotOptions.SpotInstanceType"), "one-time")
                .set(
                    format!("{MARKET}.SpotOptions.InstanceInterruptionBehavior"),
                    "terminate",
                );
        }
        // A machine that nobody asks for any more switches itself off: it must not stay as a disk that is paid for.
        let params = params.set("InstanceInitiatedShutdownBehavior", "terminate");
        let Some(reservation) = &self.reservation else {
            return params;
        };
        let mut params = params.set(
            "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
            &reservation.id,
        );
        if reservation.is_capacity_block {
            params = params.set(format!("{MARKET}.MarketType"), "capacity-block");
        }
        match reservation.tenancy.as_deref() {
            None | Some("" | "default") => params,
            Some(tenancy) => params.set("Placement.Tenancy", tenancy),
        }
    }
}

impl CreateInstance for Aws {
    fn create_instance(&self, request: &CreateInstanceRequest) -> Result<CreateInstanceReply> {
        let (offer, config) = (&request.offer, &request.config);
        let ec2 = self.apis.ec2(&offer.region)?;
        let wanted = self.wanted_image(!offer.instance.resources.gpus.is_empty())?;
        let find = |reference: &str| Ok(machines::of_attempt(&ec2, reference)?.pop());
        let make = || self.start(&ec2, request, &wanted);
        let machine = provisioning::once(config.provider_ref.as_deref(), find, make)?;
        end_spot_request(&ec2, &machine)?;
        let made = provisioning::machine(offer, &machine.instance_id, &wanted.user);
        Ok(JobProvisioningData {
            availability_zone: machine.zone().map(str::to_owned),
            public_ip_enabled: self.config.has_public_ips(),
            reservation: config.reservation.clone(),
            // Known with the address.
            ssh_port: None,
            ..made
        }
        .into())
    }
}

impl Aws {
    fn start(
        &self,
        ec2: &Api,
        request: &CreateInstanceRequest,
        wanted: &Wanted,
    ) -> Result<Machine> {
        let (offer, config) = (&request.offer, &request.config);
        let is_public = self.config.has_public_ips();
        let network = self.network(&offer.region, is_public)?;
        let reservation = self.reservation_of(request)?;
        let subnets = in_zones(&network.subnets, |zone| {
            let zones = offer.availability_zones.as_ref();
            let reserved = reservation.as_ref().map(|it| it.zone.as_str());
            zones.is_none_or(|zones| zones.iter().any(|it| it == zone))
                && reserved.is_none_or(|it| it == zone)
        });
        let what = format!("{} in {}", offer.instance.name, offer.region);
        if subnets.is_empty() {
            return Err(BackendError::no_capacity(format!(
                "there is no subnet for {what} in a zone that fits"
            )));
        }
        let fast = self.fast_interfaces(&offer.region, &offer.instance.name)?;
        let order = Order {
            request,
            image: self.image(&offer.region, wanted)?,
            group: self.security_group(
                &offer.region,
                &network.vpc,
                &config.project_name,
                Role::Machines,
            )?,
            interfaces: interfaces::of(&offer.instance.name, fast),
            reservation,
            user_data: user_data(request, wanted)?,
            has_public_ip: is_public,
            profile: self.config.iam_instance_profile.clone(),
            tags: self.tags_of(config),
        };
        try_zones(ec2, &order, &subnets, &what)
    }

    fn tags_of(&self, config: &InstanceConfiguration) -> tags::Tags {
        let mut tags = tags::of_instance(config, &self.config.tags());
        let name = steady_name(
            names::instance_name(config, names::MAX_NAME_LEN),
            config.provider_ref.as_deref(),
        );
        tags.insert("Name".to_owned(), name);
        tags
    }
}

/// The name with the beginning of the reference as its end: a repeated request must be equal to the first, and the reference
/// itself stands in a tag.
pub(crate) fn steady_name(name: String, reference: Option<&str>) -> String {
    match (name.rsplit_once('-'), reference) {
        (Some((prefix, _)), Some(reference)) => {
            let end: String = reference.chars().take(8).collect();
            format!("{prefix}-{end}")
        }
        _ => name,
    }
}

/// One subnet for each zone that fits.
fn in_zones(subnets: &[Subnet], fits: impl Fn(&str) -> bool) -> Vec<Subnet> {
    let mut chosen: Vec<Subnet> = Vec::new();
    for subnet in subnets.iter().filter(|subnet| fits(&subnet.zone)) {
        if chosen.iter().all(|it| it.zone != subnet.zone) {
            chosen.push(subnet.clone());
        }
    }
    chosen
}

fn user_data(request: &CreateInstanceRequest, wanted: &Wanted) -> Result<String> {
    let resources = &request.offer.instance.resources;
    let arch = resources.cpu_arch.unwrap_or(CpuArchitecture::X86);
    let keys = request.config.ssh_keys.iter();
    let keys = keys.map(|key| key.public.trim().to_owned()).collect();
    let mut setup = ShimSetup::new(host::agent_urls()?, arch, keys);
    if wanted.is_own {
        // Own images have a firewall of their own, or another system.
        setup.firewall_subnets = None;
    }
    Ok(setup.user_data())
}

/// Tries one zone after the other.
fn try_zones(ec2: &Api, order: &Order<'_>, subnets: &[Subnet], what: &str) -> Result<Machine> {
    let mut reasons = Vec::new();
    for subnet in subnets {
        let error = match run(ec2, order, subnet) {
            Ok(machine) => return Ok(machine),
            Err(error) => error,
        };
        let is_last_word = errors::ends_call(&error)
            || matches!(error.kind, ErrorKind::Quota | ErrorKind::Auth)
            || errors::code(&error).starts_with("InvalidParameter");
        if is_last_word {
            return Err(error);
        }
        tracing::info!(
            zone = subnet.zone,
            region = order.region(),
            error = error.message,
            "no machine in this zone"
        );
        reasons.push(format!("{}: {}", subnet.zone, error.message));
    }
    Err(BackendError::no_capacity(format!(
        "no capacity for {what}: {}",
        reasons.join("; ")
    )))
}

fn run(ec2: &Api, order: &Order<'_>, subnet: &Subnet) -> Result<Machine> {
    let started = match ec2.change::<Started>("RunInstances", &order.params(subnet)) {
        Ok(started) => started.instances_set.items.into_iter().next(),
        // An earlier request of this attempt has made one, with other parameters: it is that one.
        Err(error) if errors::is(&error, &["IdempotentParameterMismatch"]) => {
            let token = order.token(&subnet.zone).unwrap_or_default();
            let params = Params::new().filter("client-token", [token]);
            return machines::list(ec2, &params)?.pop().ok_or(error);
        }
        Err(error) => return Err(error),
    };
    let machine =
        started.ok_or_else(|| BackendError::internal("RunInstances answers without a machine"))?;
    if machine.is_alive() {
        return Ok(machine);
    }
    Err(BackendError::no_capacity(format!(
        "{} is {}: {}",
        machine.instance_id,
        machine.state(),
        machine.reason()
    )))
}

/// Ends the request for a spot machine, which goes on after it was answered. If that fails nothing is lost: a request for one
/// machine ends with the machine.
fn end_spot_request(ec2: &Api, machine: &Machine) -> Result<()> {
    let request = machine.spot_instance_request_id.as_deref();
    let Some(request) = request.filter(|id| !id.is_empty()) else {
        return Ok(());
    };
    let params = Params::new().list("SpotInstanceRequestId", [request]);
    match ec2.done("CancelSpotInstanceRequests", &params) {
        Err(error) if error.kind == ErrorKind::Cancelled => Err(error),
        Err(error) => {
            let id = &machine.instance_id;
            tracing::warn!(id, request, %error, "the request for a spot machine cannot be ended");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{in_zones, steady_name};
    use crate::network::Subnet;

    #[test]
    fn a_zone_is_tried_once() {
        let subnet = |id: &str, zone: &str| Subnet {
            id: id.to_owned(),
            zone: zone.to_owned(),
        };
        let all = [
            subnet("1", "a"),
            subnet("2", "a"),
            subnet("3", "b"),
            subnet("4", "c"),
        ];
        let ids = |fits: &dyn Fn(&str) -> bool| {
            let chosen = in_zones(&all, fits).into_iter();
            chosen.map(|it| it.id).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ids(&|_| true), "1 3 4");
        assert_eq!(ids(&|zone| zone == "b"), "3");
    }

    #[test]
    fn a_repeated_request_has_the_same_name() {
        let name = |end: &str| format!("dstack-main-run-0-0-{end}");
        let reference = Some("0123456789abcdef");
        assert_eq!(steady_name(name("x1y2z3a4"), reference), name("01234567"));
        assert_eq!(steady_name(name("x1y2z3a4"), None), name("x1y2z3a4"));
    }
}
