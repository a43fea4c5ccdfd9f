//! Gateway machines.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dstack_backend_sdk::boot::gateway_user_data;
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::rest::wait_until;
use dstack_backend_sdk::types::{GatewayComputeConfiguration, GatewayProvisioningData};

use crate::backend::Aws;
use crate::client::Api;
use crate::create::steady_name;
use crate::images::gateway_image;
use crate::machines::{self, Machine, Started};
use crate::params::Params;
use crate::security::Role;

const DEFAULT_TYPE: &str = "t3.micro";
const DISK_GB: u32 = 10;
/// How long a machine may take to run.
const PATIENCE: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_secs(3);
/// The gateway's program, as its installer names it.
const PACKAGE: &str = "dstack[gateway]==0.22.5";
const SYSTEMD_MODULE: &str = "dstack._internal.proxy.gateway.systemd";

impl Aws {
    /// Tags of what is made for a gateway.
    pub(crate) fn gateway_tags(&self, config: &GatewayComputeConfiguration) -> tags::Tags {
        let reference = config.provider_ref.as_deref();
        let mut base =
            tags::base_tags(&config.project_name, &config.instance_name, None, reference);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        base.insert("dstack_version".to_owned(), version);
        let (tags, refused) =
            tags::merge_valid(&base, Some(&self.config.tags()), config.tags.as_ref());
        if !refused.is_empty() {
            tracing::warn!(
                tags = refused.join(", "),
                "tags that AWS refuses are left out"
            );
        }
        tags
    }

    fn start_gateway(&self, ec2: &Api, config: &GatewayComputeConfiguration) -> Result<Machine> {
        let region = &config.region;
        let network = self.network(region, config.public_ip)?;
        let subnet = network.subnets.first().ok_or_else(|| {
            BackendError::invalid(format!("there is no subnet for a gateway in {region}"))
        })?;
        let group =
            self.security_group(region, &network.vpc, &config.project_name, Role::Gateways)?;
        let image = self.image(region, &gateway_image())?;
        let reference = config.provider_ref.as_deref();
        let mut tags = self.gateway_tags(config);
        let name = names::gateway_name(config, names::MAX_NAME_LEN);
        tags.insert("Name".to_owned(), steady_name(name, reference));
        let user_data = gateway_user_data(config.ssh_key_pub.trim(), PACKAGE, SYSTEMD_MODULE);
        let kind = config.instance_type.as_deref().unwrap_or(DEFAULT_TYPE);
        let params = Params::new()
            .set("ImageId", image.id)
            .set("InstanceType", kind)
            .set("MinCount", 1)
            .set("MaxCount", 1)
            .maybe("ClientToken", reference)
            .set("UserData", STANDARD.encode(user_data))
            .set("BlockDeviceMapping.1.DeviceName", image.root_device)
            .set("BlockDeviceMapping.1.Ebs.VolumeSize", DISK_GB)
            .set("BlockDeviceMapping.1.Ebs.VolumeType", "gp2")
            .set("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true")
            .maybe(
                "IamInstanceProfile.Name",
                self.config.iam_instance_profile.as_ref(),
            )
            .set("NetworkInterface.1.DeviceIndex", 0)
            .set("NetworkInterface.1.SubnetId", &subnet.id)
            .set("NetworkInterface.1.SecurityGroupId.1", group)
            .set(
                "NetworkInterface.1.AssociatePublicIpAddress",
                config.public_ip,
            )
            .tags("instance", &tags);
        let started: Started = ec2.change("RunInstances", &params)?;
        let machine = started.instances_set.items.into_iter().next();
        machine.ok_or_else(|| BackendError::internal("RunInstances answers without a machine"))
    }
}

/// The address by which a running gateway is reached.
fn address(machine: &Machine, is_public: bool) -> Option<String> {
    let ip = if is_public {
        machine.public_ip()
    } else {
        machine.private_ip()
    };
    ip.filter(|_| machine.state() == "running")
        .map(str::to_owned)
}

impl Gateways for Aws {
    fn create_gateway_replica(
        &self,
        request: &CreateGatewayReplicaRequest,
    ) -> Result<CreateGatewayReplicaReply> {
        let config = &request.config;
        let ec2 = self.apis.ec2(&config.region)?;
        let find = |reference: &str| Ok(machines::of_attempt(&ec2, reference)?.pop());
        let make = || self.start_gateway(&ec2, config);
        let made = provisioning::once(config.provider_ref.as_deref(), find, make)?;
        let id = made.instance_id;
        let what = format!("the address of {id}");
        let (machine, ip_address) = wait_until(&what, PAUSE, PATIENCE, || {
            let Some(machine) = machines::get(&ec2, &id)? else {
                return Ok(None);
            };
            if !machine.is_alive() {
                return Err(BackendError::provisioning(format!(
                    "{id} is {}: {}",
                    machine.state(),
                    machine.reason()
                )));
            }
            let ip = address(&machine, config.public_ip);
            Ok(ip.map(|ip| (machine, ip)))
        })?;
        Ok(GatewayProvisioningData {
            availability_zone: machine.zone().map(str::to_owned),
            instance_id: id,
            ip_address,
            region: config.region.clone(),
            hostname: None,
            backend_data: None,
        }
        .into())
    }

    fn terminate_gateway_replica(&self, request: &TerminateGatewayReplicaRequest) -> Result<Done> {
        let ec2 = self.apis.ec2(&request.config.region)?;
        if machines::end(&ec2, &request.instance_id)? {
            Ok(Done {})
        } else {
            Err(provisioning::still_there(&request.instance_id))
        }
    }
}
